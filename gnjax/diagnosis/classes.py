"""The share of each class in the largest and in the smallest non-zero eigenvalue.

The classes are those of the samples or tokens; many classes are put into bands by their frequency.
G = sum_c G_c over the classes c. For a unit eigenvector v of G with the
eigenvalue lambda, the share of class c is v^T G_c v / lambda. That is the squared length of the
entries of J v that belong to the class, divided by that of all entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnjax.diagnosis.frequency import frequency_bands
from gnjax.numerics.answers.result import Result

_CLASSES = 12  # the most classes that have a line of their own; more are put into bands
_BANDS = 5


@dataclass(frozen=True, repr=False)
class ClassShare(Result):
    """The share of a class, or of a band of classes, in both ends of the spectrum.

    Attributes:
      name: the name of the class or of the band.
      count: the number of samples or tokens of this class.
      weight: ``count`` divided by the number of all samples or tokens that have a class.
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
    """The shares of every class of integer labels; an empty tuple for other targets.

    Args:
      y: the targets.
      jacobian: (n r, p), with the same number of rows for each label.
      top, bottom: eigenvectors (p, .) for both ends of the spectrum.
    """
    labels = np.asarray(y)
    classes = np.unique(labels[labels >= 0]) if labels.dtype.kind in "iu" else labels[:0]
    if len(classes) < 2 or len(jacobian) % labels.size:
        return ()
    owners, names = _classes_or_bands(labels, classes)
    rows = np.repeat(owners, len(jacobian) // labels.size)
    ends = [_of_rows(jacobian @ vectors) for vectors in (top, bottom)]
    total = int((owners >= 0).sum())
    return tuple(
        ClassShare(
            name,
            int((owners == place).sum()),
            float((owners == place).sum() / total),
            *(float(end[rows == place].sum()) for end in ends),
        )
        for place, name in enumerate(names)
        if (owners == place).any()
    )


def _classes_or_bands(labels: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The index of each label's class or band (-1 for no class), and the names of the classes."""
    flat = labels.ravel()
    if len(classes) <= _CLASSES:
        places = np.searchsorted(classes, flat)
        return np.where(flat < 0, -1, places), [str(label) for label in classes.tolist()]
    middle = [f"band {band + 1}" for band in range(1, _BANDS - 1)]
    return frequency_bands(flat, _BANDS), ["most frequent", *middle, "rarest"]


def _of_rows(images: np.ndarray) -> np.ndarray:
    """For each row, its part of the squared length of a column, averaged over the columns."""
    squares = np.square(images)
    return np.asarray((squares / squares.sum(axis=0)).mean(axis=1))
