"""Embeddings: a parameter whose rows are looked up, so that every a_t is a unit vector."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes | None:
    """The sizes of an embedding, a table (V, ..) of which each index looks up one row; else None.

    ``eqn`` is a gather of JAX. An embedding is a layer z_t = W a_t with one group and V inputs,
    since a_t is the unit vector of the index at position t.
    """
    shape, result = eqn.invars[side].aval.shape, eqn.outvars[0].aval.shape
    dimensions, width = eqn.params["dimension_numbers"], len(shape) - 1
    # An index chooses on axis 0 alone, and the axes of a row are the last axes of the result.
    whole_rows = (
        side == 0
        and dimensions.collapsed_slice_dims == dimensions.start_index_map == (0,)
        and not dimensions.operand_batching_dims
        and dimensions.offset_dims == tuple(range(len(result) - width, len(result)))
        and tuple(eqn.params["slice_sizes"]) == (1, *shape[1:])
    )
    return Sizes(1, shape[0], math.prod(shape[1:])) if whole_rows else None


def _row_indices(use: Use, operand: jax.Array) -> jax.Array:
    """The index (t,) of the row of the table that each position t looks up, from the indices (..).

    Indices beyond the table are clipped where the equation clips them.
    """
    indices = operand.reshape(-1)
    clips = use.equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
    return jnp.clip(indices, 0, use.sizes.inputs - 1) if clips else indices


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    """The inputs a_t as unit vectors (t, 1, q_in), with the one at the row that is looked up."""
    dtype = use.equation.outvars[0].aval.dtype
    return jax.nn.one_hot(_row_indices(use, operand), use.sizes.inputs, dtype=dtype)[:, None]


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    """The derivatives ``delta`` (j, ..) of j outputs by the rows looked up, as (j, t, 1, q_out)."""
    return delta.reshape(len(delta), -1, 1, use.sizes.outputs)


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    """An array of the table's shape (V, ..) as (1, V, q_out)."""
    return entries.reshape(use.sizes)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries, _row_indices)
