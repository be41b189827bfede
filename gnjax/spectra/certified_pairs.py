"""Eigenpairs from anywhere as an answer: how far they are from exact, and what they leave out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import UNKNOWN, Certificate


@dataclass(frozen=True, repr=False)
class CertifiedPairs(Result):
    """What products with an operator say about pairs (value, vector) that somebody computed.

    Attributes:
      values: the values, in the order in which they came.
      residuals: ||A x - theta x|| / ||x|| of each, for the products as they are returned.
      errors: an eigenvalue of A is this close to each value. If the vectors are independent, each
        value has an eigenvalue of its own, so that a repeated one is counted as often as it occurs.
        Infinite where the error of the products is unknown.
      angles: a bound in radians on the angle of each vector with the exact one; infinite where its
        eigenvalue cannot be distinguished from the others.
      independent: how many dimensions the vectors span. If it is below their number, some are
        copies of others, as Lanczos without reorthogonalisation makes them.
      rest: all other eigenvalues of A lie between these two numbers, as surely as ``certificate``
        says. It is (inf, -inf) where there are no others. Eigenvalues near the pairs that need not
        be those of the pairs count as others.
      reached: the extreme Ritz values on the complement of the vectors. If the error of the
        products is zero and the pairs are exact, A has other eigenvalues at or beyond both.
      missed_above: at least so many eigenvalues that belong to none of the pairs lie above the
        smallest of the values. Nothing of this is left to chance.
      missed_below: at least so many lie below the largest of the values.
      certificate: what ``errors``, ``angles`` and ``rest`` rest on.
      products: how many products with the operator were made.
      finished: False where the search for other eigenvalues was interrupted.

    >>> pairs = gnjax.certify(np.diag([4.0, 2.0, 1.0]), np.eye(3)[[0, 2]])
    >>> pairs.are_largest, pairs.missed_above
    (False, 1)
    """

    _rows = ("values", "residuals", "errors", "angles")

    values: np.ndarray
    residuals: np.ndarray
    errors: np.ndarray
    angles: np.ndarray
    independent: int
    rest: tuple[float, float]
    reached: tuple[float, float]
    missed_above: int
    missed_below: int
    certificate: Certificate
    products: int
    finished: bool = True

    def __len__(self) -> int:
        return len(self.values)

    @property
    def intervals(self) -> np.ndarray:
        """(k, 2): an interval around each value that contains an eigenvalue."""
        return np.stack([self.values - self.errors, self.values + self.errors], axis=1)

    @property
    def are_largest(self) -> bool | None:
        """Whether these are the largest eigenvalues, each as often as it occurs; None if undecided.

        All other eigenvalues lie in the interval ``rest``. True may be wrong with the probability
        that ``certificate`` states, and False may not.
        """
        if self.missed_above or self.independent < len(self):
            return False
        return True if self.rest[1] <= float(self.intervals[:, 0].min()) else None

    @property
    def are_smallest(self) -> bool | None:
        """Whether these are the smallest eigenvalues; see :attr:`are_largest`."""
        if self.missed_below or self.independent < len(self):
            return False
        return True if self.rest[0] >= float(self.intervals[:, 1].max()) else None

    def __str__(self) -> str:
        """A line for the whole, with what is beside the pairs, and one for each pair."""
        parts = [f"{len(self)} eigenpairs, each value to {self.errors.max():.2g} of an eigenvalue"]
        if self.certificate.kind == UNKNOWN:
            worst = self.residuals.max()
            parts = [f"{len(self)} eigenpairs with residuals of at most {worst:.2g}"]
        if self.independent < len(self):
            parts.append(f"COPIES: they span {self.independent} dimensions")
        parts.append(self._others())
        if self.are_largest:
            parts.append("these are the largest")
        elif self.are_smallest:
            parts.append("these are the smallest")
        elif self.missed_above and self.missed_below:
            above, below = self.missed_above, self.missed_below
            least = f"{above} above the smallest of them, {below} below the largest"
            parts.append(f"MISSED: at least {least}")
        state = "" if self.finished else ", INTERRUPTED"
        lines = [f"{'; '.join(parts)} ({self.products} products, {self.certificate.brief}{state})"]
        for value, residual, error in zip(self.values, self.residuals, self.errors, strict=True):
            lines.append(f"  {value:.10g} to {error:.2g}, residual {residual:.2g}")
        return "\n".join(lines)

    def _others(self) -> str:
        """The eigenvalues that belong to none of the pairs: the interval ``rest`` in words.

        Where it has no bounds, the outermost values that a search has reached are named instead.
        """
        low, high = self.rest
        if low > high:  # an empty interval
            return "there are no others"
        if low == -np.inf and high == np.inf:
            low, high = self.reached
            return f"other eigenvalues reach at least about from {low:.6g} to {high:.6g}"
        return f"all others in [{low:.6g}, {high:.6g}]"
