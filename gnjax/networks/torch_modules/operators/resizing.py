"""Images in another size, along each axis by a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _lengths(
    x: jax.Array, sizes: Sequence[int] | None, scales: Sequence[float] | None
) -> tuple[list[int], list[float]]:
    """The new lengths of the axes of images x (n, c, ..), and the distances of new pixels on them.

    The distance of two neighbouring pixels is in units of the old pixels. Either the new ``sizes``
    are given, or the ``scales`` by which the old ones are multiplied.
    """
    old_lengths = x.shape[2:]
    if sizes is None:
        assert scales is not None
        pairs = zip(old_lengths, scales, strict=True)
        return [math.floor(length * scale) for length, scale in pairs], [1 / s for s in scales]
    return list(sizes), [length / size for length, size in zip(old_lengths, sizes, strict=True)]


def _nearest(
    x: jax.Array, sizes: Sequence[int] | None, scales: Sequence[float] | None = None
) -> jax.Array:
    """Images x (n, c, ..) in new sizes: each new pixel is the old one at or before its position."""
    lengths, steps = _lengths(x, sizes, scales)
    for axis, (length, step) in enumerate(zip(lengths, steps, strict=True), start=2):
        old_pixels = np.minimum(np.floor(np.arange(length) * step).astype(int), x.shape[axis] - 1)
        x = jnp.take(x, old_pixels, axis=axis)
    return x


def _linear(
    x: jax.Array,
    sizes: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None = None,
) -> jax.Array:
    """Images x (n, c, ..) in new sizes, interpolated linearly along one axis after the other."""
    lengths, steps = _lengths(x, sizes, scales)
    for axis, (length, step) in enumerate(zip(lengths, steps, strict=True), start=2):
        weights = jnp.asarray(_weights(x.shape[axis], length, step, align_corners), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (1,))), -1, axis)
    return x


def _weights(before: int, after: int, step: float, align_corners: bool) -> np.ndarray:
    """The matrix (after, before) of linear interpolation from ``before`` pixels to ``after``.

    With ``align_corners`` the centres of the first and last pixels stay where they are; else the
    edges of the image do, and new pixels are ``step`` old ones apart.
    """
    if align_corners:
        positions = np.arange(after) * ((before - 1) / (after - 1) if after > 1 else 0.0)
    else:
        positions = np.maximum((np.arange(after) + 0.5) * step - 0.5, 0)
    lower = np.minimum(np.floor(positions).astype(int), before - 1)
    upper, share = np.minimum(lower + 1, before - 1), positions - lower
    matrix = np.zeros((after, before))
    np.add.at(matrix, (np.arange(after), lower), 1 - share)
    np.add.at(matrix, (np.arange(after), upper), share)
    return matrix


TABLE: dict[str, Callable[..., Any]] = {
    "upsample_bilinear2d": _linear,
    "upsample_nearest2d": _nearest,
}
