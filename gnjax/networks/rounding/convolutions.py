"""Convolutions as one product of matrices for each group, by NumPy, which compiles nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_LARGE = 5e6  # patches of more numbers than this are left to XLA


def convolved(params: Any, lhs: np.ndarray, rhs: np.ndarray) -> Any:
    """The result of JAX's primitive ``conv_general_dilated``: a product of matrices per group.

    A row of the left matrix is the patch that the kernel sees at one position of one image, and a
    column of the right one is the kernel of one output channel. The answer is NotImplemented where
    the patches would take much memory.
    """
    layout = params["dimension_numbers"]  # the order of the axes of images, kernel and result
    # both with their channels second: (n, c, ..) and (outputs, c of a group, ..)
    x, kernel = lhs.transpose(layout.lhs_spec), rhs.transpose(layout.rhs_spec)
    channel_groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    patches = _patches(x, kernel.shape[2:], params)  # (n, c, positions .., entries ..)
    if patches.size > _LARGE:
        return NotImplemented
    spatial = kernel.ndim - 2  # the number of axes along which the kernel moves
    positions = patches.shape[2 : 2 + spatial]
    n, outputs = len(x) // batch_groups, len(kernel)
    g = channel_groups * batch_groups  # the number of groups, as JAX demands that one of them is 1
    if batch_groups > 1:
        by_group = patches.reshape(batch_groups, n, *patches.shape[1:])
    else:
        channels_apart = patches.reshape(n, g, kernel.shape[1], *patches.shape[2:])
        by_group = np.moveaxis(channels_apart, 1, 0)
    # by_group is (g, n, c, positions .., entries ..); the channels go before the entries
    order = [0, 1, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial)]
    dtype = params["preferred_element_type"] or np.result_type(lhs, rhs)
    entries = math.prod(kernel.shape[1:])
    left = by_group.transpose(order).reshape(g, n * math.prod(positions), entries)
    right = kernel.reshape(g, outputs // g, entries).swapaxes(1, 2)
    product = left.astype(dtype, copy=False) @ right.astype(dtype, copy=False)
    product = product.reshape(g, n, *positions, outputs // g)
    result = np.moveaxis(product, (0, -1), (1, 2)).reshape(n, outputs, *positions)
    return result.transpose(np.argsort(layout.out_spec))


def with_padding(
    array: np.ndarray, value: Any, config: Sequence[tuple[int, int, int]]
) -> np.ndarray:
    """The array with ``value`` before, after and between its entries, as by ``jax.lax.pad``.

    ``config`` has (before, after, between two entries) for each axis. Where the first two are
    negative, entries are cut off.
    """
    lengths = [max(n + (n - 1) * gap, 0) for n, (*_, gap) in zip(array.shape, config, strict=True)]
    axes = list(zip(config, lengths, strict=True))
    larger = np.full([max(low, 0) + n + max(high, 0) for (low, high, _), n in axes], value)
    larger[tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for (low, _, gap), n in axes)] = array
    return larger[tuple(slice(max(-low, 0), min(high, 0) or None) for low, high, _ in config)]


def _patches(x: np.ndarray, sizes: tuple[int, ...], params: Any) -> np.ndarray:
    """The patch that a kernel sees at every position, (n, c, positions .., entries ..), as views.

    x (n, c, ..) are the images, and ``sizes`` the lengths of the kernel along each spatial axis.
    """
    edges = zip(params["padding"], params["lhs_dilation"], strict=True)
    config = [(low, high, distance - 1) for (low, high), distance in edges]
    images = with_padding(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *config])
    kernel_dilations, strides = params["rhs_dilation"], params["window_strides"]
    # the pixels along each axis from the first to the last one that the kernel sees
    windows = [(n - 1) * d + 1 for n, d in zip(sizes, kernel_dilations, strict=True)]
    if any(n < window for n, window in zip(images.shape[2:], windows, strict=True)):
        # no window fits along some axis, so that there is no position
        positions = [
            max(-(-(n - w + 1) // s), 0)
            for n, w, s in zip(images.shape[2:], windows, strides, strict=True)
        ]
        return np.zeros((*x.shape[:2], *positions, *sizes), x.dtype)
    views = sliding_window_view(images, windows, axis=tuple(range(2, x.ndim)))
    steps = (slice(None, None, step) for step in (*strides, *kernel_dilations))
    return views[(slice(None), slice(None), *steps)]
