"""The matrix of a symmetric operator, or its diagonal, from its products with unit vectors."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.memory.free import check_matrix_room
from gnjax.numerics.validation import check_known
from gnjax.operators.protocol import Operator

_COLUMNS = 64  # that are multiplied at once


def symmetric_columns(op: Operator) -> jax.Array:
    """(M + M^T) / 2 for the matrix M of the products of A with unit vectors, some at a time."""
    check_known("the matrix of an operator", op)
    size = op.shape[0]
    check_matrix_room("the matrix of this operator", size, size, op.dtype.itemsize)
    starts = range(0, size, _COLUMNS)
    units = (_units(size, i, min(_COLUMNS, size - i), op.dtype) for i in starts)
    return _symmetric([op.mv(unit) for unit in units])


def diagonal_by_products(op: Operator) -> np.ndarray:
    """The diagonal (n,) from products with unit vectors, some at a time: no matrix is in memory."""
    size = op.shape[0]
    diagonal = np.empty(size)
    for start in range(0, size, _COLUMNS):
        count = min(_COLUMNS, size - start)
        columns = op.mv(_units(size, start, count, op.dtype))
        diagonal[start : start + count] = np.asarray(_on_diagonal(columns, start, count))
    return diagonal


@partial(jax.jit, static_argnums=2)
def _on_diagonal(columns: jax.Array, start: int, count: int) -> jax.Array:
    """The diagonal entries in ``count`` columns of a matrix, from column ``start`` on."""
    return jnp.diagonal(jax.lax.dynamic_slice_in_dim(columns, start, count))


@partial(jax.jit, static_argnums=(0, 2, 3))
def _units(size: int, start: int, count: int, dtype: jnp.dtype) -> jax.Array:
    """``count`` columns of the identity, from column ``start`` on."""
    return (jnp.arange(size)[:, None] == start + jnp.arange(count)[None]).astype(dtype)


@jax.jit
def _symmetric(column_blocks: list[jax.Array]) -> jax.Array:
    """(M + M^T) / 2 of a matrix M given by some columns at a time."""
    matrix = jnp.concatenate(column_blocks, axis=1)
    return (matrix + matrix.T) / 2
