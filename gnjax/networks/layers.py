"""Dense and convolution layers, found in the jaxpr of a network rather than in its class.

A parameter that enters a network once, as one side of a matrix product or as the kernel of a
convolution, acts on every position t of a sample as z_t = W a_t (for a convolution a_t is a patch).
With delta_t = d f / d z_t the Jacobian with respect to W is sum_t delta_t a_t^T, so that the inputs
a and the sensitivities delta say everything about it, and no Jacobian is needed. Whatever else a
network does with a parameter is left to automatic differentiation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gnjax.networks.jaxprs import bind, bind_widened, evaluate, inlined

_RELABELS = ("transpose", "reshape", "squeeze", "expand_dims", "copy", "convert_element_type")


Function = Callable[[Sequence[jax.Array], Any], jax.Array]
"""(parameters, one sample, which may be a pytree) to outputs."""

Pair = tuple[jax.Array, jax.Array]
"""The input of a layer and the sensitivities of outputs to its result."""


@dataclass(frozen=True)
class Layer:
    """Where one parameter enters, and how to bring its entries to the order (q_in, q_out)."""

    leaf: int
    equation: int
    relabels: tuple[Any, ...]
    kind: str  # "dot_general" or "conv_general_dilated"
    side: int  # of the parameter among the operands
    inputs: int  # q_in
    outputs: int  # q_out
    positions: int  # t


@dataclass(frozen=True)
class Traced:
    """The function of one sample as a flat list of equations, and its layers."""

    jaxpr: Any
    consts: tuple[jax.Array, ...]
    leaves: int
    layers: tuple[Layer, ...]


def trace(function: Function, leaves: Sequence[jax.Array], sample: Any) -> Traced:
    """Find the layers of ``function(leaves, sample) -> (k,)``."""
    flat = inlined(lambda *args: function(args[:-1], args[-1]), *leaves, sample)
    uses: Counter[Any] = Counter(
        v for eqn in flat.jaxpr.eqns for v in eqn.invars if not isinstance(v, core.Literal)
    )
    uses.update(v for v in flat.jaxpr.outvars if not isinstance(v, core.Literal))
    chains: dict[Any, tuple[int, tuple[Any, ...]]] = {
        var: (leaf, ()) for leaf, var in enumerate(flat.jaxpr.invars[: len(leaves)])
    }
    layers = []
    for index, eqn in enumerate(flat.jaxpr.eqns):
        sides = [
            side
            for side, v in enumerate(eqn.invars)
            if not isinstance(v, core.Literal) and v in chains and uses[v] == 1
        ]
        if len(sides) != 1:
            continue
        side = sides[0]
        leaf, relabels = chains[eqn.invars[side]]
        if eqn.primitive.name in _RELABELS and len(eqn.invars) == 1:
            chains[eqn.outvars[0]] = (leaf, (*relabels, eqn))
        else:
            layer = _layer(eqn, index, leaf, relabels, side)
            layers += [] if layer is None else [layer]
    return Traced(flat.jaxpr, tuple(flat.consts), len(leaves), tuple(layers))


def _layer(eqn: Any, index: int, leaf: int, relabels: tuple[Any, ...], side: int) -> Layer | None:
    """The layer of an equation that a parameter enters, None where its structure is another."""
    shape = eqn.invars[side].aval.shape
    outputs_size = eqn.outvars[0].aval.size
    if eqn.primitive.name == "dot_general":
        contracted, batched = eqn.params["dimension_numbers"]
        if batched[side]:
            return None
        inputs = int(np.prod([shape[axis] for axis in contracted[side]], initial=1))
    elif eqn.primitive.name == "conv_general_dilated" and side == 1:
        if eqn.params["feature_group_count"] != 1 or eqn.params["batch_group_count"] != 1:
            return None
        features = shape[eqn.params["dimension_numbers"].rhs_spec[0]]
        inputs = int(np.prod(shape)) // features
    else:
        return None
    outputs = int(np.prod(shape)) // inputs
    name = eqn.primitive.name
    return Layer(leaf, index, relabels, name, side, inputs, outputs, outputs_size // outputs)


def sensitivities(
    traced: Traced,
    layers: Sequence[Layer],
    others: Sequence[int],
    leaves: Sequence[jax.Array],
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> tuple[list[Pair], list[jax.Array]]:
    """(a, delta (j, ..)) of each layer in its equation's shapes, d f / d leaf (j, p) of the others.

    f = M F(x) where ``weights`` makes M (j, k) from the outputs F(x) (k,).
    """
    equations = {layer.equation: traced.jaxpr.eqns[layer.equation] for layer in layers}
    zeros = {
        index: jnp.zeros(eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype)
        for index, eqn in equations.items()
    }

    def outputs(
        taps: dict[int, jax.Array], chosen: list[jax.Array]
    ) -> tuple[jax.Array, dict[int, Any]]:
        every = list(leaves)
        for leaf, value in zip(others, chosen, strict=True):
            every[leaf] = value
        seen: dict[int, Any] = {}
        given = [*every, *jax.tree.leaves(sample)]
        result = evaluate(traced.jaxpr, traced.consts, given, bind_widened, taps, seen)
        return result[0], seen

    chosen = [leaves[leaf] for leaf in others]
    result, pullback, seen = jax.vjp(outputs, zeros, chosen, has_aux=True)
    rows = weights(result)
    deltas, gradients = jax.vmap(pullback)(rows)
    pairs = [(seen[layer.equation][1 - layer.side], deltas[layer.equation]) for layer in layers]
    return pairs, [g.reshape(len(rows), -1) for g in gradients]


def by_positions(traced: Traced, layer: Layer, pair: Pair) -> Pair:
    """(a (t, q_in), delta (j, t, q_out)) from a pair in the shapes of the layer's equation."""
    eqn = traced.jaxpr.eqns[layer.equation]
    return _positions(layer, eqn, pair[0]), _features_last(layer, eqn, pair[1])


def acting(traced: Traced, layer: Layer, entries: jax.Array, operands: jax.Array) -> jax.Array:
    """W a for a parameter of the given entries and the inputs (n, ..) of n samples."""
    for relabel in layer.relabels:
        entries = bind(relabel, [entries])
    eqn = traced.jaxpr.eqns[layer.equation]

    def one(a: jax.Array) -> jax.Array:
        image: jax.Array = bind_widened(eqn, [entries, a] if layer.side == 0 else [a, entries])
        return image

    return jax.vmap(one)(operands)


def _positions(layer: Layer, eqn: Any, operand: jax.Array) -> jax.Array:
    """The layer's input as (t, q_in)."""
    if layer.kind == "dot_general":
        contracted = eqn.params["dimension_numbers"][0][1 - layer.side]
        free = [axis for axis in range(operand.ndim) if axis not in contracted]
        return operand.transpose(*free, *contracted).reshape(-1, layer.inputs)
    return _patches(eqn, operand)


def _patches(eqn: Any, operand: jax.Array) -> jax.Array:
    """What a convolution's kernel sees at each position, (t, q_in), channels last.

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


def _features_last(layer: Layer, eqn: Any, delta: jax.Array) -> jax.Array:
    """Sensitivities (k, ..) as (k, t, q_out), positions in the order of :func:`_positions`."""
    if layer.kind == "dot_general":
        if layer.side == 1:
            return delta.reshape(len(delta), layer.positions, layer.outputs)
        return jnp.swapaxes(delta.reshape(len(delta), layer.outputs, layer.positions), 1, 2)
    batch, feature, *spatial = (axis + 1 for axis in eqn.params["dimension_numbers"].out_spec)
    return delta.transpose(0, batch, *spatial, feature).reshape(
        len(delta), layer.positions, layer.outputs
    )


def ordered(layer: Layer, traced: Traced, entries: jax.Array) -> jax.Array:
    """An array of the parameter's shape (a mask, say) in the order (q_in, q_out)."""
    for relabel in layer.relabels:
        if relabel.primitive.name != "convert_element_type":
            entries = bind(relabel, [entries])
    eqn = traced.jaxpr.eqns[layer.equation]
    if layer.kind == "dot_general":
        contracted = eqn.params["dimension_numbers"][0][layer.side]
        free = [axis for axis in range(entries.ndim) if axis not in contracted]
        return entries.transpose(*contracted, *free).reshape(layer.inputs, layer.outputs)
    out, into, *spatial = eqn.params["dimension_numbers"].rhs_spec
    return entries.transpose(*spatial, into, out).reshape(layer.inputs, layer.outputs)
