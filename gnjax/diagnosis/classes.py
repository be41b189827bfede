"""The share of each class, or of each band of classes, in both ends of the spectrum.

G = sum_c G_c over the classes c. For a unit eigenvector v of G with the eigenvalue lambda, the
share of class c is v^T G_c v / lambda: the squared length of its entries of J v over that of all.
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
    """The shares of every class in both ends; an empty tuple for targets that are no labels.

    Where an eigenvalue has several eigenvectors, a share is the mean over them.

    Args:
      y: the targets; those below zero belong to no class.
      jacobian: J, (n r, p), with the same number r of rows for each of the n labels.
      top, bottom: eigenvectors (p, m) of the largest and of the smallest non-zero eigenvalue, one
        for each of its m repetitions.
    """
    labels = np.asarray(y)
    classes = np.unique(labels[labels >= 0]) if labels.dtype.kind in "iu" else labels[:0]
    if len(classes) < 2 or len(jacobian) % labels.size:
        return ()
    flat, names = labels.ravel(), [str(label) for label in classes.tolist()]
    class_of_label = np.where(flat < 0, -1, np.searchsorted(classes, flat))
    if len(classes) > _CLASSES:
        middle = [f"band {band + 1}" for band in range(1, _BANDS - 1)]
        class_of_label, names = frequency_bands(flat, _BANDS), ["most frequent", *middle, "rarest"]
    class_of_row = np.repeat(class_of_label, len(jacobian) // labels.size)
    squares = [np.square(jacobian @ vectors) for vectors in (top, bottom)]
    shares_of_rows = [(s / s.sum(axis=0)).mean(axis=1) for s in squares]
    total = int((class_of_label >= 0).sum())
    return tuple(
        ClassShare(
            name,
            int((class_of_label == index).sum()),
            float((class_of_label == index).sum() / total),
            *(float(shares[class_of_row == index].sum()) for shares in shares_of_rows),
        )
        for index, name in enumerate(names)
        if (class_of_label == index).any()
    )
