"""Operators that arrange entries anew, and those that make arrays from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _axes(x: jax.Array, dims: int | Sequence[int]) -> tuple[int, ...]:
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(dim % x.ndim for dim in given) if x.ndim else ()


def _expand(x: jax.Array, sizes: Sequence[int], **_: Any) -> jax.Array:
    new = len(sizes) - x.ndim
    shape = [x.shape[i - new] if size == -1 else size for i, size in enumerate(sizes)]
    return jnp.broadcast_to(x, shape)


def _permute(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.transpose(x, _axes(x, dims))


def _transpose(x: jax.Array, first: int, second: int) -> jax.Array:
    return jnp.swapaxes(x, first, second) if x.ndim else x


def _squeeze(x: jax.Array, dims: int | Sequence[int]) -> jax.Array:
    return jnp.squeeze(x, tuple(axis for axis in _axes(x, dims) if x.shape[axis] == 1))


def _unsqueeze(x: jax.Array, dim: int) -> jax.Array:
    return jnp.expand_dims(x, dim)


def _within(place: int, size: int) -> int:
    """A place counted from the front, moved to the nearest that there is."""
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


def _split(x: jax.Array, size: int, dim: int = 0) -> list[jax.Array]:
    length = x.shape[dim]
    return [_slice(x, dim, start, start + size) for start in range(0, length, size)]


def _unbind(x: jax.Array, dim: int = 0) -> list[jax.Array]:
    return [_select(x, dim, index) for index in range(x.shape[dim])]


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


def _pad(mode: str) -> Callable[[jax.Array, Sequence[int]], jax.Array]:
    return lambda x, pad: jnp.pad(x, _pairs(x, pad), mode=mode)


def _roll(x: jax.Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> jax.Array:
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


def _pixel_shuffle(x: jax.Array, factor: int) -> jax.Array:
    *batch, channels, height, width = x.shape
    parts = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    n = len(batch)
    ordered = parts.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return ordered.reshape(*batch, channels // factor**2, height * factor, width * factor)


def _tril(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.tril(x, diagonal)


def _triu(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.triu(x, diagonal)


def _diagonal(x: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    return jnp.diagonal(x, offset, dim1, dim2)


def _like(value: int) -> Callable[..., jax.Array]:
    return lambda x, **_: jnp.full(x.shape, value, x.dtype)


TABLE: dict[str, Callable[..., Any]] = {
    "_reshape_copy": lambda x, shape: jnp.reshape(x, shape),
    "_unsafe_view": lambda x, shape: jnp.reshape(x, shape),
    "arange": lambda *ends, **_: jnp.arange(*ends),
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "diagonal": _diagonal,
    "empty": lambda sizes, **_: jnp.zeros(sizes),
    "expand": _expand,
    "flip": lambda x, dims: jnp.flip(x, _axes(x, dims)),
    "full": lambda sizes, value, **_: jnp.full(sizes, value),
    "full_like": lambda x, value, **_: jnp.full(x.shape, value),
    "ones": lambda sizes, **_: jnp.ones(sizes),
    "ones_like": _like(1),
    "permute": _permute,
    "pixel_shuffle": _pixel_shuffle,
    "reflection_pad1d": _pad("reflect"),
    "reflection_pad2d": _pad("reflect"),
    "reflection_pad3d": _pad("reflect"),
    "repeat": _repeat,
    "replication_pad1d": _pad("edge"),
    "replication_pad2d": _pad("edge"),
    "replication_pad3d": _pad("edge"),
    "reshape": lambda x, shape: jnp.reshape(x, shape),
    "roll": _roll,
    "scalar_tensor": lambda value, **_: jnp.asarray(value),
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "stack": lambda arrays, dim=0: jnp.stack(arrays, dim),
    "t": lambda x: x.T,
    "transpose": _transpose,
    "tril": _tril,
    "triu": _triu,
    "unbind": _unbind,
    "unsqueeze": _unsqueeze,
    "view": lambda x, shape: jnp.reshape(x, shape),
    "zeros": lambda sizes, **_: jnp.zeros(sizes),
    "zeros_like": _like(0),
}
