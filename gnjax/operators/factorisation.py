"""A factor of an operator, J with J J^T = A, as a fact that an operator can state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.numerics.rounding import spectral_error

_Array = TypeVar("_Array", np.ndarray, jax.Array)

_ROWS = 256  # of a J that is formed as a whole, in one part


@dataclass(frozen=True)
class Factorisation:
    """J (n, p) with J J^T = A.

    Attributes:
      shape: of J.
      form: forms J in host memory, in float64.
      error: returns a bound on ||J formed - J||_2.
      blocks: yields J some rows at a time, or J^T, in float64, in host memory or on an accelerator;
        None where ``form`` is all there is.
      by_rows: whether the blocks are rows of J.
    """

    shape: tuple[int, int]
    form: Callable[[], np.ndarray]
    error: Callable[[], Error]
    blocks: Callable[[], Iterable[np.ndarray | jax.Array]] | None = None
    by_rows: bool = True

    @property
    def size_in_bytes(self) -> float:
        return 8.0 * self.shape[0] * self.shape[1]

    def parts(self) -> Iterable[np.ndarray | jax.Array]:
        """J some rows at a time, or J^T where it is not ``by_rows``."""
        if self.blocks is not None:
            return self.blocks()
        return rows_in_parts(self.form(), _ROWS)


def rows_in_parts(matrix: _Array, rows: int) -> Iterator[_Array]:
    """Yield ``rows`` rows of the matrix at a time, on the device where the matrix is."""
    return (matrix[start : start + rows] for start in range(0, len(matrix), rows))


def gram_error(norm: float, error: Error) -> Error:
    """A bound on the error of J J^T in the 2-norm, from the error of J.

    ``norm`` is about ||J J^T||_2, and ``error`` bounds the 2-norm of the error E of J. Then
    ||(J + E)(J + E)^T - J J^T|| <= (2 ||J|| + ||E||) ||E|| with ||J|| = norm^{1/2}.
    """
    return error.to((2 * abs(float(norm)) ** 0.5 + error.value) * error.value)


def compact(factor: np.ndarray) -> np.ndarray:
    """A factor C with C C^T = F F^T and no more columns than rows: F itself if it has no more.

    Otherwise it is the transposed R of F^T = Q R.
    """
    rows, columns = factor.shape
    if columns <= rows:
        return factor
    return triangular_factor(factor.T).T


def compaction_error(shape: tuple[int, ...], dtype: np.dtype, norm: float) -> float:
    """A bound on the error that :func:`compact` makes, for F of this shape and 2-norm.

    It is the backward error of LAPACK's QR, with a constant that was measured.
    """
    rows, columns = shape
    return 0.0 if columns <= rows else spectral_error(columns, dtype) * norm
