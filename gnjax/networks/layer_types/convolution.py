"""Convolutions: a parameter as the kernel, which sees a patch of the input at each position.

A grouped convolution has a kernel of its own for each group of channels; a depthwise one has a
group for every channel.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes | None:
    """The sizes of a convolution as a layer z_tg = W_g a_tg, if operand ``side`` is its kernel.

    Each group g has q_in entries of a patch a_tg, and q_out output channels. None stands for all
    else, also for a convolution whose samples are in groups.
    """
    if side != 1 or eqn.params["batch_group_count"] != 1:
        return None
    shape, groups = eqn.invars[side].aval.shape, eqn.params["feature_group_count"]
    features = shape[eqn.params["dimension_numbers"].rhs_spec[0]]
    return Sizes(groups, math.prod(shape) // features, features // groups)


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    """The patches (t, g, q_in): what the kernel of each group g sees of the images at position t.

    They are cut out of the padded images; XLA would convolve with a kernel of zeros and ones.
    """
    eqn, params = use.equation, use.equation.params
    numbers = params["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    images = operand.transpose(batch, *spatial, feature)
    # lhs_dilation puts zeros between the pixels, as a transposed convolution does
    zeros_between = [dilation - 1 for dilation in params["lhs_dilation"]]
    edges = zip(params["padding"], zeros_between, strict=True)
    borders = [(0, 0, 0), *((low, high, between) for (low, high), between in edges), (0, 0, 0)]
    images = jax.lax.pad(images, jnp.zeros((), images.dtype), borders)
    positions = [eqn.outvars[0].aval.shape[axis] for axis in numbers.out_spec[2:]]
    widths = [eqn.invars[1].aval.shape[axis] for axis in numbers.rhs_spec[2:]]
    for axis, stride in enumerate(params["window_strides"]):
        # one strided slice of the pixels for each offset in the kernel, stacked before the channels
        dilation, length = params["rhs_dilation"][axis], (positions[axis] - 1) * stride + 1
        starts = [dilation * offset for offset in range(widths[axis])]
        slices = [
            jax.lax.slice_in_dim(images, start, start + length, stride, axis + 1)
            for start in starts
        ]
        images = jnp.stack(slices, axis=-2)
    groups, inputs = use.sizes.groups, use.sizes.inputs
    patches = images.reshape(-1, math.prod(widths), groups, inputs // math.prod(widths))
    return jnp.swapaxes(patches, 1, 2).reshape(-1, groups, inputs)


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    """The derivatives ``delta`` (j, ..) of j outputs by a convolution, as (j, t, g, q_out)."""
    axes = use.equation.params["dimension_numbers"].out_spec
    batch, feature, *spatial = (axis + 1 for axis in axes)  # axis 0 runs over the j outputs
    ordered = delta.transpose(0, batch, *spatial, feature)
    return ordered.reshape(len(delta), -1, use.sizes.groups, use.sizes.outputs)


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    """An array of the kernel's shape, such as a mask, as (g, q_in, q_out).

    The q_in entries of a patch are its pixels and then the channels of the group g.
    """
    groups, inputs, outputs = use.sizes
    outputs_axis, inputs_axis, *spatial = use.equation.params["dimension_numbers"].rhs_spec
    ordered = entries.transpose(*spatial, inputs_axis, outputs_axis).reshape(
        inputs, groups, outputs
    )
    return ordered.swapaxes(0, 1)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
