"""Layers, found in the jaxpr of a network rather than in its class.

A parameter that enters a network once, in one of the ways that :mod:`gnjax.networks.layer_types`
lists, acts on every position t of a sample as z_t = W a_t (for a convolution a_t is a patch).
With delta_t = d f / d z_t the Jacobian with respect to W is sum_t delta_t a_t^T, so that the inputs
a and the sensitivities delta say everything about it, and no Jacobian is needed. Whatever else a
network does with a parameter is left to automatic differentiation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from gnjax.networks.jaxprs import bind, bind_widened, evaluate, inlined
from gnjax.networks.layer_types import LAYER_TYPES, Layer

_RELABELS = ("transpose", "reshape", "squeeze", "expand_dims", "copy", "convert_element_type")


Function = Callable[[Sequence[jax.Array], Any], jax.Array]
"""(parameters, one sample, which may be a pytree) to outputs."""

Pair = tuple[jax.Array, jax.Array]
"""The input of a layer and the sensitivities of outputs to its result."""


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
    name = eqn.primitive.name
    kind = LAYER_TYPES.get(name)
    sizes = None if kind is None else kind.sizes(eqn, side)
    if kind is None or sizes is None:
        return None
    inputs, outputs = sizes
    positions = eqn.outvars[0].aval.size // outputs
    terms = inputs if kind.places is None else 1
    return Layer(leaf, index, relabels, name, side, inputs, outputs, positions, terms)


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
    kind, eqn = LAYER_TYPES[layer.kind], traced.jaxpr.eqns[layer.equation]
    return kind.inputs(layer, eqn, pair[0]), kind.sensitivities(layer, eqn, pair[1])


def has_places(layer: Layer) -> bool:
    """Whether every a_t is a unit vector."""
    return LAYER_TYPES[layer.kind].places is not None


def by_places(traced: Traced, layer: Layer, pair: Pair) -> Pair:
    """The same with the place (t,) of the one in each a_t, where they are unit vectors."""
    kind, eqn = LAYER_TYPES[layer.kind], traced.jaxpr.eqns[layer.equation]
    assert kind.places is not None
    return kind.places(layer, eqn, pair[0]), kind.sensitivities(layer, eqn, pair[1])


def acting(traced: Traced, layer: Layer, entries: jax.Array, operands: jax.Array) -> jax.Array:
    """W a for a parameter of the given entries and the inputs (n, ..) of n samples."""
    for relabel in layer.relabels:
        entries = bind(relabel, [entries])
    eqn = traced.jaxpr.eqns[layer.equation]

    def one(a: jax.Array) -> jax.Array:
        image: jax.Array = bind_widened(eqn, [entries, a] if layer.side == 0 else [a, entries])
        return image

    return jax.vmap(one)(operands)


def ordered(layer: Layer, traced: Traced, entries: jax.Array) -> jax.Array:
    """An array of the parameter's shape (a mask, say) in the order (q_in, q_out)."""
    for relabel in layer.relabels:
        if relabel.primitive.name != "convert_element_type":
            entries = bind(relabel, [entries])
    eqn = traced.jaxpr.eqns[layer.equation]
    return LAYER_TYPES[layer.kind].entries(layer, eqn, entries)
