"""Vectors on a staircase of basis vectors: its rows, of different lengths, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.papers.kronecker.operator import SumOfKroneckers

_Rows = TypeVar("_Rows", jax.Array, np.ndarray)

TermGroups = tuple[tuple[int, int], ...]
"""(rows, columns) of the runs of equal length in a staircase, top to bottom."""


@partial(jax.jit, static_argnames=("groups",))
def packed_product(
    op: SumOfKroneckers, groups: TermGroups, rows: jax.Array | np.ndarray
) -> jax.Array:
    """G = sum_l A_l (x) B_l on packed vectors, (b, n) to (b, n), filled up with zeros to (k, d)."""
    d = op.rights.shape[-1]
    parts = parts_of(groups, jnp.asarray(rows))
    padded = [jnp.pad(part, ((0, 0), (0, 0), (0, d - part.shape[-1]))) for part in parts]
    full = jnp.concatenate(padded, axis=1)  # (b, k', d')
    k = op.lefts.shape[-1]
    full = jnp.pad(full, ((0, 0), (0, k - full.shape[1]), (0, 0)))
    image = op.mv(full.reshape(len(rows), -1).T).T.reshape(len(rows), k, d)
    parts_of_image, row = [], 0
    for count, columns in groups:
        parts_of_image.append(image[:, row : row + count, :columns])
        row += count
    return packed(parts_of_image)


def packed(parts: Iterable[jax.Array]) -> jax.Array:
    """The vectors (b, n) of the matrices (b, rows, columns) of every group."""
    return jnp.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def parts_of(groups: TermGroups, rows: _Rows) -> list[_Rows]:
    """The matrices (b, rows, columns) of every group, of which packed vectors (b, n) consist."""
    parts: list[_Rows] = []
    offset = 0
    for count, columns in groups:
        part = rows[:, offset : offset + count * columns]
        parts.append(part.reshape(-1, count, columns))
        offset += count * columns
    return parts
