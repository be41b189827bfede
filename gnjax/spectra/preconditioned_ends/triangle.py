"""The Cholesky factor L of a matrix near A: solving with it, on the host or on a device.

Where J is on an accelerator L stays there too, and only the rows that are multiplied go back and
forth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from gnjax.numerics.host import filled_rows, on_host, product_on_host
from gnjax.numerics.precision import x64
from gnjax.spectra.krylov.orthogonal import random_rows

_STEPS = 4  # of inverse iteration for the smallest eigenvalue of L L^T
_BLOCK = 4  # vectors of it


@dataclass(frozen=True)
class Triangle:
    """L, lower triangular, in host memory or on the device where J is.

    The rows (b, m) that its methods take and return are in host memory.
    """

    matrix: np.ndarray | jax.Array

    @property
    def size(self) -> int:
        return len(self.matrix)

    def solved(self, rows: np.ndarray, *, transpose: bool) -> np.ndarray:
        """L^{-1} or, with ``transpose``, L^{-T} on rows."""
        if isinstance(self.matrix, np.ndarray):
            return scipy.linalg.solve_triangular(
                self.matrix, rows.T, lower=True, trans=int(transpose), check_finite=False
            ).T
        with x64():
            return on_host(_solved(self.matrix, filled_rows(rows), transpose))[: len(rows)]

    def times(self, rows: np.ndarray) -> np.ndarray:
        """L^T on rows, which is the product of the rows with L."""
        return product_on_host(rows, self.matrix)

    def conditioning(self) -> float:
        """About ||L||_1 ||L^{-1}||_1: LAPACK's estimate, or by products with L^{-1} and L^{-T}."""
        if isinstance(self.matrix, np.ndarray):
            reciprocal, _ = scipy.linalg.lapack.dtrcon(self.matrix, uplo="L")
            return 1 / max(float(reciprocal), np.finfo(float).tiny)
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


def cholesky(matrix: np.ndarray | jax.Array) -> Triangle | None:
    """L with L L^T = ``matrix``, stored where the matrix is; None if it is not positive definite.

    A matrix of NumPy may be written over.
    """
    if isinstance(matrix, np.ndarray):
        try:
            lower = scipy.linalg.cholesky(
                matrix.T, lower=True, check_finite=False, overwrite_a=True
            )
        except np.linalg.LinAlgError:
            return None
        return Triangle(lower)
    with x64():
        triangle = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        finite = bool(jnp.isfinite(jnp.diagonal(triangle)).all())  # JAX returns NaN where it fails
    return Triangle(triangle) if finite else None


def shifted(matrix: np.ndarray | jax.Array, shift: float) -> np.ndarray | jax.Array:
    """A copy of the matrix in float64 with ``shift`` added to its diagonal."""
    if isinstance(matrix, np.ndarray):
        moved = matrix.astype(np.float64)
        np.fill_diagonal(moved, np.diagonal(moved) + shift)
        return moved
    with x64():
        diagonal = jnp.arange(len(matrix))
        return matrix.astype(np.float64).at[diagonal, diagonal].add(shift)


def least_of(triangle: Triangle) -> float:
    """About the smallest eigenvalue of L L^T, by inverse iteration; 0 where L is singular."""
    rows = random_rows(triangle.size, _BLOCK, 0)
    for _ in range(_STEPS):
        images = triangle.solved(triangle.solved(rows, transpose=False), transpose=True)
        if not np.isfinite(images).all():
            return 0.0
        rows = np.linalg.qr(images.T)[0].T
    norm = float(np.linalg.norm(triangle.solved(rows, transpose=False), 2))
    return 1 / norm / norm if np.isfinite(norm) else 0.0
