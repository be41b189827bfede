"""Dense layers: a parameter as one side of a matrix product, or of a batch of them."""

from __future__ import annotations

import math
from typing import Any

import jax

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes:
    """The sizes of a dot_general as a layer z_tg = W_g a_tg; operand ``side`` is the parameter.

    Its batch axes number the groups g, as in a mixture of experts, the axes that it contracts are
    the inputs, and the parameter's remaining ones the outputs.
    """
    shape = eqn.invars[side].aval.shape
    contracted, batch = eqn.params["dimension_numbers"]
    groups, inputs = (math.prod(shape[axis] for axis in axes[side]) for axes in (batch, contracted))
    return Sizes(groups, inputs, math.prod(shape) // (groups * inputs))


def _axes(use: Use, side: int) -> tuple[list[int], list[int], list[int]]:
    """The axes of operand ``side`` of a dot_general: its batch, contracted and remaining axes."""
    contracted, batch = (axes[side] for axes in use.equation.params["dimension_numbers"])
    ndim = use.equation.invars[side].aval.ndim
    remaining = [axis for axis in range(ndim) if axis not in (*contracted, *batch)]
    return list(batch), list(contracted), remaining


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    """The inputs a_tg of a dense layer as (t, g, q_in), from the operand that is no parameter."""
    batch, contracted, remaining = _axes(use, 1 - use.side)
    ordered = operand.transpose(*remaining, *batch, *contracted)
    return ordered.reshape(-1, use.sizes.groups, use.sizes.inputs)


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    """The derivatives ``delta`` (j, ..) of j outputs by a matrix product, as (j, t, g, q_out).

    The result of a dot_general has the batch axes g first, then the remaining axes of its left
    operand, and then those of its right one.
    """
    lengths = [-1, -1]  # of the axes from the left and from the right operand
    lengths[use.side] = use.sizes.outputs
    by_side = delta.reshape(len(delta), use.sizes.groups, *lengths)
    return by_side.transpose((0, 2, 1, 3) if use.side == 1 else (0, 3, 1, 2))


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    """An array of the parameter's shape, such as a mask, as (g, q_in, q_out)."""
    batch, contracted, remaining = _axes(use, use.side)
    return entries.transpose(*batch, *contracted, *remaining).reshape(use.sizes)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
