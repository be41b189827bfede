"""Maxima and means over windows, of one, two or three axes behind the channels.

A window of size w starts at every ``stride``-th pixel, after ``padding`` pixels were added on both
sides of the axis. With a dilation d it takes every d-th pixel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.torch_modules.operators.reductions import extreme

Pairs = list[tuple[int, int]]  # for each axis the pixels added before and after it


def _for_every_axis(
    numbers: int | Sequence[int] | None, default: Sequence[int], count: int
) -> list[int]:
    """A number for each of ``count`` axes, such as a stride; no numbers stand for ``default``."""
    values = [numbers] if isinstance(numbers, int) else list(numbers or ()) or list(default)
    return values * count if len(values) == 1 else values


def _borders(
    sizes: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool,
) -> Pairs:
    """The padding before and after every axis, for windows as PyTorch places them.

    With ``ceil_mode`` one more window may stick out at the end, and more padding is added for it.
    """
    borders = []
    for size, window, stride, pad, dilation in zip(
        sizes, windows, strides, pads, dilations, strict=True
    ):
        # the last pixel of the padded axis at which a window fits
        last_start, extra = size + 2 * pad - dilation * (window - 1) - 1, 0
        if ceil_mode and last_start % stride:
            next_start = -(-last_start // stride) * stride
            if next_start < size + pad:  # no window starts in the padding at the end
                extra = next_start - last_start
        borders.append((pad, pad + extra))
    return borders


def _reduced(
    x: jax.Array,
    start: Any,
    reduction: Callable[..., Any],
    windows: Sequence[int],
    strides: Sequence[int],
    borders: Pairs,
) -> jax.Array:
    """Sums or maxima over windows of the last axes of x, with ``start`` in the padding."""
    other_axes = x.ndim - len(windows)  # samples and channels
    ones, unpadded = [1] * other_axes, [(0, 0)] * other_axes
    return jax.lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        reduction,
        (*ones, *windows),
        (*ones, *strides),
        [*unpadded, *borders],
    )


def _max_pool(
    count: int,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, None]:
    """PyTorch's ``max_pool{n}d_with_indices`` over the last n = ``count`` axes of x.

    None stands for the second result, the indices of the maxima, which only PyTorch's own
    derivative reads. JAX's window function has no derivative with a dilation, so that dilated
    windows are stacked as shifted copies.
    """
    windows = _for_every_axis(kernel_size, (), count)
    strides = _for_every_axis(stride, windows, count)
    pads = _for_every_axis(padding, (0,), count)
    dilations = _for_every_axis(dilation, (1,), count)
    borders = _borders(x.shape[-count:], windows, strides, pads, dilations, ceil_mode)
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    if all(dilation == 1 for dilation in dilations):
        return _reduced(x, lowest, jax.lax.max, windows, strides, borders), None
    edges = [(0, 0, 0)] * (x.ndim - count) + [(low, high, 0) for low, high in borders]
    padded = jax.lax.pad(x, np.asarray(lowest, x.dtype), edges)
    return _dilated_maxima(padded, windows, strides, dilations), None


def _dilated_maxima(
    x: jax.Array, windows: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> jax.Array:
    """Maxima over dilated windows of a padded array, one window size for each of its last axes.

    For each offset inside a window, a strided slice has the pixel at this offset of every window.
    The maximum is over the stacked slices; of equal pixels the first has the derivative.
    """
    slices = []
    for offsets in itertools.product(*map(range, windows)):
        pixels = x
        for axis, (offset, window, stride, dilation) in enumerate(
            zip(offsets, windows, strides, dilations, strict=True), start=x.ndim - len(windows)
        ):
            # where the remaining pixels of a window would lie beyond the end, there is no window
            stop = x.shape[axis] - dilation * (window - 1 - offset)
            pixels = jax.lax.slice_in_dim(pixels, dilation * offset, stop, stride, axis)
        slices.append(pixels)
    stacked = jnp.stack(slices)
    return jnp.take_along_axis(stacked, jnp.argmax(stacked, 0, keepdims=True), 0)[0]


def _avg_pool(
    count: int,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """PyTorch's ``avg_pool{n}d`` over the last n = ``count`` axes of x.

    A sum over a window is divided by ``divisor_override``, or else by how many pixels of the
    window count: those of the image, and with ``count_include_pad`` those of the padding.
    """
    windows = _for_every_axis(kernel_size, (), count)
    strides = _for_every_axis(stride, windows, count)
    pads = _for_every_axis(padding, (0,), count)
    borders = _borders(x.shape[-count:], windows, strides, pads, [1] * count, ceil_mode)
    sums = _reduced(x, 0, jax.lax.add, windows, strides, borders)
    if divisor_override:
        return sums / divisor_override
    # 1 for every pixel that counts: the numbers of them are sums over the same windows
    counted_pads = pads if count_include_pad else [0] * count
    counted = np.pad(np.ones(x.shape[-count:], int), [(p, p) for p in counted_pads], mode="edge")
    beside = [(low - p, high - p) for (low, high), p in zip(borders, counted_pads, strict=True)]
    of_windows = np.lib.stride_tricks.sliding_window_view(np.pad(counted, beside), windows)
    of_windows = of_windows[tuple(slice(None, None, stride) for stride in strides)]
    return sums / of_windows.sum(tuple(range(-count, 0))).astype(x.dtype)


def _adaptive_avg_pool(x: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """Means over s windows on each of the last axes, s in ``sizes``, by a matrix (n, s) each.

    On an axis of length n window i goes from floor(i n / s) to ceil((i + 1) n / s).
    """
    for axis, size in enumerate(sizes, start=x.ndim - len(sizes)):
        length = x.shape[axis]
        if size == 1:
            x = jnp.mean(x, axis, keepdims=True)
            continue
        means = np.zeros((length, size))
        for i in range(size):
            start, stop = i * length // size, math.ceil((i + 1) * length / size)
            means[start:stop, i] = 1 / (stop - start)
        product = jnp.tensordot(x, jnp.asarray(means, x.dtype), ((axis,), (0,)))
        x = jnp.moveaxis(product, -1, axis)
    return x


def _adaptive_max_pool(x: jax.Array, sizes: Sequence[int]) -> tuple[jax.Array, None]:
    """Maxima over the windows of :func:`_adaptive_avg_pool`, and None in place of their indices.

    The last axis goes first, so that of equal entries the first in memory has the derivative.
    """
    for axis, size in reversed(list(enumerate(sizes, start=x.ndim - len(sizes)))):
        length = x.shape[axis]
        windows = [(i * length // size, math.ceil((i + 1) * length / size)) for i in range(size)]
        slices = [jax.lax.slice_in_dim(x, *window, axis=axis) for window in windows]
        maxima = [extreme(jnp.argmax, pixels, axis, keepdim=True)[0] for pixels in slices]
        x = jnp.concatenate(maxima, axis)
    return x, None


TABLE: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool3d": _adaptive_avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    **{f"adaptive_max_pool{n}d": _adaptive_max_pool for n in (2, 3)},
    **{f"avg_pool{n}d": partial(_avg_pool, n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices": partial(_max_pool, n) for n in (2, 3)},
}
