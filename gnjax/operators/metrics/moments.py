"""The second moments of inputs and of sensitivities, layer by layer, over all samples.

A matrix W acts at the positions t as z_t = W a_t. With delta_ct the sensitivity of row c of R^T F
to z_t, the rows of J have the parts sum_t delta_ct a_t^T, and

    A = sum_i w_i sum_t a_t a_t^T,   B = sum_i sum_c sum_t delta_ct delta_ct^T,
    s_xy = sum_i sum_c (u_x^T (sum_t a_t delta_ct^T) v_y)^2

for eigenvectors u_x of A and v_y of B. The columns of R are all there, some at a time; nothing is
drawn. The arrays of a batch hold at most ``_NUMBERS`` numbers, or those of one row of one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.forms.samples import same_size
from gnjax.networks.jacobians import Item, layer_of_leaf, pieces_of, sample_trace, uses_of
from gnjax.networks.layer_types.uses import Pair, by_positions, has_places
from gnjax.networks.network import Network, parameter_names
from gnjax.networks.outputs.targets import Target

_NUMBERS = 2.5e7


@dataclass(frozen=True)
class _Part:
    """Matrices W_g of one parameter, and the parameters that may be their bias.

    Attributes:
      place: the index of the parameter among the chosen leaves.
      layer: the index of its layer among the traced layers.
      uses: the indices of the uses of this layer that the matrices enter.
      is_lookup: whether every a_t is a unit vector, so that A is diagonal.
      biases: the places of parameters beside it with one number for each row of W.
    """

    place: int
    layer: int
    uses: tuple[int, ...]
    is_lookup: bool
    biases: tuple[int, ...]


@dataclass(frozen=True)
class MomentPlan:
    """The parts of known structure, and the indices of all other parameters.

    For the others the squared lengths of their columns of J are summed, or with ``blocks`` the
    inner products of these columns.
    """

    parts: tuple[_Part, ...]
    others: tuple[int, ...]
    blocks: bool


class PartMoments(NamedTuple):
    """The sums of one part.

    These are A (g, i, i), or its diagonal (g, i) for a lookup; sum a (g, i); B (g, o, o); and for
    every possible bias |J_b - sum_t delta_t|^2 and |J_b|^2.
    """

    left: Any
    mean: Any
    right: Any
    gaps: list[tuple[Any, Any]]


class LayerMoments(NamedTuple):
    """The sums of all parts and of all other parameters, of some samples."""

    parts: list[PartMoments]
    others: list[Any]  # (m,) or (m, m)
    weight: Any  # the sum of the samples' weights, once for each pass over them


Bases = list[tuple[jax.Array | None, jax.Array | None]]
"""U (g, i, i) and V (g, o, o) of every part; None for the identity."""


def plan(net: Network, *, blocks: bool) -> tuple[MomentPlan, list[np.ndarray]]:
    """The plan for all parameters, and for each part the indices (g, i, o) of W_g in its leaf."""
    trace = sample_trace(net)
    of_leaf = layer_of_leaf(trace)
    parts: list[_Part] = []
    entries: list[np.ndarray] = []
    for place, leaf in enumerate(net.leaf_indices):
        index = of_leaf.get(leaf)
        if index is None or net.entry_indices[place] is not None:
            continue
        layer = trace.layers[index]
        matrices_and_uses = layers.with_same_matrices(layer, net.leaves[leaf].shape)
        covered = np.sort(np.concatenate([places.ravel() for places, _ in matrices_and_uses]))
        if not np.array_equal(covered, np.arange(net.counts[place])):
            continue  # an entry in two matrices, or in none
        for places, uses in matrices_and_uses:
            is_lookup = all(has_places(layer.uses[use]) for use in uses)
            parts.append(_Part(place, index, tuple(uses), is_lookup, ()))
            entries.append(places)
    with_matrices = {part.place for part in parts}
    others = tuple(place for place in range(len(net.leaf_indices)) if place not in with_matrices)
    pairs = zip(parts, entries, strict=True)
    with_biases = tuple(
        replace(part, biases=_biases(net, part, rows, others)) for part, rows in pairs
    )
    return MomentPlan(with_biases, others, blocks), entries


def _biases(
    net: Network, part: _Part, entries: np.ndarray, others: Sequence[int]
) -> tuple[int, ...]:
    """The places, among ``others``, of what may be the bias that goes with a weight.

    It is a whole parameter of the same module with an entry for each output of the weight. A lookup
    has none. ``entries`` (g, i, o) are the indices of the weight's groups, inputs and outputs.
    """
    names, outputs = parameter_names(net), len(entries) * entries.shape[2]
    module = names[part.place].rpartition("/")[0]
    return tuple(
        place
        for place in others
        if names[place].rpartition("/")[0] == module
        and net.counts[place] == outputs
        and net.entry_indices[place] is None
        and not part.is_lookup
    )


def layer_moments(net: Network, plan: MomentPlan) -> LayerMoments:
    """The sums over all samples of a network."""
    total: LayerMoments = _summed(_Moments(plan), net, plan)
    return total


def squared_sensitivities(
    net: Network, plan: MomentPlan, biased: tuple[bool, ...], bases: Bases
) -> list[jax.Array]:
    """s (g, i, o) of every part in its bases; ``biased`` says which parts have a bias."""
    plan = replace(plan, others=())
    entries = sum(net.counts[part.place] for part in plan.parts)
    total: list[jax.Array] = _summed(_Squares(plan, biased, bases), net, plan, entries)
    return total


def _summed(sums: _Moments | _Squares, net: Network, plan: MomentPlan, more: int = 0) -> Any:
    """The sum of ``sums`` over J, some samples and rows of R^T at a time.

    For a row of R^T each sample takes ``more`` numbers than those of its pairs and rows.
    """
    trace, items = sample_trace(net), _items(net, plan)
    pairs = [use for item in items for use in uses_of(trace, item)]
    width = net.k + sum(use.results for use in pairs) + sum(item.width for item in items) + more
    rows = int(min(net.rows, max(1, _NUMBERS // width)))
    samples = int(min(net.batch, max(1, _NUMBERS // (rows * width))))
    portion = same_size(net.samples, samples), rows
    parts = pieces_of(net, items, portion=portion, through=sums)
    return reduce(partial(jax.tree.map, jnp.add), parts)


def _items(net: Network, plan: MomentPlan) -> tuple[Item, ...]:
    """The pairs of all parts, and the columns of J of all other parameters."""
    layers_of_parts = {part.place: part.layer for part in plan.parts}
    pairs = [Item(place, layer, "pair", 0) for place, layer in layers_of_parts.items()]
    return (*pairs, *(Item(place, None, "rows", net.counts[place]) for place in plan.others))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Moments:
    """The sums over some samples, and over some rows of R^T."""

    plan: MomentPlan = field(metadata={"static": True})

    def __call__(
        self, net: Network, target: Target | None, pairs: list[Pair], rows: jax.Array
    ) -> LayerMoments:
        plan, weights = self.plan, _sample_weights(target, len(rows))
        ends = np.cumsum([net.counts[place] for place in plan.others])[:-1]
        columns_of = dict(zip(plan.others, jnp.split(rows, ends, axis=2), strict=bool(plan.others)))
        parts = []
        for part, (a, delta) in zip(plan.parts, _by_parts(net, plan, pairs), strict=True):
            weighted = weights[:, None, None, None] * a
            rule = "ntgi,ntgi->gi" if part.is_lookup else "ntgi,ntgj->gij"
            bias_rows = delta.sum(axis=2).reshape(*delta.shape[:2], -1)  # over positions: (n, j, .)
            gaps = [
                (jnp.square(columns_of[bias] - bias_rows).sum(), jnp.square(columns_of[bias]).sum())
                for bias in part.biases
            ]
            left = _einsum(rule, weighted, a)
            right = _einsum("njtgo,njtgp->gop", delta, delta)
            parts.append(PartMoments(left, weighted.sum(axis=(0, 1)), right, gaps))
        rule = "njp,njq->pq" if plan.blocks else "njp,njp->p"
        others = [_einsum(rule, columns, columns) for columns in columns_of.values()]
        return LayerMoments(parts, others, weights.sum())


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Squares:
    """The sums s of some samples, and of some rows of R^T."""

    plan: MomentPlan = field(metadata={"static": True})
    biased: tuple[bool, ...] = field(metadata={"static": True})
    bases: Bases

    def __call__(
        self, net: Network, target: Target | None, pairs: list[Pair], rows: jax.Array
    ) -> list[jax.Array]:
        del target, rows
        sums = []
        of_parts = zip(_by_parts(net, self.plan, pairs), self.bases, self.biased, strict=True)
        for (a, delta), (u, v), has_bias in of_parts:
            if has_bias:
                a = jnp.concatenate([a, jnp.ones_like(a[..., :1])], axis=-1)
            a = a if u is None else _einsum("ntgi,gix->ntgx", a, u)
            delta = delta if v is None else _einsum("njtgo,goy->njtgy", delta, v)
            if a.shape[1] == 1:
                sums.append(_einsum("ntgx,njtgy->gxy", jnp.square(a), jnp.square(delta)))
            else:
                products = _einsum("ntgx,njtgy->njgxy", a, delta)
                sums.append(jnp.square(products).sum(axis=(0, 1)))
        return sums


def _by_parts(net: Network, plan: MomentPlan, pairs: Sequence[Pair]) -> list[Pair]:
    """a (n, t, g, i) and delta (n, j, t, g, o) of every part, from the pairs of all uses."""
    trace, pairs_left = sample_trace(net), iter(pairs)
    placed: dict[int, list[Pair]] = {}
    for layer in dict.fromkeys(part.layer for part in plan.parts):
        placed[layer] = [
            jax.vmap(partial(by_positions, use, dtype=net.dtype))(next(pairs_left))
            for use in trace.layers[layer].uses
        ]
    joined = []
    for part in plan.parts:
        pairs_of_part = [placed[part.layer][use] for use in part.uses]
        a = jnp.concatenate([pair[0] for pair in pairs_of_part], axis=1)
        joined.append((a, jnp.concatenate([pair[1] for pair in pairs_of_part], axis=2)))
    return joined


def _sample_weights(target: Target | None, samples: int) -> jax.Array:
    """The weight (n,) of every sample: the mean of those of its terms."""
    if target is None or target.weights is None:
        return jnp.ones(samples)
    return target.weights.reshape(samples, -1).mean(axis=1)


def _einsum(rule: str, first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.einsum(rule, first, second, precision="highest")
