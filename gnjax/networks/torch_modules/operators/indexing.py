"""Look up and write entries by indices; an index that is out of bounds gives NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.refusals import Refused


def _embedding(
    weight: jax.Array,
    tokens: jax.Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """The rows of ``weight`` (V, d) at the indices ``tokens`` (..), as an array (.., d).

    As in PyTorch, the row of index ``padding_idx`` has no derivative; -1 stands for no such row.
    """
    if scale_grad_by_freq:
        msg = (
            "an embedding has scale_grad_by_freq=True, which divides the derivative of a row by "
            "how often its token comes, so that it is that of no function; set it to False"
        )
        raise Refused(msg)
    rows = jnp.take(weight, tokens, axis=0, mode="fill")
    if padding_idx < 0:
        return rows
    padding = (tokens == padding_idx)[..., None]
    return jnp.where(padding, jax.lax.stop_gradient(rows), rows)


def _at(indices: Sequence[jax.Array | None]) -> tuple[Any, ...]:
    """PyTorch's indices, where None stands for a whole axis, as NumPy takes them; no masks."""
    if any(index is not None and index.dtype == bool for index in indices):
        msg = (
            "the module picks entries by a boolean mask, so that the shape of the result depends "
            "on numbers; use torch.where in its place"
        )
        raise Refused(msg)
    return tuple(slice(None) if index is None else index for index in indices)


def _index_put(
    x: jax.Array,
    indices: Sequence[jax.Array | None],
    values: jax.Array,
    accumulate: bool = False,
) -> jax.Array:
    """x with the entries x[indices] set to ``values``, or with ``accumulate`` increased by them."""
    entries = x.at[_at(indices)]
    return entries.add(values) if accumulate else entries.set(values)


def _gather(x: jax.Array, dim: int, index: jax.Array, **_: Any) -> jax.Array:
    """The entries of x whose position along ``dim`` is ``index``, in the shape of ``index``."""
    return x.at[_grid(x, dim, index)].get(mode="fill") if x.ndim else x


def _grid(x: jax.Array, dim: int, index: jax.Array) -> tuple[jax.Array, ...]:
    """The indices of every axis of x for PyTorch's gather and scatter, in NumPy's form.

    The entry picked at a position (i, j, ..) of ``index`` is that of x at (i, j, ..) with the
    coordinate of the axis ``dim`` replaced by index[i, j, ..].
    """
    grid = jnp.meshgrid(*map(jnp.arange, index.shape), indexing="ij")
    grid[dim % x.ndim] = index
    return tuple(grid)


def _scatter(
    x: jax.Array, dim: int, index: jax.Array, source: Any, reduce: str = "set"
) -> jax.Array:
    """x with the entries whose position along ``dim`` is ``index`` set to ``source``.

    With ``reduce`` "add" or "multiply" they are increased by or multiplied with the source.
    """
    return getattr(x.at[_grid(x, dim, index)], reduce)(_cut(source, index))


def _cut(source: Any, index: jax.Array) -> Any:
    """The first entries of ``source``, as many as ``index`` has: PyTorch uses no others."""
    if not hasattr(source, "shape") or not source.ndim:
        return source
    return source[tuple(slice(0, size) for size in index.shape)]


def _slice_scatter(
    x: jax.Array,
    source: jax.Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> jax.Array:
    """x with the entries x[start:end:step] along the axis ``dim`` set to ``source``."""
    entries = [slice(None)] * x.ndim
    entries[dim] = slice(start, end, step)
    return x.at[tuple(entries)].set(source)


TABLE: dict[str, Callable[..., Any]] = {
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape),
    "embedding": _embedding,
    "gather": _gather,
    "index": lambda x, indices: x.at[_at(indices)].get(mode="fill"),
    "index_put": _index_put,
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim, mode="fill"),
    "scatter": _scatter,
    "scatter_add": lambda x, dim, index, source: _scatter(x, dim, index, source, "add"),
    "slice_scatter": _slice_scatter,
}
