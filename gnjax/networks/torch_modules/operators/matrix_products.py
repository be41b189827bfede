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
    """A convolution of any number of axes, channels first; one number stands for every axis."""
    count = weight.ndim - 2
    alone = x.ndim == count + 1
    strides, pads, gaps, more = (
        list(v) * (count if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    )
    images = x[None] if alone else x
    if transposed:
        result = _transposed(images, weight, strides, pads, gaps, more, groups)
    else:
        borders = [(pad, pad) for pad in pads]
        result = _convolved(images, weight, strides, borders, gaps, groups)
    result = result if bias is None else result + bias.reshape(-1, *[1] * count)
    return result[0] if alone else result


def _convolved(
    x: jax.Array,
    kernel: jax.Array,
    strides: list[int],
    borders: list[tuple[int, int]],
    gaps: list[int],
    groups: int,
    holes: list[int] | None = None,
    transposed: bool = False,
) -> jax.Array:
    letters = "DHW"[3 - len(strides) :]
    sides = "IO" if transposed else "OI"
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        strides,
        borders,
        lhs_dilation=holes,
        rhs_dilation=gaps,
        dimension_numbers=(f"NC{letters}", f"{sides}{letters}", f"NC{letters}"),
        feature_group_count=groups,
    )


def _transposed(
    x: jax.Array,
    weight: jax.Array,
    strides: list[int],
    pads: list[int],
    gaps: list[int],
    more: list[int],
    groups: int,
) -> jax.Array:
    """The transpose of a convolution, with its kernel (in, out / groups, ..).

    It sees the kernel from the other end. Here the images are turned around in its place, and
    turned back afterwards.
    """
    space = tuple(range(2, x.ndim))
    reach = [gap * (size - 1) for gap, size in zip(gaps, weight.shape[2:], strict=True)]
    borders = [(r - p + m, r - p) for r, p, m in zip(reach, pads, more, strict=True)]
    ones = [1] * len(strides)
    flipped = jnp.split(jnp.flip(x, space), groups, axis=1)
    kernels = jnp.split(weight, groups, axis=0) if groups > 1 else [weight]
    results = [
        _convolved(part, kernel, ones, borders, gaps, 1, strides, transposed=True)
        for part, kernel in zip(flipped, kernels, strict=True)
    ]
    return jnp.flip(results[0] if groups == 1 else jnp.concatenate(results, axis=1), space)


TABLE: dict[str, Callable[..., Any]] = {
    "addmm": _addmm,
    "bmm": jnp.matmul,
    "convolution": _convolution,
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
}
