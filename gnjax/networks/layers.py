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
    """A parameter of which every use has a known structure, z_t = W a_t at its positions t."""

    leaf: int  # index of the parameter among the leaves
    uses: tuple[Use, ...]  # the equations that it enters

    @property
    def only_use(self) -> Use | None:
        """The use, if the parameter has one alone; else None."""
        return self.uses[0] if len(self.uses) == 1 else None


@dataclass(frozen=True)
class TracedLayers:
    """The function of one sample as a flat list of equations, and its layers by their first use."""

    jaxpr: Any
    consts: tuple[jax.Array, ...]
    layers: tuple[Layer, ...]


def traced_layers(function: Function, leaves: Sequence[jax.Array], sample: Any) -> TracedLayers:
    """The equations of ``function(leaves, sample) -> (k,)``, and the layers among them.

    The function is traced, not evaluated; ``sample`` may be shapes and dtypes. A parameter that is
    also used in another way than a layer's, or returned as it is, makes no layer.
    """
    flat = inlined(lambda *args: function(args[:-1], args[-1]), *leaves, sample)
    record = _Record([], set())
    holders = {var: _Held(leaf) for leaf, var in enumerate(flat.jaxpr.invars[: len(leaves)])}
    _search(flat.jaxpr, holders, record)
    record.lost.update(holders[v].leaf for v in variables(flat.jaxpr.outvars) if v in holders)
    known_leaves = dict.fromkeys(use.leaf for use in record.uses if use.leaf not in record.lost)
    layers = (Layer(leaf, tuple(u for u in record.uses if u.leaf == leaf)) for leaf in known_leaves)
    return TracedLayers(flat.jaxpr, tuple(flat.consts), tuple(layers))


@dataclass(frozen=True)
class _Held:
    """The parameter whose entries a variable holds, and the steps from the parameter to it."""

    leaf: int  # index of the parameter among the leaves
    steps: tuple[Relabel | Loop, ...] = ()

    def after(self, step: Relabel | Loop) -> _Held:
        """The same parameter, one step further."""
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class _Record:
    """The uses that were found, and the parameters that have uses of an unknown structure."""

    uses: list[Use]
    lost: set[int]


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that the results depend on, without those of extras beside the outputs."""
    needed_variables, equations = set(variables(jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if needed_variables.intersection(eqn.outvars):
            needed_variables.update(variables(eqn.invars))
            equations.append(eqn)
    return equations[::-1]


def _search(jaxpr: Any, holders: dict[Any, _Held], record: _Record) -> None:
    """Follow parameters through a jaxpr, and note their uses in ``record``.

    ``holders`` says which variables hold the entries of a parameter; more are added on the way. A
    parameter is lost in an equation of another structure, or in one that two parameters enter.
    """
    # what is read anywhere: the slices that a scan stacks may be read by nothing
    reads = {v for eqn in jaxpr.eqns for v in variables(eqn.invars)} | set(variables(jaxpr.outvars))
    for eqn in _needed(jaxpr):
        sides = {  # the operands that hold a parameter, by their index
            side: holders[v]
            for side, v in enumerate(eqn.invars)
            if not isinstance(v, core.Literal) and v in holders
        }
        if sides and eqn.primitive.name == "scan":
            _search_scan(eqn, sides, holders, reads, record)
        elif len(sides) == len(eqn.invars) == 1 and _relabels(eqn):
            for index, result in enumerate(eqn.outvars):
                holders[result] = sides[0].after(Relabel(eqn, index))
        elif sides:
            uses = [_use(eqn, side, held) for side, held in sides.items()]
            if len(uses) == 1 and uses[0] is not None:
                record.uses.append(uses[0])
            else:
                record.lost.update(held.leaf for held in sides.values())


def _relabels(eqn: Any) -> bool:
    """Whether every result has entries of the operand, none of them twice."""
    size = eqn.invars[0].aval.size
    return eqn.primitive.name in _RELABELS and all(v.aval.size <= size for v in eqn.outvars)


def _use(eqn: Any, side: int, held: _Held) -> Use | None:
    """The use of a parameter as operand ``side`` of an equation; None if that makes no layer.

    Where real weights act on complex inputs the result does not float, and there is no use: J is
    only the real part of what the structure gives.
    """
    name = eqn.primitive.name
    layer_type = LAYER_TYPES.get(name) if floats(eqn.outvars[0]) else None
    sizes = None if layer_type is None else layer_type.sizes(eqn, side)
    if layer_type is None or sizes is None:
        return None
    terms = sizes.inputs if layer_type.one_hot_indices is None else 1
    return Use(held.leaf, eqn, held.steps, name, side, sizes, terms)


def _search_scan(
    eqn: Any,
    sides: dict[int, _Held],
    holders: dict[Any, _Held],
    reads: set[Any],
    record: _Record,
) -> None:
    """Follow parameters into the body of a scan.

    The operands of a scan are its constants, then what it carries, then what it slices. A parameter
    that is carried is known if the body returns it unchanged. A parameter that the body returns in
    another way is lost, unless nothing reads what is stacked of it.

    Args:
      eqn: the scan.
      sides: the operands that hold a parameter, by their index.
      holders: the variables outside of the body that hold one.
      reads: the variables that are read outside of the body.
      record: where uses and lost parameters are noted.
    """
    body, carry_start = eqn.params["jaxpr"].jaxpr, eqn.params["num_consts"]
    slices_start, length = carry_start + eqn.params["num_carry"], eqn.params["length"]
    holders_inside: dict[Any, _Held] = {}
    for side, held in sides.items():
        body_input = body.invars[side]
        if carry_start <= side < slices_start:
            if body.outvars[side - carry_start] is not body_input:
                record.lost.add(held.leaf)
                continue
            holders[eqn.outvars[side - carry_start]] = held
        holders_inside[body_input] = held.after(Loop(length, sliced=side >= slices_start))
    _search(body, holders_inside, record)
    for index, (inside, outside) in enumerate(zip(body.outvars, eqn.outvars, strict=True)):
        if isinstance(inside, core.Literal) or inside not in holders_inside or outside in holders:
            continue
        carried = index < slices_start - carry_start
        if carried or outside in reads:
            record.lost.add(holders_inside[inside].leaf)


def sensitivities(
    trace: TracedLayers,
    uses: Sequence[Use],
    others: Sequence[int],
    leaves: Sequence[jax.Array],
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> tuple[list[Pair], list[jax.Array]]:
    """The derivatives of M F by what the layers compute, and by parameters in no known layer.

    F (k,) are the outputs of one sample, and M (j, k) holds the weights of j sums of them. A layer
    computes z = W a. An array of zeros, a tap, is added to each z: the derivative by the tap is the
    sensitivity delta = d (M F) / d z, for all uses from one backward pass for each row of M.

    Args:
      trace: the equations of F, and its layers.
      uses: the uses of parameters in layers.
      others: the indices of the leaves by which M F is differentiated itself.
      leaves: the parameters.
      sample: the sample, a pytree.
      weights: a function of the outputs F (k,) to M (j, k).

    Returns:
      The pair (a, delta) of each use, where a has the shape of the operand beside the parameter,
      and delta (j, ..) that of the equation's result; and the gradients (j, p) of the ``others``.
    """
    points = {use.equation.outvars[0]: (i, 1 - use.side) for i, use in enumerate(uses)}
    zeros = {i: jnp.zeros(use.tapped.shape, use.tapped.dtype) for i, use in enumerate(uses)}

    def outputs(
        taps: dict[int, jax.Array], chosen: list[jax.Array]
    ) -> tuple[jax.Array, dict[int, Any]]:
        """F (k,) with the taps added, and the operand of each use beside its parameter."""
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
    """Which entries of a parameter form the matrices of a layer, and in which of its uses.

    Uses may see other parts of the parameter, or its transpose. Uses of the same matrices are
    listed together: their positions belong to one sum. ``shape`` is that of the parameter.

    Returns:
      Pairs of flat indices (g, q_in, q_out) into the parameter, of g matrices from q_in inputs to
      q_out outputs, and of the indices of the uses that have these matrices.
    """
    entries: Any = np.arange(int(np.prod(shape))).reshape(shape)
    with jax.ensure_compile_time_eval():  # XLA would take seconds to fold what sorts the entries
        entries_of_uses = [np.asarray(matrices(use, entries), entries.dtype) for use in layer.uses]
    uses_by_entries: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for index, entries_of_use in enumerate(entries_of_uses):
        key = repr(entries_of_use.shape).encode() + entries_of_use.tobytes()
        uses_by_entries.setdefault(key, (entries_of_use, []))[1].append(index)
    return list(uses_by_entries.values())


def jacobian_rows(layer: Layer, leaf: jax.Array, pairs: Sequence[Pair]) -> jax.Array:
    """The j rows (j, p) of the Jacobian by one parameter: sum_t delta_t a_t^T for each row.

    The sum is over the positions t of all uses of the parameter. a_t is the input there, and
    delta_t the sensitivity of the row's output. The p columns are in the order of the parameter's
    entries.

    Args:
      layer: the layer of the parameter.
      leaf: the parameter.
      pairs: a and delta (j, ..) for each use, in the shapes of its equation.
    """
    parts = []
    for entries, uses in with_same_matrices(layer, leaf.shape):
        pairs_of_uses = [
            by_positions(layer.uses[index], pairs[index], leaf.dtype) for index in uses
        ]
        a = jnp.concatenate([pair[0] for pair in pairs_of_uses])
        delta = jnp.concatenate([pair[1] for pair in pairs_of_uses], axis=1)
        product = jnp.einsum("tgi,jtgo->jgio", a, delta, precision="highest")
        parts.append((entries.ravel(), product.reshape(len(delta), -1)))
    size = leaf.size
    total: jax.Array | None = None
    while parts:  # parts without a common entry are put together at once, and need no addition
        disjoint, parts = _disjoint(parts, size)
        rows = _in_order_of_entries(disjoint, size)
        total = rows if total is None else total + rows
    assert total is not None
    return total


_Part = tuple[np.ndarray, jax.Array]
"""The flat indices (m,) of different entries of a parameter, and columns (j, m) of J for them."""


def _disjoint(parts: Sequence[_Part], size: int) -> tuple[list[_Part], list[_Part]]:
    """Some parts of a parameter of which no two have an entry in common, and the remaining parts.

    A part begins with the flat indices of its entries. Columns of parts without common entries can
    be put side by side; those of an entry in several parts have to be added. ``size`` is the number
    of entries of the parameter.
    """
    unused = np.ones(size, bool)
    disjoint: list[_Part] = []
    overlapping: list[_Part] = []
    for part in parts:
        fits = bool(unused[part[0]].all())
        (disjoint if fits else overlapping).append(part)
        if fits:
            unused[part[0]] = False
    return disjoint, overlapping


def _in_order_of_entries(parts: Sequence[_Part], size: int) -> jax.Array:
    """The columns (j, size) of J for all entries of a parameter, from parts without common entries.

    A part has flat indices of entries and their columns. An entry that is in no part has a column
    of zeros.
    """
    entries = np.concatenate([part[0] for part in parts])
    columns = jnp.concatenate([part[1] for part in parts], axis=1)
    if len(entries) < size:
        columns = jnp.pad(columns, ((0, 0), (0, 1)))  # a last column of zeros
    source = np.full(size, len(entries))  # the column for each entry; by default the last one
    source[entries] = np.arange(len(entries))
    return columns if (source == np.arange(size)).all() else columns[:, source]
