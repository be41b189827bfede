"""Operators that arrange entries anew, and those that make arrays from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _axes(x: jax.Array, dims: int | Sequence[int]) -> tuple[int, ...]:
    """The axes counted from the front; none where x is a number."""
    axes = (dims,) if isinstance(dims, int) else dims
    return tuple(dim % x.ndim for dim in axes) if x.ndim else ()


def _expand(x: jax.Array, sizes: Sequence[int], **_: Any) -> jax.Array:
    new = len(sizes) - x.ndim
    shape = [x.shape[i - new] if size == -1 else size for i, size in enumerate(sizes)]
    return jnp.broadcast_to(x, shape)


def _permute(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.transpose(x, _axes(x, dims))


def _squeeze(x: jax.Array, dims: int | Sequence[int]) -> jax.Array:
    return jnp.squeeze(x, tuple(axis for axis in _axes(x, dims) if x.shape[axis] == 1))


def _unsqueeze(x: jax.Array, dim: int) -> jax.Array:
    return jnp.expand_dims(x, dim)


def _within(place: int, size: int) -> int:
    """A place from 0 to ``size``: counted from the end if negative, and cut off at both ends."""
    return min(max(place + size if place < 0 else place, 0), size)


def _slice(
    x: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    dim, size = dim % x.ndim, x.shape[dim]
    first = _within(0 if start is None else start, size)
    last = _within(size if end is None else end, size)
    return jax.lax.slice_in_dim(x, first, max(first, last), step, dim)


def _select(x: jax.Array, dim: int, index: int) -> jax.Array:
    return jax.lax.index_in_dim(x, index, dim % x.ndim, keepdims=False)


def _split_with_sizes(x: jax.Array, sizes: Sequence[int], dim: int = 0) -> list[jax.Array]:
    ends = [int(end) for end in np.cumsum(sizes)]
    return [_slice(x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _cat(arrays: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    """An empty vector among arrays of more axes is left out."""
    full = [a for a in arrays if a.shape != (0,)] or list(arrays)
    return jnp.concatenate(full, dim)


def _repeat(x: jax.Array, times: Sequence[int]) -> jax.Array:
    return jnp.tile(x, times)


def _pairs(x: jax.Array, pad: Sequence[int]) -> list[tuple[int, int]]:
    """The numbers before and after each axis; PyTorch lists them from the last axis on."""
    last = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (x.ndim - len(last)) + last[::-1]


def _constant_pad(x: jax.Array, pad: Sequence[int], value: Any = 0.0) -> jax.Array:
    borders = [(low, high, 0) for low, high in _pairs(x, pad)]
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), borders)


def _diagonal(x: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    return jnp.diagonal(x, offset, dim1, dim2)


TABLE: dict[str, Callable[..., Any]] = {
    "arange": lambda *ends, **_: jnp.arange(*ends),
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "diagonal": _diagonal,
    "empty": lambda sizes, **_: jnp.zeros(sizes),
    "expand": _expand,
    "flip": lambda x, dims: jnp.flip(x, _axes(x, dims)),
    "full": lambda sizes, value, **_: jnp.full(sizes, value),
    "full_like": lambda x, value, **_: jnp.full(x.shape, value),
    "permute": _permute,
    "repeat": _repeat,
    "scalar_tensor": lambda value, **_: jnp.asarray(value),
    "select": _select,
    "slice": _slice,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "view": lambda x, shape: jnp.reshape(x, shape),
}
