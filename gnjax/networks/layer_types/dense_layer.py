"""Dense layers: a parameter as one side of a matrix product, or of a batch of them."""

from __future__ import annotations

import math
from typing import Any

import jax

from gnjax.networks.layer_types.layer_type import LayerType, Sizes, Use


def _sizes(eqn: Any, side: int) -> Sizes:
    """The sizes of a matrix product of which one side, the operand ``side``, is the parameter.

    Axes that the product runs over on both sides number the groups, as in a mixture of experts, and
    those that it sums over are the inputs.
    """
    shape = eqn.invars[side].aval.shape
    contracted, shared = eqn.params["dimension_numbers"]
    groups, inputs = (
        math.prod(shape[axis] for axis in axes[side]) for axes in (shared, contracted)
    )
    return Sizes(groups, inputs, math.prod(shape) // (groups * inputs))


def _axes(use: Use, side: int) -> tuple[list[int], list[int], list[int]]:
    """The axes of one operand of the product: the shared, the summed and the remaining ones."""
    contracted, shared = (axes[side] for axes in use.equation.params["dimension_numbers"])
    ndim = use.equation.invars[side].aval.ndim
    remaining = [axis for axis in range(ndim) if axis not in (*contracted, *shared)]
    return list(shared), list(contracted), remaining


def _inputs(use: Use, operand: jax.Array) -> jax.Array:
    """The inputs a as (t, g, q_in), from the operand beside the parameter.

    Its axes that the parameter shares are groups, those that are summed over are q_in, and the
    remaining ones are positions.
    """
    shared, contracted, remaining = _axes(use, 1 - use.side)
    ordered = operand.transpose(*remaining, *shared, *contracted)
    return ordered.reshape(-1, use.sizes.groups, use.sizes.inputs)


def _sensitivities(use: Use, delta: jax.Array) -> jax.Array:
    """The derivatives (j, ..) of j outputs by the product as (j, t, g, q_out).

    A matrix product of JAX has the shared axes first, and then the remaining ones of its left and
    of its right side; those of the parameter are q_out, and the others positions t.
    """
    sides = [-1, -1]
    sides[use.side] = use.sizes.outputs
    by_side = delta.reshape(len(delta), use.sizes.groups, *sides)
    return by_side.transpose((0, 2, 1, 3) if use.side == 1 else (0, 3, 1, 2))


def _entries(use: Use, entries: jax.Array) -> jax.Array:
    """An array of the parameter's shape as (g, q_in, q_out)."""
    shared, contracted, remaining = _axes(use, use.side)
    return entries.transpose(*shared, *contracted, *remaining).reshape(use.sizes)


TYPE = LayerType(_sizes, _inputs, _sensitivities, _entries)
