"""Layers, found in the jaxpr of a network rather than in its class.

A parameter enters a network in one or several equations, its uses. Where
:mod:`gnjax.networks.layer_types` knows each of them, it acts on every position t of a sample as
z_t = W a_t (for a convolution a_t is a patch). With delta_t = d f / d z_t the Jacobian with respect
to W is the sum of delta_t a_t^T over the positions of all uses, so that the inputs a and the
sensitivities delta say everything about it, and no Jacobian is needed. Whatever else a network does
with a parameter is left to automatic differentiation.

The body of a scan is searched as well. A parameter that is the same in every step (the cell of a
recurrent network) has more positions; one that is sliced (stacked layers) has a matrix W_g for
each step g.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gnjax.networks.equations.taps import evaluate_tapped
from gnjax.networks.jaxprs import floats, inlined, variables
from gnjax.networks.layer_types import LAYER_TYPES, Loop, Relabel, Use
from gnjax.networks.layer_types.uses import Pair, by_positions, matrices

_RELABELS = frozenset(
    str.split("""
    broadcast_in_dim convert_element_type copy copy_p expand_dims reshape slice split squeeze
    transpose
    """)
)

Function = Callable[[Sequence[jax.Array], Any], jax.Array]
"""(parameters, one sample, which may be a pytree) to outputs."""


@dataclass(frozen=True)
class Layer:
    """A parameter, and all of its uses."""

    leaf: int
    uses: tuple[Use, ...]

    @property
    def only_use(self) -> Use | None:
        return self.uses[0] if len(self.uses) == 1 else None


@dataclass(frozen=True)
class TracedLayers:
    """The function of one sample as a flat list of equations, and its layers by their first use."""

    jaxpr: Any
    consts: tuple[jax.Array, ...]
    layers: tuple[Layer, ...]


def traced_layers(function: Function, leaves: Sequence[jax.Array], sample: Any) -> TracedLayers:
    """Find the layers of ``function(leaves, sample) -> (k,)``."""
    flat = inlined(lambda *args: function(args[:-1], args[-1]), *leaves, sample)
    record = _Record([], set())
    places = {var: _Place(leaf) for leaf, var in enumerate(flat.jaxpr.invars[: len(leaves)])}
    _search(flat.jaxpr, places, record)
    record.lost.update(places[v].leaf for v in variables(flat.jaxpr.outvars) if v in places)
    known_leaves = dict.fromkeys(use.leaf for use in record.uses if use.leaf not in record.lost)
    layers = (Layer(leaf, tuple(u for u in record.uses if u.leaf == leaf)) for leaf in known_leaves)
    return TracedLayers(flat.jaxpr, tuple(flat.consts), tuple(layers))


@dataclass(frozen=True)
class _Place:
    """The parameter whose entries a variable holds, and the steps from the parameter to it."""

    leaf: int
    steps: tuple[Relabel | Loop, ...] = ()

    def after(self, step: Relabel | Loop) -> _Place:
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class _Record:
    """The uses that were found, and the parameters that have uses of an unknown structure."""

    uses: list[Use]
    lost: set[int]


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that the results depend on, without those of extras beside the outputs."""
    reads, equations = set(variables(jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if reads.intersection(eqn.outvars):
            reads.update(variables(eqn.invars))
            equations.append(eqn)
    return equations[::-1]


def _search(jaxpr: Any, places: dict[Any, _Place], record: _Record) -> None:
    """Follow parameters through a jaxpr; ``places`` says which variables hold them."""
    reads = {v for eqn in jaxpr.eqns for v in variables(eqn.invars)} | set(variables(jaxpr.outvars))
    for eqn in _needed(jaxpr):
        sides = {
            side: places[v]
            for side, v in enumerate(eqn.invars)
            if not isinstance(v, core.Literal) and v in places
        }
        if sides and eqn.primitive.name == "scan":
            _search_scan(eqn, sides, places, reads, record)
        elif len(sides) == len(eqn.invars) == 1 and _relabels(eqn):
            for index, result in enumerate(eqn.outvars):
                places[result] = sides[0].after(Relabel(eqn, index))
        elif sides:
            uses = [_use(eqn, side, place) for side, place in sides.items()]
            if len(uses) == 1 and uses[0] is not None:
                record.uses.append(uses[0])
            else:
                record.lost.update(place.leaf for place in sides.values())


def _relabels(eqn: Any) -> bool:
    """Whether every result has entries of the operand, none of them twice."""
    size = eqn.invars[0].aval.size
    return eqn.primitive.name in _RELABELS and all(v.aval.size <= size for v in eqn.outvars)


def _use(eqn: Any, side: int, place: _Place) -> Use | None:
    """The use of a parameter in an equation, None where its structure is another.

    Where real weights act on complex inputs, J is the real part of what the structure gives.
    """
    name = eqn.primitive.name
    kind = LAYER_TYPES.get(name) if floats(eqn.outvars[0]) else None
    sizes = None if kind is None else kind.sizes(eqn, side)
    if kind is None or sizes is None:
        return None
    terms = sizes.inputs if kind.places is None else 1
    return Use(place.leaf, eqn, place.steps, name, side, sizes, terms)


def _search_scan(
    eqn: Any,
    sides: dict[int, _Place],
    places: dict[Any, _Place],
    reads: set[Any],
    record: _Record,
) -> None:
    """Follow parameters into the body of a scan; one that is carried through unchanged is known."""
    body, first = eqn.params["jaxpr"].jaxpr, eqn.params["num_consts"]
    second, length = first + eqn.params["num_carry"], eqn.params["length"]
    inner: dict[Any, _Place] = {}
    for side, place in sides.items():
        entry = body.invars[side]
        if first <= side < second:
            if body.outvars[side - first] is not entry:
                record.lost.add(place.leaf)
                continue
            places[eqn.outvars[side - first]] = place
        inner[entry] = place.after(Loop(length, sliced=side >= second))
    _search(body, inner, record)
    for index, (inside, outside) in enumerate(zip(body.outvars, eqn.outvars, strict=True)):
        if isinstance(inside, core.Literal) or inside not in inner or outside in places:
            continue
        if index < second - first or outside in reads:
            record.lost.add(inner[inside].leaf)


def sensitivities(
    trace: TracedLayers,
    uses: Sequence[Use],
    others: Sequence[int],
    leaves: Sequence[jax.Array],
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> tuple[list[Pair], list[jax.Array]]:
    """(a, delta (j, ..)) of each use in its equation's shapes, d f / d leaf (j, p) of the others.

    f = M F(x) where ``weights`` makes M (j, k) from the outputs F(x) (k,).
    """
    points = {use.equation.outvars[0]: (i, 1 - use.side) for i, use in enumerate(uses)}
    zeros = {i: jnp.zeros(use.tapped.shape, use.tapped.dtype) for i, use in enumerate(uses)}

    def outputs(
        taps: dict[int, jax.Array], chosen: list[jax.Array]
    ) -> tuple[jax.Array, dict[int, Any]]:
        all_leaves = list(leaves)
        for leaf, value in zip(others, chosen, strict=True):
            all_leaves[leaf] = value
        arguments = [*all_leaves, *jax.tree.leaves(sample)]
        results, operands = evaluate_tapped(trace.jaxpr, trace.consts, arguments, points, taps)
        return results[0], operands

    chosen = [leaves[leaf] for leaf in others]
    result, pullback, operands = jax.vjp(outputs, zeros, chosen, has_aux=True)
    rows = weights(result)
    deltas, gradients = jax.vmap(pullback)(rows)
    pairs = [(operands[i], deltas[i]) for i in range(len(uses))]
    return pairs, [g.reshape(len(rows), -1) for g in gradients]


def with_same_matrices(layer: Layer, shape: tuple[int, ...]) -> list[tuple[np.ndarray, list[int]]]:
    """The indices (g, q_in, q_out) of a leaf's entries that form matrices, and in which uses.

    Uses of the same matrices are listed together: their positions belong to one sum.
    """
    entries: Any = np.arange(int(np.prod(shape))).reshape(shape)
    with jax.ensure_compile_time_eval():  # XLA would take seconds to fold what sorts the entries
        entries_of_uses = [np.asarray(matrices(use, entries), entries.dtype) for use in layer.uses]
    together: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for index, places in enumerate(entries_of_uses):
        key = repr(places.shape).encode() + places.tobytes()
        together.setdefault(key, (places, []))[1].append(index)
    return list(together.values())


def jacobian_rows(layer: Layer, leaf: jax.Array, pairs: Sequence[Pair]) -> jax.Array:
    """sum_t delta_t a_t^T over positions and uses (j, p), in the order of the leaf's entries."""
    parts = []
    for places, uses in with_same_matrices(layer, leaf.shape):
        pairs_of_uses = [
            by_positions(layer.uses[index], pairs[index], leaf.dtype) for index in uses
        ]
        a = jnp.concatenate([pair[0] for pair in pairs_of_uses])
        delta = jnp.concatenate([pair[1] for pair in pairs_of_uses], axis=1)
        product = jnp.einsum("tgi,jtgo->jgio", a, delta, precision="highest")
        parts.append((places.ravel(), product.reshape(len(delta), -1)))
    size = leaf.size
    total: jax.Array | None = None
    while parts:
        disjoint, parts = _disjoint(parts, size)
        rows = _spread(disjoint, size)
        total = rows if total is None else total + rows
    assert total is not None
    return total


_Part = tuple[np.ndarray, jax.Array]
"""Different entries (m,) of a leaf, and columns (j, m) for them."""


def _disjoint(parts: Sequence[_Part], size: int) -> tuple[list[_Part], list[_Part]]:
    """Some parts of which no two have an entry in common, and the remaining parts."""
    unused = np.ones(size, bool)
    disjoint: list[_Part] = []
    overlapping: list[_Part] = []
    for part in parts:
        fits = bool(unused[part[0]].all())
        (disjoint if fits else overlapping).append(part)
        if fits:
            unused[part[0]] = False
    return disjoint, overlapping


def _spread(parts: Sequence[_Part], size: int) -> jax.Array:
    """The columns of J for all ``size`` entries of a leaf, put together from its parts.

    A part has places in the leaf and their columns. An entry that is in no part has a column of
    zeros.
    """
    places = np.concatenate([part[0] for part in parts])
    columns = jnp.concatenate([part[1] for part in parts], axis=1)
    if len(places) < size:
        columns = jnp.pad(columns, ((0, 0), (0, 1)))
    source = np.full(size, len(places))
    source[places] = np.arange(len(places))
    return columns if (source == np.arange(size)).all() else columns[:, source]
