"""Which classes, or which tokens by their frequency, make both ends of the spectrum.

G = sum_c G_c over the classes c of the samples or tokens. For a unit eigenvector v of G with the
eigenvalue lambda, v^T G_c v / lambda is the class's share of it: the squared length of the rows of
J v that belong to the class, in that of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnjax.diagnosis.frequency import frequency_bands
from gnjax.numerics.result import Result

_CLASSES = 12  # above so many, classes are put into bands by how frequent they are
_BANDS = 5


@dataclass(frozen=True, repr=False)
class ClassShare(Result):
    """The part that a class, or a band of classes, has in both ends of the spectrum.

    Attributes:
      name: of the class, or which band it is.
      count: the samples or tokens that have it; ``weight`` is their share of all that count.
      top, bottom: its shares of lambda_max and of the smallest non-zero eigenvalue.
    """

    name: str
    count: int
    weight: float
    top: float
    bottom: float


def class_shares(
    y: Any, jacobian: np.ndarray, top: np.ndarray, bottom: np.ndarray
) -> tuple[ClassShare, ...]:
    """A share for every class of integer labels; nothing for other targets.

    Args:
      y: the targets.
      jacobian: (n r, p), with equally many rows for each label.
      top, bottom: eigenvectors (p, .) at both ends.
    """
    labels = np.asarray(y)
    known = np.unique(labels[labels >= 0]) if labels.dtype.kind in "iu" else labels[:0]
    if len(known) < 2 or len(jacobian) % labels.size:
        return ()
    owners, names = _named(labels, known)
    rows = np.repeat(owners, len(jacobian) // labels.size)
    ends = [_of_rows(jacobian @ vectors) for vectors in (top, bottom)]
    counted = int((owners >= 0).sum())
    return tuple(
        ClassShare(
            name,
            int((owners == place).sum()),
            float((owners == place).sum() / counted),
            *(float(end[rows == place].sum()) for end in ends),
        )
        for place, name in enumerate(names)
        if (owners == place).any()
    )


def _named(labels: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """For every label the number of its class or band, -1 for none, and the names of these."""
    flat = labels.ravel()
    if len(known) <= _CLASSES:
        places = np.searchsorted(known, flat)
        return np.where(flat < 0, -1, places), [str(label) for label in known.tolist()]
    middle = [f"band {band + 1}" for band in range(1, _BANDS - 1)]
    return frequency_bands(flat, _BANDS), ["most frequent", *middle, "rarest"]


def _of_rows(images: np.ndarray) -> np.ndarray:
    """The share of every row, averaged over the eigenvectors."""
    squares = np.square(images)
    return np.asarray((squares / squares.sum(axis=0)).mean(axis=1))
