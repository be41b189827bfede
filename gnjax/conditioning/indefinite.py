"""A symmetric factorisation that does not ask for positive pivots: it counts eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from gnjax.conditioning.positive import shifted_copy


@dataclass(frozen=True)
class Indefinite:
    """A - s I = L D L^T with permutations, where D has blocks of one or two rows.

    Attributes:
      packed: L and D, as LAPACK's sytrf stores them.
      pivots: the rows that were interchanged; a negative number marks a row of a block of two.
    """

    packed: np.ndarray
    pivots: np.ndarray

    @property
    def above(self) -> int:
        """How many eigenvalues of A are above s: as many as D has positive ones (Sylvester).

        A block of two rows has one eigenvalue of each sign, or the algorithm would not have chosen
        it.
        """
        is_block_of_one = self.pivots > 0
        positive_singles = int((np.diagonal(self.packed)[is_block_of_one] > 0).sum())
        return positive_singles + int((~is_block_of_one).sum()) // 2

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """(A - s I)^{-1} v for each row v of an array (vectors, size)."""
        columns, _ = lapack.dsytrs(self.packed, self.pivots, rows.T, lower=1)
        return np.asarray(columns.T)


def indefinite(matrix: np.ndarray, shift: float) -> Indefinite | None:
    """L D L^T = A - s I for a symmetric A in float64 and the shift s; None if a pivot is zero."""
    # The transpose is the same matrix in the memory layout that LAPACK needs without a copy.
    copy = shifted_copy(matrix, shift).T
    work, _ = lapack.dsytrf_lwork(len(matrix), lower=1)
    packed, pivots, zero_pivot = lapack.dsytrf(copy, lower=1, lwork=int(work), overwrite_a=1)
    return None if zero_pivot else Indefinite(packed, pivots)
