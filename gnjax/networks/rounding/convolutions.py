"""Convolutions as one product of matrices for each group, by NumPy, which compiles nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_LARGE = 5e6  # patches of more numbers than this are left to XLA


def convolved(params: Any, lhs: np.ndarray, rhs: np.ndarray) -> Any:
    """The result of ``conv_general_dilated``; NotImplemented where its patches would be large."""
    numbers = params["dimension_numbers"]
    x, kernel = lhs.transpose(numbers.lhs_spec), rhs.transpose(numbers.rhs_spec)  # (n, c, ..)
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    patches = _patches(x, kernel.shape[2:], params)  # (n, c, positions .., entries ..)
    if patches.size > _LARGE or "f" not in (lhs.dtype.kind, rhs.dtype.kind):
        return NotImplemented
    axes = kernel.ndim - 2
    positions = patches.shape[2 : 2 + axes]
    n, outputs = len(x) // batches, len(kernel)
    parts = groups * batches  # one of the two is 1
    if batches > 1:
        split = patches.reshape(batches, n, *patches.shape[1:])
    else:
        split = np.moveaxis(patches.reshape(n, groups, kernel.shape[1], *patches.shape[2:]), 1, 0)
    order = [0, 1, *range(3, 3 + axes), 2, *range(3 + axes, 3 + 2 * axes)]
    kind = params["preferred_element_type"] or np.result_type(lhs, rhs)
    entries = math.prod(kernel.shape[1:])
    left = split.transpose(order).reshape(parts, n * math.prod(positions), entries)
    right = kernel.reshape(parts, outputs // parts, entries).swapaxes(1, 2)
    product = left.astype(kind, copy=False) @ right.astype(kind, copy=False)  # (g, n positions, o)
    product = product.reshape(parts, n, *positions, outputs // parts)
    result = np.moveaxis(product, (0, -1), (1, 2)).reshape(n, outputs, *positions)
    return result.transpose(np.argsort(numbers.out_spec))


def _patches(x: np.ndarray, sizes: tuple[int, ...], params: Any) -> np.ndarray:
    """The window of every position, (n, c, positions .., entries ..), without a copy."""
    axes = tuple(range(2, x.ndim))
    gaps, skips = params["lhs_dilation"], params["rhs_dilation"]
    spread = [max((n - 1) * gap + 1, 0) for n, gap in zip(x.shape[2:], gaps, strict=True)]
    padding = params["padding"]
    whole = [max(low, 0) + n + max(high, 0) for n, (low, high) in zip(spread, padding, strict=True)]
    padded = np.zeros((*x.shape[:2], *whole), x.dtype)
    both = slice(None), slice(None)
    places = zip(padding, spread, gaps, strict=True)
    inside = [slice(max(low, 0), max(low, 0) + n, gap) for (low, _), n, gap in places]
    padded[(*both, *inside)] = x
    cuts = zip(padding, whole, strict=True)
    padded = padded[(*both, *(slice(max(-low, 0), n - max(-high, 0)) for (low, high), n in cuts))]
    windows = [(n - 1) * skip + 1 for n, skip in zip(sizes, skips, strict=True)]
    if any(n < window for n, window in zip(padded.shape[2:], windows, strict=True)):
        positions = [
            max(-(-(n - w + 1) // s), 0)
            for n, w, s in zip(padded.shape[2:], windows, params["window_strides"], strict=True)
        ]
        return np.zeros((*x.shape[:2], *positions, *sizes), x.dtype)
    views = sliding_window_view(padded, windows, axis=axes)
    strides = (slice(None, None, stride) for stride in params["window_strides"])
    entries = (slice(None, None, skip) for skip in skips)
    return views[(*both, *strides, *entries)]
