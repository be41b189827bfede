"""Both ends of the spectrum of A: the smallest with R = L^{-T} for a Cholesky factor L with L L^T
near A, and the largest with R = I."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnjax.spectra.krylov.lanczos import random_rows
from gnjax.spectra.pencil.base import Products
from gnjax.spectra.pencil.triangle import Triangle

Full = Callable[[np.ndarray], Products]
Multiply = Callable[[np.ndarray], np.ndarray]

_SAFETY = 4.0
_ROUNDING = 4.0  # a product with C is rounded by at most this times eps kappa(L), in practice
_COMPARED = 4  # rows on which two kinds of products are compared
_FAR = 4.0  # no eigenvalue is larger than this times a Ritz value of the start, see largest_end
_SUBSPACE = 3  # steps of subspace iteration for the start


@dataclass(frozen=True)
class Matrix:
    """A by its products with rows.

    Attributes:
      size: the number of rows of A.
      full: products in full precision.
      multiply: A on rows for the steps of a run.
      exact: whether these have full precision too.
    """

    size: int
    full: Full
    multiply: Multiply
    exact: bool


@dataclass(frozen=True)
class MatrixEnd:
    """One end of the spectrum of A.

    Attributes:
      matrix: A.
      sign: +1 for the smallest eigenvalue, -1 for the largest.
      factor: L, or None for R = I / norm^{1/2}.
      norm: about how large A is where there is no factor; 1 otherwise.
      rows: the start.
      error: a measured bound on |C v computed - C v| for unit vectors v; zero in full precision.
    """

    matrix: Matrix
    sign: float
    factor: Triangle | None
    norm: float
    rows: np.ndarray
    error: float = 0.0

    @property
    def size(self) -> int:
        return self.matrix.size

    @property
    def block(self) -> int:
        return len(self.rows)

    @property
    def exact(self) -> bool:
        return self.matrix.exact

    def start(self) -> tuple[MatrixPencil, np.ndarray]:
        return self.pencil(0.0 if self.sign > 0 else _FAR * self.norm), self.rows

    def products(self, rows: np.ndarray) -> Products:
        return self.matrix.full(rows)

    def admissible(self, shift: float) -> float:
        return shift

    def pencil(self, shift: float) -> MatrixPencil:
        conditioning = 1.0 if self.factor is None else self.factor.conditioning()
        noise = _ROUNDING * np.finfo(float).eps * conditioning
        return MatrixPencil(self, shift, noise, self.error)

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        """R or, with ``transpose``, R^T on rows."""
        if self.factor is None:
            return rows / self.norm**0.5
        return self.factor.solved(rows, transpose=not transpose)


@dataclass(frozen=True)
class MatrixPencil:
    """C = R^T sign (A - s I) R."""

    end: MatrixEnd
    shift: float
    rounding: float  # of solving with L and of products in full precision
    error: float  # of the products of a run beside those

    @property
    def noise(self) -> float:
        return self.rounding + self.error

    def at(self, shift: float) -> MatrixPencil:
        return replace(self, shift=shift)

    def congruence(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        inner = self.end.solved(rows, transpose=False)
        product = self.end.matrix.multiply(inner)
        return self.transposed(self.end.sign * (product - self.shift * inner)), inner, product

    def inner(self, rows: np.ndarray) -> np.ndarray:
        return self.end.solved(rows, transpose=False)

    def transposed(self, rows: np.ndarray) -> np.ndarray:
        return self.end.solved(rows, transpose=True)

    def preimage(self, rows: np.ndarray) -> np.ndarray:
        factor = self.end.factor
        return rows * self.end.norm**0.5 if factor is None else factor.times(rows)

    def moved(self, count: int) -> float:
        """||E + E^T||_2 for an E with ``count`` rows, each as long as the error."""
        return 2 * self.noise * count**0.5


def smallest_end(matrix: Matrix, factor: Triangle, block: int) -> MatrixEnd:
    """The smallest eigenvalue, searched from the eigenvectors of the smallest ones of L L^T."""
    rows = random_rows(matrix.size, block, 0)
    for _ in range(_SUBSPACE):
        solved = factor.solved(factor.solved(rows, transpose=False), transpose=True)
        rows = np.ascontiguousarray(np.linalg.qr(solved.T)[0].T)
    return _with_error(MatrixEnd(matrix, 1.0, factor, 1.0, rows))


def largest_end(matrix: Matrix, block: int) -> MatrixEnd:
    """The largest eigenvalue, searched from vectors that went through A once or twice."""
    rows = random_rows(matrix.size, block, 0)
    for _ in range(_SUBSPACE - 1):
        rows = np.ascontiguousarray(np.linalg.qr(matrix.multiply(rows).T)[0].T)
    norm = float(np.linalg.eigvalsh(rows @ matrix.multiply(rows).T)[-1])
    return _with_error(MatrixEnd(matrix, -1.0, None, norm or 1.0, rows))


def _with_error(end: MatrixEnd) -> MatrixEnd:
    """Compare both kinds of products on the start, where R is longest: there they differ most."""
    if end.exact:
        return end
    rows = end.rows[:_COMPARED]
    difference = end.matrix.multiply(rows) - end.matrix.full(rows).images
    lengths = np.linalg.norm(end.solved(difference, transpose=True), axis=1)
    unit = np.linalg.norm(end.pencil(0.0).preimage(rows), axis=1)
    return replace(end, error=_SAFETY * float((lengths / unit).max()))
