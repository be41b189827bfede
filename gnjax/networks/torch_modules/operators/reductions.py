"""Sums, means, extremes and orders along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.torch_modules.operators.elementwise import absolute

Axes = int | Sequence[int] | None


def _axis(dims: Axes) -> int | tuple[int, ...] | None:
    """PyTorch's axes in NumPy's form: no axes, or an empty list of them, are all axes (None)."""
    if dims is None or isinstance(dims, int):
        return dims
    return tuple(dims) or None


def _by_axes(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A reduction of ``jax.numpy``, such as ``jnp.sum``, with PyTorch's names of the arguments.

    Without axes it is over all entries, and an index that among the entries of the flat array.
    """

    def reduced(x: jax.Array, dim: Axes = None, keepdim: bool = False) -> jax.Array:
        return function(x, axis=_axis(dim), keepdims=keepdim)

    return reduced


def _variance(
    x: jax.Array, dim: Axes = None, keepdim: bool = False, *, correction: float | None = None
) -> jax.Array:
    """sum_i (x_i - mean)^2 / (number of x_i - correction) over the axes; None is correction 1."""
    ddof = 1 if correction is None else correction
    return jnp.var(x, _axis(dim), ddof=ddof, keepdims=keepdim)  # type: ignore[arg-type]


def _root(x: jax.Array, power: float) -> jax.Array:
    """x^power, with the derivative 0 at 0."""
    zero = x == 0  # replaced inside as well, as 0 times an infinite derivative is NaN
    return jnp.where(zero, 0.0, jnp.where(zero, 1.0, x) ** power)


def _norm(
    x: jax.Array, ord: float | None = 2, dim: Axes = None, keepdim: bool = False, **_: Any
) -> jax.Array:
    """(sum |x|^ord)^(1/ord) over the axes ``dim``; its derivative is 0 at a vector of zeros.

    ord = inf and -inf are the largest and the smallest |x|, and 0 counts entries that are not zero.
    """
    axis, ord = _axis(dim), 2 if ord is None else ord
    if ord == 2:
        return _root(jnp.sum(jnp.square(x), axis, keepdims=keepdim), 0.5)
    if ord == 0:
        return jnp.sum(x != 0, axis, keepdims=keepdim)
    sizes = absolute(x)
    if math.isinf(ord):
        return (jnp.max if ord > 0 else jnp.min)(sizes, axis, keepdims=keepdim)
    if ord == 1:
        return jnp.sum(sizes, axis, keepdims=keepdim)
    powers = jnp.power(sizes, ord) if ord < 0 else _root(sizes, ord)
    return _root(jnp.sum(powers, axis, keepdims=keepdim), 1 / ord)


def extreme(
    find: Callable[..., jax.Array], x: jax.Array, dim: int, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    """The largest or smallest entries along an axis, for ``find`` jnp.argmax or jnp.argmin.

    With their indices. Of equal entries ``find`` gives the first, which alone has the derivative.
    """
    indices = find(x, axis=dim, keepdims=True)
    values = jnp.take_along_axis(x, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _sort(
    x: jax.Array, dim: int = -1, descending: bool = False, **names: Any
) -> tuple[jax.Array, jax.Array]:
    """The entries sorted along an axis, and the index that each had before; stable in any case."""
    indices = jnp.argsort(x, dim, descending=descending)
    return jnp.take_along_axis(x, indices, dim), indices


def _topk(
    x: jax.Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[jax.Array, jax.Array]:
    """The k largest or smallest entries along an axis, in order, and their indices."""
    indices = jnp.argsort(x, dim, descending=largest)
    indices = jax.lax.slice_in_dim(indices, 0, k, axis=dim % x.ndim)
    return jnp.take_along_axis(x, indices, dim), indices


TABLE: dict[str, Callable[..., Any]] = {
    "_log_softmax": lambda x, dim, *_: jax.nn.log_softmax(x, dim),
    "_softmax": lambda x, dim, *_: jax.nn.softmax(x, dim),
    "amax": _by_axes(jnp.max),
    "amin": _by_axes(jnp.min),
    "any": _by_axes(jnp.any),
    "argmax": _by_axes(jnp.argmax),
    "argmin": _by_axes(jnp.argmin),
    "cumsum": jnp.cumsum,
    "linalg_vector_norm": _norm,
    "max": lambda x, *args: extreme(jnp.argmax, x, *args) if args else jnp.max(x),
    "mean": _by_axes(jnp.mean),
    "min": lambda x, *args: extreme(jnp.argmin, x, *args) if args else jnp.min(x),
    "prod": _by_axes(jnp.prod),
    "sort": _sort,
    "std": lambda x, *args, **names: _root(_variance(x, *args, **names), 0.5),
    "sum": _by_axes(jnp.sum),
    "topk": _topk,
    "var": _variance,
}
