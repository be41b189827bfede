"""The Cholesky factor L of a matrix near A: solving with it, on the host or on a device.

LAPACK works in host memory. Where J is on an accelerator L stays there too, and only rows of as
many vectors as are multiplied together go back and forth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from gnjax.numerics.host import filled_rows, on_host
from gnjax.numerics.precision import x64
from gnjax.spectra.krylov.orthogonal import random_rows

_STEPS = 4  # of inverse iteration for the smallest eigenvalue of L L^T
_BLOCK = 4  # vectors of it


class Triangle(Protocol):
    """L, lower triangular. Rows (b, m) are in host memory."""

    @property
    def size(self) -> int: ...

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        """L^{-1} or, with ``transpose``, L^{-T} on rows."""
        ...

    def times(self, rows: np.ndarray) -> np.ndarray:
        """L^T on rows."""
        ...

    def conditioning(self) -> float:
        """About the condition number of L in the 1-norm."""
        ...


@dataclass(frozen=True)
class HostTriangle:
    """L in host memory."""

    matrix: np.ndarray

    @property
    def size(self) -> int:
        return len(self.matrix)

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        return scipy.linalg.solve_triangular(
            self.matrix, rows.T, lower=True, trans=int(transpose), check_finite=False
        ).T

    def times(self, rows: np.ndarray) -> np.ndarray:
        return rows @ self.matrix

    def conditioning(self) -> float:
        """LAPACK's estimate of ||L||_1 ||L^{-1}||_1."""
        reciprocal, _ = scipy.linalg.lapack.dtrcon(self.matrix, uplo="L")
        return 1 / max(float(reciprocal), np.finfo(float).tiny)


@dataclass(frozen=True)
class DeviceTriangle:
    """L on the device where J is."""

    matrix: jax.Array

    @property
    def size(self) -> int:
        return len(self.matrix)

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        with x64():
            return on_host(_solved(self.matrix, filled_rows(rows), transpose))[: len(rows)]

    def times(self, rows: np.ndarray) -> np.ndarray:
        with x64():
            return on_host(_times(filled_rows(rows), self.matrix))[: len(rows)]

    def conditioning(self) -> float:
        """||L||_1 times an estimate of ||L^{-1}||_1 by products with L^{-1} and L^{-T} alone."""
        inverse = scipy.sparse.linalg.LinearOperator(
            (self.size, self.size),
            matvec=lambda v: self.solved(v.reshape(1, -1), transpose=False)[0],
            rmatvec=lambda v: self.solved(v.reshape(1, -1), transpose=True)[0],
            dtype=np.float64,
        )
        with x64(), np.errstate(over="ignore", invalid="ignore"):
            norm = float(jnp.abs(self.matrix).sum(axis=0).max())
            estimate = norm * float(scipy.sparse.linalg.onenormest(inverse))
        return estimate if np.isfinite(estimate) else 1 / np.finfo(float).tiny


@partial(jax.jit, static_argnums=2)
def _solved(triangle: jax.Array, rows: jax.Array, transpose: bool) -> jax.Array:
    """L^{-1} or, with ``transpose``, L^{-T} on rows, for the lower triangle L."""
    solve = jax.scipy.linalg.solve_triangular
    return solve(triangle, rows.T, lower=True, trans=int(transpose)).T


@jax.jit
def _times(rows: jax.Array, triangle: jax.Array) -> jax.Array:
    """L^T on rows, which is the product of the rows with L."""
    return jnp.matmul(rows, triangle, precision="highest")


def cholesky(matrix: np.ndarray | jax.Array) -> Triangle | None:
    """L with L L^T = ``matrix``, stored where the matrix is; None if it is not positive definite.

    A matrix of NumPy may be written over. Its transpose, which is the same matrix, is in the memory
    layout that LAPACK needs to do so.
    """
    if isinstance(matrix, np.ndarray):
        try:
            lower = scipy.linalg.cholesky(
                matrix.T, lower=True, check_finite=False, overwrite_a=True
            )
        except np.linalg.LinAlgError:
            return None
        return HostTriangle(lower)
    with x64():
        triangle = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        finite = bool(jnp.isfinite(jnp.diagonal(triangle)).all())  # JAX returns NaN where it fails
    return DeviceTriangle(triangle) if finite else None


def shifted(matrix: np.ndarray | jax.Array, shift: float) -> np.ndarray | jax.Array:
    """A copy of the matrix in float64 with ``shift`` added to its diagonal."""
    if isinstance(matrix, np.ndarray):
        moved = matrix.astype(np.float64)
        np.fill_diagonal(moved, np.diagonal(moved) + shift)
        return moved
    with x64():
        diagonal = jnp.arange(len(matrix))
        return matrix.astype(np.float64).at[diagonal, diagonal].add(shift)


def largest_on_diagonal(matrix: np.ndarray | jax.Array) -> float:
    """The largest absolute value on the diagonal."""
    with x64():
        return float(np.abs(on_host(matrix.diagonal())).max())


def least_of(triangle: Triangle) -> float:
    """About the smallest eigenvalue of L L^T, by inverse iteration with a few vectors.

    For orthonormal rows Q near its eigenvectors it is 1 / ||L^{-1} Q^T||_2^2. It is 0 where L is
    singular to working precision.
    """
    rows = random_rows(triangle.size, _BLOCK, 0)
    for _ in range(_STEPS):
        images = triangle.solved(triangle.solved(rows, transpose=False), transpose=True)
        if not np.isfinite(images).all():
            return 0.0
        rows = np.linalg.qr(images.T)[0].T
    norm = float(np.linalg.norm(triangle.solved(rows, transpose=False), 2))
    return 1 / norm / norm if np.isfinite(norm) else 0.0
