"""Maxima and means over windows, of one, two or three axes behind the channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.torch_modules.operators.reductions import extreme

Pairs = list[tuple[int, int]]


def _for_every_axis(
    numbers: int | Sequence[int] | None, default: Sequence[int], count: int
) -> list[int]:
    """A number for each of ``count`` axes; one number stands for all of them."""
    values = [numbers] if isinstance(numbers, int) else list(numbers or ()) or list(default)
    return values * count if len(values) == 1 else values


def _borders(
    sizes: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    gaps: Sequence[int],
    ceil_mode: bool,
) -> Pairs:
    """The padding on both sides of every axis; ceil_mode lets the last window stick out."""
    borders = []
    for size, window, stride, pad, gap in zip(sizes, windows, strides, pads, gaps, strict=True):
        room, more = size + 2 * pad - gap * (window - 1) - 1, 0
        if ceil_mode and room % stride:
            steps = -(-room // stride)
            if steps * stride < size + pad:  # a window that starts in the padding is left out
                more = steps * stride - room
        borders.append((pad, pad + more))
    return borders


def _max_pool(count: int) -> Callable[..., Any]:
    def pooled(
        x: jax.Array,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[jax.Array, None]:
        windows = _for_every_axis(kernel_size, (), count)
        strides = _for_every_axis(stride, windows, count)
        pads = _for_every_axis(padding, (0,), count)
        gaps = _for_every_axis(dilation, (1,), count)
        borders = _borders(x.shape[-count:], windows, strides, pads, gaps, ceil_mode)
        lead = x.ndim - count
        lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        empty = np.asarray(lowest, x.dtype)
        if any(gap > 1 for gap in gaps):
            edges = [*[(0, 0, 0)] * lead, *[(low, high, 0) for low, high in borders]]
            return _dilated(jax.lax.pad(x, empty, edges), windows, strides, gaps), None
        ones, none = [1] * lead, [(0, 0)] * lead
        maxima = jax.lax.reduce_window(
            x, empty, jax.lax.max, (*ones, *windows), (*ones, *strides), [*none, *borders]
        )
        return maxima, None

    return pooled


def _dilated(
    x: jax.Array, windows: Sequence[int], strides: Sequence[int], gaps: Sequence[int]
) -> jax.Array:
    """Maxima over windows with gaps, by shifted copies: JAX has no derivative of its own."""
    parts = []
    for offsets in itertools.product(*map(range, windows)):
        part = x
        for axis, (offset, window, stride, gap) in enumerate(
            zip(offsets, windows, strides, gaps, strict=True), start=x.ndim - len(windows)
        ):
            last = x.shape[axis] - gap * (window - 1 - offset)
            part = jax.lax.slice_in_dim(part, gap * offset, last, stride, axis)
        parts.append(part)
    values = jnp.stack(parts)
    return jnp.take_along_axis(values, jnp.argmax(values, 0, keepdims=True), 0)[0]


def _sums(x: jax.Array, windows: Sequence[int], strides: Sequence[int], borders: Pairs) -> Any:
    lead = x.ndim - len(windows)
    ones, none = [1] * lead, [(0, 0)] * lead
    zero = np.zeros((), x.dtype)
    return jax.lax.reduce_window(
        x, zero, jax.lax.add, (*ones, *windows), (*ones, *strides), [*none, *borders]
    )


def _avg_pool(count: int) -> Callable[..., Any]:
    def pooled(
        x: jax.Array,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> jax.Array:
        windows = _for_every_axis(kernel_size, (), count)
        strides = _for_every_axis(stride, windows, count)
        pads = _for_every_axis(padding, (0,), count)
        space = x.shape[-count:]
        borders = _borders(space, windows, strides, pads, [1] * count, ceil_mode)
        total = _sums(x, windows, strides, borders)
        if divisor_override:
            return total / divisor_override
        inside = pads if count_include_pad else [0] * count
        counts_by_axis = [
            _counts(size, window, stride, border, pad)
            for size, window, stride, border, pad in zip(
                space, windows, strides, borders, inside, strict=True
            )
        ]
        return total / _outer(counts_by_axis).astype(x.dtype)

    return pooled


def _counts(size: int, window: int, stride: int, border: tuple[int, int], pad: int) -> np.ndarray:
    """How many places of one axis a window counts: those of the input, and ``pad`` beside them."""
    low, high = border
    starts = np.arange(0, size + low + high - window + 1, stride) - low
    return np.minimum(starts + window, size + pad) - np.maximum(starts, -pad)


def _outer(vectors: Sequence[np.ndarray]) -> np.ndarray:
    product = np.ones((), int)
    for counts in vectors:
        product = np.multiply.outer(product, counts)
    return product


def _adaptive_avg_pool(x: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """Means over as many windows as the output has places, one axis after the other."""
    for axis, size in enumerate(sizes, start=x.ndim - len(sizes)):
        length = x.shape[axis]
        if size == 1:
            x = jnp.mean(x, axis, keepdims=True)
            continue
        means = np.zeros((length, size))
        for place in range(size):
            first, last = place * length // size, math.ceil((place + 1) * length / size)
            means[first:last, place] = 1 / (last - first)
        product = jnp.tensordot(x, jnp.asarray(means, x.dtype), ((axis,), (0,)))
        x = jnp.moveaxis(product, -1, axis)
    return x


def _adaptive_max_pool(x: jax.Array, sizes: Sequence[int]) -> tuple[jax.Array, None]:
    """Maxima of windows; of equal entries the first has the derivative, in the order of memory."""
    first_largest = extreme(jnp.argmax)
    for axis, size in reversed(list(enumerate(sizes, start=x.ndim - len(sizes)))):
        length = x.shape[axis]
        windows = [(p * length // size, math.ceil((p + 1) * length / size)) for p in range(size)]
        parts = [jax.lax.slice_in_dim(x, *window, axis=axis) for window in windows]
        x = jnp.concatenate([first_largest(part, axis, True)[0] for part in parts], axis)
    return x, None


TABLE: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool3d": _adaptive_avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    **{f"adaptive_max_pool{n}d": _adaptive_max_pool for n in (2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
}
