"""Embeddings: a parameter whose rows are looked up, so that every a_t is a unit vector."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.layer_types.base import Layer, LayerType


def _sizes(eqn: Any, side: int) -> tuple[int, int] | None:
    """Whole rows of a table (V, ..) by one index each; anything else is another structure."""
    shape, result = eqn.invars[side].aval.shape, eqn.outvars[0].aval.shape
    numbers, width = eqn.params["dimension_numbers"], len(shape) - 1
    whole_rows = (
        side == 0
        and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and numbers.offset_dims == tuple(range(len(result) - width, len(result)))
        and tuple(eqn.params["slice_sizes"]) == (1, *shape[1:])
    )
    return (shape[0], int(np.prod(shape[1:]))) if whole_rows else None


def _places(layer: Layer, eqn: Any, operand: jax.Array) -> jax.Array:
    """The row that each position takes; indices beyond the table are clipped where JAX does it."""
    places = operand.reshape(-1)
    clips = eqn.params["mode"] == jax.lax.GatherScatterMode.CLIP
    return jnp.clip(places, 0, layer.inputs - 1) if clips else places


def _inputs(layer: Layer, eqn: Any, operand: jax.Array) -> jax.Array:
    dtype = eqn.outvars[0].aval.dtype
    return jax.nn.one_hot(_places(layer, eqn, operand), layer.inputs, dtype=dtype)


def _sensitivities(layer: Layer, eqn: Any, delta: jax.Array) -> jax.Array:
    return delta.reshape(len(delta), layer.positions, layer.outputs)


def _entries(layer: Layer, eqn: Any, entries: jax.Array) -> jax.Array:
    return entries.reshape(layer.inputs, layer.outputs)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries, _places)
