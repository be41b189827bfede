"""Layers: products with matrices and convolutions.

A weight enters its equation as it is, with no transpose or reshape that is not needed, so that
:mod:`gnjax.networks.layers` sees a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def _linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """x W^T + b with W (out, in)."""
    product = jax.lax.dot_general(x, weight, (((x.ndim - 1,), (weight.ndim - 1,)), ((), ())))
    return product if bias is None else product + bias


def _addmm(
    bias: jax.Array, a: jax.Array, b: jax.Array, *, beta: float = 1, alpha: float = 1
) -> jax.Array:
    """beta bias + alpha a b for matrices a and b."""
    product = jnp.matmul(a, b)
    return (bias if beta == 1 else beta * bias) + (product if alpha == 1 else alpha * product)


def _convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> jax.Array:
    """A convolution, or its transpose, of images (n, channels, ..) or one image (channels, ..).

    A list of one number, such as a stride, stands for that number on every axis. The weight is
    (out, in / groups, ..), and (in, out / groups, ..) if transposed.
    """
    axes = weight.ndim - 2
    single_image = x.ndim == axes + 1
    strides, pads, dilations, output_pads = (
        list(v) * (axes if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    )
    images = x[None] if single_image else x
    if transposed:
        result = _transposed(images, weight, strides, pads, dilations, output_pads, groups)
    else:
        borders = [(pad, pad) for pad in pads]
        result = _convolved(images, weight, strides, borders, dilations, groups)
    result = result if bias is None else result + bias.reshape(-1, *[1] * axes)
    return result[0] if single_image else result


def _convolved(
    x: jax.Array,
    kernel: jax.Array,
    strides: list[int],
    borders: list[tuple[int, int]],
    dilations: list[int],
    groups: int,
    image_dilations: list[int] | None = None,
    kernel_axes: str = "OI",
) -> jax.Array:
    """A convolution of images (n, channels, ..), by JAX's ``conv_general_dilated``.

    The lists have one number, or a pair, for each axis behind the channels. The pixels are
    ``image_dilations`` apart, with zeros between them (None: 1), and ``kernel_axes`` is "OI" where
    the outputs are the kernel's first axis, "IO" where the inputs are.
    """
    letters = "DHW"[3 - len(strides) :]
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        strides,
        borders,
        lhs_dilation=image_dilations,
        rhs_dilation=dilations,
        dimension_numbers=(f"NC{letters}", f"{kernel_axes}{letters}", f"NC{letters}"),
        feature_group_count=groups,
    )


def _transposed(
    x: jax.Array,
    weight: jax.Array,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    output_pads: list[int],
    groups: int,
) -> jax.Array:
    """The transpose of a convolution, of images (n, in, ..) with a kernel (in, out / groups, ..).

    It is a convolution of images whose pixels are ``strides`` apart with the kernel reversed along
    the axes of pixels. Here the images and the result are reversed in place of the kernel, which
    enters the equation unchanged, so that it is found as a layer. ``output_pads`` are added at the
    end of each axis of the result, which is its beginning while it is reversed.
    """
    pixel_axes = tuple(range(2, x.ndim))
    reach = [d * (size - 1) for d, size in zip(dilations, weight.shape[2:], strict=True)]
    borders = [
        (r - p + output_pad, r - p)
        for r, p, output_pad in zip(reach, pads, output_pads, strict=True)
    ]
    ones = [1] * len(strides)
    flipped_groups = jnp.split(jnp.flip(x, pixel_axes), groups, axis=1)
    kernels = jnp.split(weight, groups, axis=0) if groups > 1 else [weight]
    results = [
        _convolved(flipped, kernel, ones, borders, dilations, 1, strides, kernel_axes="IO")
        for flipped, kernel in zip(flipped_groups, kernels, strict=True)
    ]
    result = results[0] if groups == 1 else jnp.concatenate(results, axis=1)
    return jnp.flip(result, pixel_axes)


TABLE: dict[str, Callable[..., Any]] = {
    "addmm": _addmm,
    "bmm": jnp.matmul,
    "convolution": _convolution,
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
}
