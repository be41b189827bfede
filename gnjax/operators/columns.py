"""The matrix of a symmetric operator from its products with unit vectors."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from gnjax.operators.protocol import Operator

_COLUMNS = 64  # that are multiplied at once


def symmetric_columns(op: Operator) -> jax.Array:
    """The matrix from products with unit vectors, some at a time, and its symmetric part."""
    size = op.shape[0]
    starts = range(0, size, _COLUMNS)
    units = (_units(size, i, min(_COLUMNS, size - i), op.dtype) for i in starts)
    return _symmetric([op.mv(unit) for unit in units])


@partial(jax.jit, static_argnums=(0, 2, 3))
def _units(size: int, start: int, count: int, dtype: jnp.dtype) -> jax.Array:
    """``count`` columns of the identity, from column ``start`` on."""
    return (jnp.arange(size)[:, None] == start + jnp.arange(count)[None]).astype(dtype)


@jax.jit
def _symmetric(parts: list[jax.Array]) -> jax.Array:
    """(M + M^T) / 2 of a matrix M given by some columns at a time."""
    matrix = jnp.concatenate(parts, axis=1)
    return (matrix + matrix.T) / 2
