"""What the method "sketched" asks of one end of the spectrum of a symmetric matrix A.

Let R be invertible with R R^T near (A - s I)^{-1}. For every shift s

    lambda_min(A) > s   if and only if   C = R^T (A - s I) R is positive definite

(Sylvester's law of inertia), whatever R is: a bad R costs steps and never the truth. For the
largest eigenvalue the same holds with s I - A. So ``sign`` is +1 for the smallest eigenvalue and -1
for the largest, and C = R^T sign (A - s I) R.

Only vectors and signs come from C. Every value that is stated is a Ritz value of A itself, from
products with orthonormal vectors, and what rounding may do to C is bounded for the R at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Products:
    """The products of A with the rows of W (b, n)."""

    images: np.ndarray  # A W^T as rows, (b, n)
    projected: np.ndarray  # W A W^T, (b, b)


class Pencil(Protocol):
    """C for one shift. Rows (b, n) are in host memory."""

    @property
    def shift(self) -> float: ...

    @property
    def noise(self) -> float:
        """How large a zero may become by rounding in a product with a C of norm 1."""
        ...

    @property
    def needs_size(self) -> bool:
        """Whether ``moved`` has to know the size of C on deflated vectors, too.

        Rounding may be so large that a rounded vector of a run has a part along those.
        """
        ...

    def at(self, shift: float) -> Pencil:
        """The pencil of another shift with the same R."""
        ...

    def congruence(
        self, rows: np.ndarray, beside: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """C v, R v and A R v for every row v of ``rows`` (b, n), each (b, n).

        With orthonormal rows X in ``beside``, A - s I is compressed to the complement of X: P R
        takes the place of R, for the projection P = I - X^T X.
        """
        ...

    def inner(self, rows: np.ndarray) -> np.ndarray:
        """R on rows."""
        ...

    def transposed(self, rows: np.ndarray) -> np.ndarray:
        """R^T on rows."""
        ...

    def preimage(self, rows: np.ndarray) -> np.ndarray:
        """R^{-1} on rows."""
        ...

    def moved(self, count: int, longest: float, size: float) -> float:
        """A bound on what rounding does to C in a Lanczos run of ``count`` products, in the 2-norm.

        The unit vectors v of the run have |R v| <= longest and |C v| <= size.
        """
        ...


class End(Protocol):
    """One end of a spectrum, and its preconditioner.

    Attributes:
      sign: +1 for the smallest eigenvalue, -1 for the largest.
      size: the number of rows of A.
      block: how many vectors are multiplied together.
    """

    @property
    def sign(self) -> float: ...

    @property
    def size(self) -> int: ...

    @property
    def block(self) -> int: ...

    def start(self) -> tuple[Pencil, np.ndarray]:
        """A pencil with a shift outside of the spectrum, and rows from which to search the end."""
        ...

    def products(self, rows: np.ndarray) -> Products:
        """Products with A in full precision."""
        ...

    def admissible(self, shift: float) -> float:
        """The shift, moved outwards if R does not exist for it."""
        ...


def beside(end: End, value: float, rtol: float) -> float:
    """The shift that lies a relative distance of rtol further out than ``value``."""
    return end.admissible(value - end.sign * rtol * abs(value))


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """The symmetric part of a matrix that is symmetric but for rounding."""
    return (matrix + matrix.T) / 2
