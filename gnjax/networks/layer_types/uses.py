"""A use of a parameter, from the shapes of its equation to z_tg = W_g a_tg.

An array from inside loops has one axis for each loop before the axes of its equation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax

from gnjax.networks.jaxprs import bind_widened
from gnjax.networks.layer_types import LAYER_TYPES, Loop, Use

Pair = tuple[jax.Array, jax.Array]
"""The input of a layer and the sensitivities of outputs to its result."""


def by_positions(use: Use, pair: Pair, dtype: Any) -> Pair:
    """The inputs a (t, g, q_in) of a layer and the derivatives delta (j, t, g, q_out) of outputs.

    The ``pair`` has both in the shapes of the layer's equation ``use``, such as a convolution, and
    they are returned in ``dtype``, the precision of the network: an input may come in another type
    (booleans, pixels of eight bits, half precision), whose products would be rounded or overflow.
    """
    layer_type, loops = LAYER_TYPES[use.kind], use.loops
    inputs, outputs = partial(layer_type.inputs, use), partial(layer_type.sensitivities, use)
    for _ in loops:  # axis 0 of delta runs over the j outputs, so that its loops begin at axis 1
        inputs, outputs = jax.vmap(inputs), jax.vmap(outputs, 1, 1)
    a, delta = inputs(pair[0]), outputs(pair[1])  # (.., t, g, q_in) and (j, .., t, g, q_out)
    t_axis = len(loops)  # axes before it are those of the loops
    repeated = [axis for axis, loop in enumerate(loops) if not loop.sliced]
    sliced = [axis for axis, loop in enumerate(loops) if loop.sliced]
    # first all axes of positions, then all axes of groups
    order = [*repeated, t_axis, *sliced, t_axis + 1, t_axis + 2]
    a, delta = a.transpose(order), delta.transpose(0, *(axis + 1 for axis in order))
    shape = (use.positions, use.groups)
    a, delta = a.reshape(*shape, -1), delta.reshape(len(delta), *shape, -1)
    return a.astype(dtype), delta.astype(dtype)


def has_one_hot_inputs(use: Use) -> bool:
    """Whether a layer has one group, and every input a_t is a unit vector by its structure."""
    return LAYER_TYPES[use.kind].one_hot_indices is not None and use.groups == 1


def by_one_hot_indices(use: Use, pair: Pair, dtype: Any) -> Pair:
    """The inputs of an embedding as indices (t,), and the derivatives delta (j, t, q_out).

    The ``pair`` are the operand of the equation beside the parameter, and the derivatives of j
    outputs by its result, which are returned in ``dtype``.
    """
    layer_type = LAYER_TYPES[use.kind]
    assert layer_type.one_hot_indices is not None
    indices = partial(layer_type.one_hot_indices, use)
    outputs = partial(layer_type.sensitivities, use)
    for _ in use.loops:  # axis 0 of delta runs over the j outputs
        indices, outputs = jax.vmap(indices), jax.vmap(outputs, 1, 1)
    deltas = outputs(pair[1]).astype(dtype)
    return indices(pair[0]).reshape(-1), deltas.reshape(len(deltas), use.positions, -1)


def matrices(use: Use, entries: jax.Array) -> jax.Array:
    """An array of the parameter's shape, such as a mask, arranged as (g, q_in, q_out).

    Its entries are arranged like those of the transposed matrices W_g^T of the layer
    z_tg = W_g a_tg that ``use`` describes. Conversions of the dtype are left out, so that indices
    and masks stay what they are.
    """
    for index, step in enumerate(use.steps):
        if isinstance(step, Loop):
            inner = partial(matrices, replace(use, steps=use.steps[index + 1 :]))
            arranged = jax.vmap(inner)(entries) if step.sliced else inner(entries)
            return arranged.reshape(-1, *use.sizes[1:])
        is_conversion = step.equation.primitive.name == "convert_element_type"
        entries = entries if is_conversion else step(entries)
    return LAYER_TYPES[use.kind].entries(use, entries)


def acting(use: Use, entries: jax.Array, operand: jax.Array) -> Any:
    """W a in the shape of the result of the layer's equation, for other entries of the parameter W.

    ``operand`` has the inputs a: it is the equation's other operand, with an axis for each loop.
    """
    for index, step in enumerate(use.steps):
        if isinstance(step, Loop):
            inner = partial(acting, replace(use, steps=use.steps[index + 1 :]))
            return jax.vmap(inner, (0 if step.sliced else None, 0))(entries, operand)
        entries = step(entries)
    operands = [entries, operand] if use.side == 0 else [operand, entries]
    return bind_widened(use.equation, operands)  # evaluates it, slow convolutions in a faster form
