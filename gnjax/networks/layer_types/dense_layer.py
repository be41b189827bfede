"""Dense layers: a parameter as one side of a matrix product, or of a batch of them."""

from __future__ import annotations

import math
from typing import Any

import jax

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes:
    """The axes that both sides have in common number the groups, as in a mixture of experts."""
    shape = eqn.invars[side].aval.shape
    contracted, shared = eqn.params["dimension_numbers"]
    groups, inputs = (
        math.prod(shape[axis] for axis in axes[side]) for axes in (shared, contracted)
    )
    return Sizes(groups, inputs, math.prod(shape) // (groups * inputs))


def _axes(use: Use, side: int) -> tuple[list[int], list[int], list[int]]:
    """The shared, the contracted and the remaining axes of one side."""
    contracted, shared = (axes[side] for axes in use.equation.params["dimension_numbers"])
    ndim = use.equation.invars[side].aval.ndim
    remaining = [axis for axis in range(ndim) if axis not in (*contracted, *shared)]
    return list(shared), list(contracted), remaining


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    """The inputs (t, g, q_in): shared axes are groups, and axes of the operand alone positions."""
    shared, contracted, remaining = _axes(use, 1 - use.side)
    ordered = operand.transpose(*remaining, *shared, *contracted)
    return ordered.reshape(-1, use.sizes.groups, use.sizes.inputs)


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    """The result has the shared axes first, and then the remaining ones of either side."""
    sides = [-1, -1]
    sides[use.side] = use.sizes.outputs
    parts = delta.reshape(len(delta), use.sizes.groups, *sides)
    return parts.transpose((0, 2, 1, 3) if use.side == 1 else (0, 3, 1, 2))


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    shared, contracted, remaining = _axes(use, use.side)
    return entries.transpose(*shared, *contracted, *remaining).reshape(use.sizes)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
