"""Both ends of the spectrum of A: the smallest with R = L^{-T} for a Cholesky factor L with L L^T
near A, and the largest with R = I.

**Rounding in C.** The computed w = R v solves (L + E)^T w = v for an E of the size of eps L, so
that it is R at v - E^T w, and likewise for R^T. The two solves move C v by up to about
eps kappa(L) ||C||. That is little where L L^T is near A, and not elsewhere: ||C|| may be
||A|| ||R||^2. A product A w has an error e of its own, which becomes R^T e. For a matrix of numbers
|e| is up to about eps ||A|| |w|. For A = J J^T, with J^T w first, |R^T e| is up to about
eps ||J|| (|w| + ||R||) |J^T w|, and |J^T w|^2 = v^T (C + s R^T R) v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov.lanczos import random_rows
from gnjax.spectra.krylov.orthogonal import outside
from gnjax.spectra.preconditioned_ends.one_end import Products
from gnjax.spectra.preconditioned_ends.triangle import Triangle, least_of

Full = Callable[[np.ndarray], Products]
Lost = Callable[[float, float, float, float], float]
"""A bound on |R^T e| for the rounding e of a product A w, from |w|, ||R||, w^T A w and ||A||."""

_SAFETY = 4.0
ROUNDING = 4.0  # a chain of sums, or solving with L twice, is rounded by so many eps, in practice
_COMPARED = 4  # rows on which two kinds of products are compared
_FAR = 4.0  # no eigenvalue is larger than this times a Ritz value of the start, see largest_end
_SUBSPACE = 3  # steps of subspace iteration for the start
EPS = float(np.finfo(float).eps)
_LITTLE = 1e-6  # what solving may move C by, where its size is not looked at


@dataclass(frozen=True)
class Matrix:
    """A by its products with rows.

    Attributes:
      size: the number of rows of A.
      full: products in full precision.
      multiply: A on rows for the steps of a run.
      exact: whether these have full precision too.
      lost: what rounding in full precision does to C.
    """

    size: int
    full: Full
    multiply: HostProduct
    exact: bool
    lost: Lost


@dataclass(frozen=True)
class MatrixEnd:
    """One end of the spectrum of A.

    Attributes:
      matrix: A.
      sign: +1 for the smallest eigenvalue, -1 for the largest.
      factor: L, or None for R = I / norm^{1/2}.
      norm: about how large A is.
      rows: orthonormal rows from which the search starts.
      inverse: about ||R||.
      conditioning: about the condition number of L.
      error: a measured bound on |C v computed - C v| for unit vectors v; zero in full precision.
    """

    matrix: Matrix
    sign: float
    factor: Triangle | None
    norm: float
    rows: np.ndarray
    inverse: float
    conditioning: float = 1.0
    error: float = 0.0

    @property
    def size(self) -> int:
        return self.matrix.size

    @property
    def block(self) -> int:
        return len(self.rows)

    def start(self) -> tuple[MatrixPencil, np.ndarray]:
        shift = 0.0 if self.sign > 0 else _FAR * self.norm
        return MatrixPencil(self, shift), self.rows

    def products(self, rows: np.ndarray) -> Products:
        return self.matrix.full(rows)

    def admissible(self, shift: float) -> float:
        return shift

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        """R or, with ``transpose``, R^T on rows."""
        if self.factor is None:
            return rows / self.norm**0.5
        return self.factor.solved(rows, transpose=not transpose)  # R = L^{-T}


@dataclass(frozen=True)
class MatrixPencil:
    """C = R^T sign (A - s I) R for the preconditioner R of an end and the shift s."""

    end: MatrixEnd
    shift: float

    @property
    def noise(self) -> float:
        return ROUNDING * EPS * self.end.conditioning + self.end.error

    @property
    def needs_size(self) -> bool:
        return self._solving() > _LITTLE

    def _solving(self, size: float | None = None) -> float:
        """How far the rounding of two solves with L may move C v.

        |C v| is at most ``size``; without it, about the largest that ||C|| may be for any L.
        """
        if self.end.factor is None:
            return ROUNDING * EPS
        if size is None:
            size = (self.end.norm + abs(self.shift)) * self.end.inverse * self.end.inverse
        return ROUNDING * EPS * self.end.conditioning * max(size, 1.0)

    def at(self, shift: float) -> MatrixPencil:
        return replace(self, shift=shift)

    def congruence(
        self, rows: np.ndarray, beside: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """C v, R v and A R v for every row v; (I - X^T X) R for R with rows X = ``beside``."""
        inner = self.inner(rows)
        inner = inner if beside is None else outside(inner, beside)
        product = self.end.matrix.multiply(inner)
        image = self.end.sign * (product - self.shift * inner)
        image = image if beside is None else outside(image, beside)
        return self.transposed(image), inner, product

    def inner(self, rows: np.ndarray) -> np.ndarray:
        return self.end.solved(rows, transpose=False)

    def transposed(self, rows: np.ndarray) -> np.ndarray:
        return self.end.solved(rows, transpose=True)

    def preimage(self, rows: np.ndarray) -> np.ndarray:
        factor = self.end.factor
        return rows * self.end.norm**0.5 if factor is None else factor.times(rows)

    def moved(self, count: int, longest: float, size: float) -> float:
        """A bound on ||C computed - C||_2 for a run of ``count`` products with unit vectors v.

        ``longest`` and ``size`` bound |R v| and |C v|. The run is one with C - E - E^T, where each
        of the ``count`` rows of E is no longer than the error of a product.
        """
        energy = size + abs(self.shift) * longest * longest  # at least w^T A w for w = R v
        products = self.end.matrix.lost(longest, self.end.inverse, energy, self.end.norm)
        solving = self._solving(size if self.needs_size else None)
        return 2 * (solving + products + self.end.error) * count**0.5


def smallest_end(matrix: Matrix, factor: Triangle, block: int, norm: float) -> MatrixEnd:
    """The end of the smallest eigenvalue of A, with R = L^{-T} for the ``factor`` L, L L^T near A.

    The search starts from ``block`` approximate eigenvectors of the smallest eigenvalues of L L^T,
    which a few steps of inverse subspace iteration find. ``norm`` is about how large A is.
    """
    rows = random_rows(matrix.size, block, 0)
    for _ in range(_SUBSPACE):
        solved = factor.solved(factor.solved(rows, transpose=False), transpose=True)
        rows = np.ascontiguousarray(np.linalg.qr(solved.T)[0].T)
    least = least_of(factor)  # the smallest eigenvalue of L L^T, which is 1 / ||R||^2
    inverse = least**-0.5 if least > 0 else np.inf
    return _with_error(MatrixEnd(matrix, 1.0, factor, norm, rows, inverse, factor.conditioning()))


def largest_end(matrix: Matrix, block: int) -> MatrixEnd:
    """The end of the largest eigenvalue of A, with the preconditioner R = I / norm^{1/2}.

    The search starts from ``block`` random vectors after a few steps of subspace iteration with A,
    and ``norm`` is the largest Ritz value of A on their span.
    """
    rows = random_rows(matrix.size, block, 0)
    for _ in range(_SUBSPACE - 1):
        rows = np.ascontiguousarray(np.linalg.qr(matrix.multiply(rows).T)[0].T)
    norm = abs(float(np.linalg.eigvalsh(rows @ matrix.multiply(rows).T)[-1])) or 1.0
    return _with_error(MatrixEnd(matrix, -1.0, None, norm, rows, norm**-0.5))


def _with_error(end: MatrixEnd) -> MatrixEnd:
    """The end with ``error``, that of C v for |v| = 1 by products in low precision.

    It is R^T times the difference of A w in low and in full precision, divided by |v| = |R^{-1} w|,
    for the vectors w from which the search starts: R is largest on eigenvectors near the end.
    """
    if end.matrix.exact:
        return end
    rows = end.rows[:_COMPARED]
    difference = end.matrix.multiply(rows) - end.matrix.full(rows).images
    error_lengths = np.linalg.norm(end.solved(difference, transpose=True), axis=1)
    any_shift = 0.0  # R^{-1} does not depend on s
    preimage_lengths = np.linalg.norm(MatrixPencil(end, any_shift).preimage(rows), axis=1)
    return replace(end, error=_SAFETY * float((error_lengths / preimage_lengths).max()))
