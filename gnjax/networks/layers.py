"""Layers, found in the jaxpr of a network rather than in its class.

A parameter W enters a network in one or several equations, its uses, z_t = W a_t at the positions t
of a sample. With the sensitivities delta_t = d f / d z_t the Jacobian by W is the sum of
delta_t a_t^T over the positions of all uses.
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

    The function is traced, not evaluated; ``sample`` may be shapes and dtypes. A parameter makes a
    layer if every equation that it enters is of a known type, and it is not returned as it is.
    """
    flat = inlined(lambda *args: function(args[:-1], args[-1]), *leaves, sample)
    record = _Record([], set())
    variables_of_leaves = flat.jaxpr.invars[: len(leaves)]
    sources = {variable: _Source(leaf) for leaf, variable in enumerate(variables_of_leaves)}
    _search(flat.jaxpr, sources, record)
    returned = [sources[v].leaf for v in variables(flat.jaxpr.outvars) if v in sources]
    record.unknown.update(returned)
    known_leaves = dict.fromkeys(use.leaf for use in record.uses if use.leaf not in record.unknown)
    layers = (Layer(leaf, tuple(u for u in record.uses if u.leaf == leaf)) for leaf in known_leaves)
    return TracedLayers(flat.jaxpr, tuple(flat.consts), tuple(layers))


@dataclass(frozen=True)
class _Source:
    """The parameter of which a variable is a rearrangement, and the steps from it to the variable.

    A step is a reshape, a transpose, a slice or the like, or the way into the body of a loop.
    """

    leaf: int  # index of the parameter among the leaves
    steps: tuple[Relabel | Loop, ...] = ()

    def after(self, step: Relabel | Loop) -> _Source:
        """The source of the variable that is one step further from the same parameter."""
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class _Record:
    """The uses that were found, and the parameters that have uses of an unknown structure."""

    uses: list[Use]
    unknown: set[int]  # the indices of these parameters among the leaves


def _needed(jaxpr: Any) -> list[Any]:
    """The equations of a jaxpr that its results depend on, in their order."""
    needed_variables, equations = set(variables(jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if needed_variables.intersection(eqn.outvars):
            needed_variables.update(variables(eqn.invars))
            equations.append(eqn)
    return equations[::-1]


def _search(jaxpr: Any, sources: dict[Any, _Source], record: _Record) -> None:
    """Follow parameters through a jaxpr, and note the equations that use them in ``record``.

    ``sources`` has the variables that are rearrangements of a parameter; more are added on the way.
    A parameter is noted as unknown if it enters an equation that is no layer of a known type, or
    one that another parameter enters as well.
    """
    # the variables that any equation reads; the stacked results of a scan may not be among them
    reads = {v for eqn in jaxpr.eqns for v in variables(eqn.invars)} | set(variables(jaxpr.outvars))
    for eqn in _needed(jaxpr):
        sides = {  # the operands that come from a parameter, by their index
            side: sources[v]
            for side, v in enumerate(eqn.invars)
            if not isinstance(v, core.Literal) and v in sources
        }
        # an equation that only rearranges or selects entries of its operand, none of them twice
        relabels = eqn.primitive.name in _RELABELS and all(
            result.aval.size <= eqn.invars[0].aval.size for result in eqn.outvars
        )
        if sides and eqn.primitive.name == "scan":
            _search_scan(eqn, sides, sources, reads, record)
        elif len(sides) == len(eqn.invars) == 1 and relabels:
            for index, result in enumerate(eqn.outvars):
                sources[result] = sides[0].after(Relabel(eqn, index))
        elif sides:
            uses = [_use(eqn, side, source) for side, source in sides.items()]
            if len(uses) == 1 and uses[0] is not None:
                record.uses.append(uses[0])
            else:
                record.unknown.update(source.leaf for source in sides.values())


def _use(eqn: Any, side: int, source: _Source) -> Use | None:
    """The layer z_t = W a_t that an equation computes with operand ``side``; None if it is none.

    Complex results make no layer, as where real weights act on complex inputs: the derivative by
    the weights is then only the real part of sum_t delta_t a_t^T.
    """
    name = eqn.primitive.name
    layer_type = LAYER_TYPES.get(name) if floats(eqn.outvars[0]) else None
    sizes = None if layer_type is None else layer_type.sizes(eqn, side)
    if layer_type is None or sizes is None:
        return None
    terms = sizes.inputs if layer_type.one_hot_indices is None else 1
    return Use(source.leaf, eqn, source.steps, name, side, sizes, terms)


def _search_scan(
    eqn: Any,
    sides: dict[int, _Source],
    sources: dict[Any, _Source],
    reads: set[Any],
    record: _Record,
) -> None:
    """Follow parameters into the body of a scan, and note the equations that use them.

    ``sides`` are the operands that come from a parameter, by their index, and ``reads`` the
    variables that are read outside of the body. A parameter that the scan carries can be followed
    if the body returns it unchanged. One that the body returns in place of another carried value is
    noted as unknown, and so is one among the results that the scan stacks, if anything reads those.
    """
    body, carry_start = eqn.params["jaxpr"].jaxpr, eqn.params["num_consts"]
    slices_start, length = carry_start + eqn.params["num_carry"], eqn.params["length"]
    sources_inside: dict[Any, _Source] = {}
    for side, source in sides.items():
        body_input = body.invars[side]
        if carry_start <= side < slices_start:
            if body.outvars[side - carry_start] is not body_input:
                record.unknown.add(source.leaf)
                continue
            sources[eqn.outvars[side - carry_start]] = source
        sources_inside[body_input] = source.after(Loop(length, sliced=side >= slices_start))
    _search(body, sources_inside, record)
    for index, (inside, outside) in enumerate(zip(body.outvars, eqn.outvars, strict=True)):
        if isinstance(inside, core.Literal) or inside not in sources_inside or outside in sources:
            continue
        carried = index < slices_start - carry_start
        if carried or outside in reads:
            record.unknown.add(sources_inside[inside].leaf)


def sensitivities(
    trace: TracedLayers,
    uses: Sequence[Use],
    others: Sequence[int],
    leaves: Sequence[jax.Array],
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> tuple[list[Pair], list[jax.Array]]:
    """The derivatives of M F by the results z = W a of layers, and by all other parameters.

    F (k,) are the outputs of one sample. An array of zeros, a tap, is added to each z: the
    derivative by the tap is the sensitivity delta = d (M F) / d z, for all layers from one backward
    pass for each row of M.

    Args:
      trace: the equations of F, and its layers.
      uses: the equations z = W a, one or several for each parameter W in a known layer.
      others: the indices of the other parameters, by which M F is differentiated itself.
      leaves: the parameters.
      sample: the sample, a pytree.
      weights: a function of the outputs F (k,) to M (j, k).

    Returns:
      The pair (a, delta) of each use in the shapes of its equation, delta with j rows, and the
      gradients (j, p) of the ``others``.
    """
    # for each result z the index of its tap, and the operand of its equation that holds a
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
    """Which entries of a parameter form the matrices W_g of a layer, and in which of its uses.

    A parameter of the given ``shape`` may enter several equations z_tg = W_g a_tg, its uses, with
    other slices of it or transposed. Uses with the same matrices are listed together, as pairs of
    flat indices (g, q_in, q_out) into the parameter and the indices of the uses.
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
    """The j rows (j, p) of the Jacobian by one parameter W: sum_t delta_t a_t^T for each row.

    The sum is over the positions t of all its uses, whose a and delta (j, ..) are the ``pairs``.
    The p columns are in the order of W's entries.
    """
    blocks = []  # for each set of matrices the entries of W in them, and the columns for these
    for entries, uses in with_same_matrices(layer, leaf.shape):
        pairs_of_uses = [
            by_positions(layer.uses[index], pairs[index], leaf.dtype) for index in uses
        ]
        a = jnp.concatenate([pair[0] for pair in pairs_of_uses])
        delta = jnp.concatenate([pair[1] for pair in pairs_of_uses], axis=1)
        product = jnp.einsum("tgi,jtgo->jgio", a, delta, precision="highest")
        blocks.append((entries.ravel(), product.reshape(len(delta), -1)))
    size = leaf.size
    total: jax.Array | None = None
    while blocks:  # blocks without a common entry are put together at once, and need no addition
        disjoint, blocks = _disjoint(blocks, size)
        rows = _in_order_of_entries(disjoint, size)
        total = rows if total is None else total + rows
    assert total is not None
    return total


_Block = tuple[np.ndarray, jax.Array]
"""The flat indices (m,) of different entries of a parameter, and columns (j, m) of J for them."""


def _disjoint(blocks: Sequence[_Block], size: int) -> tuple[list[_Block], list[_Block]]:
    """Divide blocks of columns of J into some that have no entry in common, and the others.

    Those of an entry in several blocks have to be added. The parameter has ``size`` entries.
    """
    unused = np.ones(size, bool)
    disjoint: list[_Block] = []
    overlapping: list[_Block] = []
    for block in blocks:
        entries, _ = block
        fits = bool(unused[entries].all())
        (disjoint if fits else overlapping).append(block)
        if fits:
            unused[entries] = False
    return disjoint, overlapping


def _in_order_of_entries(blocks: Sequence[_Block], size: int) -> jax.Array:
    """The columns (j, size) of J for all entries of a parameter, from blocks without a common one.

    An entry that is in no block has a column of zeros.
    """
    entries = np.concatenate([indices for indices, _ in blocks])
    columns = jnp.concatenate([columns_of_block for _, columns_of_block in blocks], axis=1)
    if len(entries) < size:
        columns = jnp.pad(columns, ((0, 0), (0, 1)))  # a last column of zeros
    source = np.full(size, len(entries))  # the column for each entry; by default the last one
    source[entries] = np.arange(len(entries))
    in_order = (source == np.arange(size)).all()  # no copy is needed then
    return columns if in_order else columns[:, source]
