"""Dense layers: a parameter as one side of a matrix product."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.layer_types.base import Layer, LayerType


def _sizes(eqn: Any, side: int) -> tuple[int, int] | None:
    shape = eqn.invars[side].aval.shape
    contracted, batched = eqn.params["dimension_numbers"]
    if batched[side]:
        return None
    inputs = int(np.prod([shape[axis] for axis in contracted[side]], initial=1))
    return inputs, int(np.prod(shape)) // inputs


def _inputs(layer: Layer, eqn: Any, operand: jax.Array) -> jax.Array:
    contracted = eqn.params["dimension_numbers"][0][1 - layer.side]
    free = [axis for axis in range(operand.ndim) if axis not in contracted]
    return operand.transpose(*free, *contracted).reshape(-1, layer.inputs)


def _sensitivities(layer: Layer, eqn: Any, delta: jax.Array) -> jax.Array:
    if layer.side == 1:
        return delta.reshape(len(delta), layer.positions, layer.outputs)
    return jnp.swapaxes(delta.reshape(len(delta), layer.outputs, layer.positions), 1, 2)


def _entries(layer: Layer, eqn: Any, entries: jax.Array) -> jax.Array:
    contracted = eqn.params["dimension_numbers"][0][layer.side]
    free = [axis for axis in range(entries.ndim) if axis not in contracted]
    return entries.transpose(*contracted, *free).reshape(layer.inputs, layer.outputs)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
