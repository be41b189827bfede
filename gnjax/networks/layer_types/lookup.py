"""Embeddings: a parameter whose rows are looked up, so that every a_t is a unit vector."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes | None:
    """The sizes if each index looks up one whole row of a table (V, ..), else None."""
    shape, result = eqn.invars[side].aval.shape, eqn.outvars[0].aval.shape
    numbers, width = eqn.params["dimension_numbers"], len(shape) - 1
    whole_rows = (
        side == 0
        and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and numbers.offset_dims == tuple(range(len(result) - width, len(result)))
        and tuple(eqn.params["slice_sizes"]) == (1, *shape[1:])
    )
    return Sizes(1, shape[0], math.prod(shape[1:])) if whole_rows else None


def _places(use: Use, operand: jax.Array) -> jax.Array:
    """The row that each position takes; indices beyond the table are clipped where JAX does it."""
    places = operand.reshape(-1)
    clips = use.equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
    return jnp.clip(places, 0, use.sizes.inputs - 1) if clips else places


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    dtype = use.equation.outvars[0].aval.dtype
    return jax.nn.one_hot(_places(use, operand), use.sizes.inputs, dtype=dtype)[:, None]


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    return delta.reshape(len(delta), -1, 1, use.sizes.outputs)


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    return entries.reshape(use.sizes)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries, _places)
