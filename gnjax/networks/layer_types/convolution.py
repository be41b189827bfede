"""Convolutions: a parameter as the kernel, which sees a patch of the input at each position."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.layer_types.base import Layer, LayerType


def _sizes(eqn: Any, side: int) -> tuple[int, int] | None:
    plain = eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1
    if side != 1 or not plain:
        return None
    shape = eqn.invars[side].aval.shape
    features = shape[eqn.params["dimension_numbers"].rhs_spec[0]]
    return int(np.prod(shape)) // features, features


def _inputs(layer: Layer, eqn: Any, operand: jax.Array) -> jax.Array:
    """What the kernel sees at each position, (t, q_in), channels last.

    Cut out of the padded input; XLA's patches are a convolution with a kernel of zeros and ones.
    """
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    image = operand.transpose(batch, *spatial, feature)[0]
    holes = [dilation - 1 for dilation in params["lhs_dilation"]]
    edges = zip(params["padding"], holes, strict=True)
    borders = [*((low, high, between) for (low, high), between in edges), (0, 0, 0)]
    image = jax.lax.pad(image, jnp.zeros((), image.dtype), borders)
    places = [eqn.outvars[0].aval.shape[axis] for axis in numbers.out_spec[2:]]
    widths = [eqn.invars[1].aval.shape[axis] for axis in numbers.rhs_spec[2:]]
    for axis, stride in enumerate(params["window_strides"]):
        gap, reach = params["rhs_dilation"][axis], (places[axis] - 1) * stride + 1
        cuts = [(gap * offset, gap * offset + reach) for offset in range(widths[axis])]
        seen = [jax.lax.slice_in_dim(image, *cut, stride, axis) for cut in cuts]
        image = jnp.stack(seen, axis=-2)
    return image.reshape(math.prod(places), -1)


def _sensitivities(layer: Layer, eqn: Any, delta: jax.Array) -> jax.Array:
    batch, feature, *spatial = (axis + 1 for axis in eqn.params["dimension_numbers"].out_spec)
    ordered = delta.transpose(0, batch, *spatial, feature)
    return ordered.reshape(len(delta), layer.positions, layer.outputs)


def _entries(layer: Layer, eqn: Any, entries: jax.Array) -> jax.Array:
    out, into, *spatial = eqn.params["dimension_numbers"].rhs_spec
    return entries.transpose(*spatial, into, out).reshape(layer.inputs, layer.outputs)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
