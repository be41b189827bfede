"""Operators that arrange entries anew, and those that make arrays from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _axes(x: jax.Array, dims: int | Sequence[int]) -> tuple[int, ...]:
    """The axes ``dims`` of x counted from the front; none where x is a single number."""
    axes = (dims,) if isinstance(dims, int) else dims
    return tuple(dim % x.ndim for dim in axes) if x.ndim else ()


def _expand(x: jax.Array, sizes: Sequence[int], **_: Any) -> jax.Array:
    """x broadcast to the shape ``sizes``, in which -1 stands for the length of that axis of x."""
    new_axes = len(sizes) - x.ndim  # in front of those of x
    shape = [x.shape[i - new_axes] if size == -1 else size for i, size in enumerate(sizes)]
    return jnp.broadcast_to(x, shape)


def _squeeze(x: jax.Array, dims: int | Sequence[int]) -> jax.Array:
    """x without those of the axes ``dims`` that have the length 1; longer ones stay."""
    return jnp.squeeze(x, tuple(axis for axis in _axes(x, dims) if x.shape[axis] == 1))


def _slice(
    x: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    """x[start:end:step] along the axis ``dim``; bounds may be negative or lie outside of it."""
    first, stop, _ = slice(start, end).indices(x.shape[dim])
    return jax.lax.slice_in_dim(x, first, max(first, stop), step, dim % x.ndim)


def _split_with_sizes(x: jax.Array, sizes: Sequence[int], dim: int = 0) -> list[jax.Array]:
    """x cut along an axis into consecutive arrays of these lengths."""
    ends = [int(end) for end in np.cumsum(sizes)]
    return [_slice(x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _cat(arrays: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    """The arrays joined along an axis; an empty vector among them is left out, as in PyTorch."""
    not_empty = [a for a in arrays if a.shape != (0,)] or list(arrays)
    return jnp.concatenate(not_empty, dim)


def _constant_pad(x: jax.Array, pad: Sequence[int], value: Any = 0.0) -> jax.Array:
    """x with a value added before and after its axes; negative numbers cut entries off.

    ``pad`` has two numbers for each padded axis, beginning with the last axis of x.
    """
    from_last_axis = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)]
    borders = [(0, 0, 0)] * (x.ndim - len(from_last_axis)) + from_last_axis[::-1]
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), borders)


TABLE: dict[str, Callable[..., Any]] = {
    "arange": lambda *ends, **_: jnp.arange(*ends),
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    "empty": lambda sizes, **_: jnp.zeros(sizes),
    "expand": _expand,
    "flip": lambda x, dims: jnp.flip(x, _axes(x, dims)),
    "full": lambda sizes, value, **_: jnp.full(sizes, value),
    "full_like": lambda x, value, **_: jnp.full(x.shape, value),
    "permute": lambda x, dims: jnp.transpose(x, _axes(x, dims)),
    "repeat": jnp.tile,
    "scalar_tensor": lambda value, **_: jnp.asarray(value),
    "select": lambda x, dim, index: jax.lax.index_in_dim(x, index, dim % x.ndim, keepdims=False),
    "slice": _slice,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "unsqueeze": jnp.expand_dims,
    "view": jnp.reshape,
}
