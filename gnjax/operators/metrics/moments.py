"""The second moments of inputs and of sensitivities, layer by layer, over all samples.

A matrix W acts at the positions t as z_t = W a_t. With delta_ct the sensitivity of row c of R^T F
to z_t, the rows of J have the parts sum_t delta_ct a_t^T, and

    A = sum_i w_i sum_t a_t a_t^T,   B = sum_i sum_c sum_t delta_ct delta_ct^T,
    s_xy = sum_i sum_c (u_x^T (sum_t a_t delta_ct^T) v_y)^2

for eigenvectors u_x of A and v_y of B. All columns of R count, some at a time; nothing is drawn.
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
from gnjax.networks.arguments.samples import same_size
from gnjax.networks.jacobians import Item, layer_of_leaf, pieces_of, sample_trace, uses_of
from gnjax.networks.layer_types.uses import Pair, by_positions, has_one_hot_inputs
from gnjax.networks.losses.targets import Target
from gnjax.networks.network import Network, parameter_names

_NUMBERS = 2.5e7  # that the arrays of a batch hold, at most, or those of one row of one sample
_einsum = partial(jnp.einsum, precision="highest")


@dataclass(frozen=True)
class _Part:
    """The g matrices of one layer that are entries of one parameter, and its possible biases.

    Attributes:
      parameter: the index of the parameter among the chosen leaves.
      layer: the index of its layer among the traced layers.
      uses: the indices of the uses of this layer that the matrices enter.
      is_lookup: whether every input a_t is a unit vector, so that A is diagonal.
      biases: the indices, among the chosen leaves, of parameters that may be its bias.
    """

    parameter: int
    layer: int
    uses: tuple[int, ...]
    is_lookup: bool
    biases: tuple[int, ...]


@dataclass(frozen=True)
class MomentPlan:
    """The parts of known structure, and the indices of all other parameters.

    Of the others the squared columns of J are summed, or with ``blocks`` their inner products.
    """

    parts: tuple[_Part, ...]
    others: tuple[int, ...]
    blocks: bool


class PartMoments(NamedTuple):
    """The sums over samples for one part, with g matrices from i inputs to o outputs.

    Attributes:
      left: A (g, i, i), the sum of a a^T over inputs a, or its diagonal (g, i) for a lookup.
      mean: the sum of a (g, i).
      right: B (g, o, o), the sum of delta delta^T over sensitivities delta.
      gaps: for every possible bias |J_b - sum_t delta_t|^2 and |J_b|^2, with its columns J_b of J.
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


def moment_plan(net: Network, *, blocks: bool) -> tuple[MomentPlan, list[np.ndarray]]:
    """Which second moments are summed for which parameters of a network.

    A parameter is a part if each of its entries is in exactly one matrix that the layer multiplies
    by. Returned are the plan, and for each part the indices (g, i, o) of the entries of its g
    matrices, from i inputs to o outputs, in the flattened parameter.
    """
    trace = sample_trace(net)
    of_leaf = layer_of_leaf(trace)
    parts: list[_Part] = []
    entries: list[np.ndarray] = []
    for parameter, leaf in enumerate(net.leaf_indices):
        index = of_leaf.get(leaf)
        if index is None or net.entry_indices[parameter] is not None:
            continue  # no known layer, or some entries are masked
        layer = trace.layers[index]
        matrices_and_uses = layers.with_same_matrices(layer, net.leaves[leaf].shape)
        covered = np.sort(np.concatenate([matrix.ravel() for matrix, _ in matrices_and_uses]))
        if not np.array_equal(covered, np.arange(net.counts[parameter])):
            continue  # an entry in two matrices, or in none
        for matrices, uses in matrices_and_uses:
            is_lookup = all(has_one_hot_inputs(layer.uses[use]) for use in uses)
            parts.append(_Part(parameter, index, tuple(uses), is_lookup, ()))
            entries.append(matrices)
    with_matrices = {part.parameter for part in parts}
    others = tuple(i for i in range(len(net.leaf_indices)) if i not in with_matrices)
    with_biases = tuple(
        replace(part, biases=_possible_biases(net, part, matrices.shape, others))
        for part, matrices in zip(parts, entries, strict=True)
    )
    return MomentPlan(with_biases, others, blocks), entries


def _possible_biases(
    net: Network, part: _Part, shape: tuple[int, ...], candidates: Sequence[int]
) -> tuple[int, ...]:
    """The indices, among ``candidates``, of parameters that may be the bias of a part.

    They have an entry for each output of the matrices, whose shape is (g, i, o).
    """
    names, outputs = parameter_names(net), shape[0] * shape[2]
    module = names[part.parameter].rpartition("/")[0]
    return tuple(
        candidate
        for candidate in candidates
        if names[candidate].rpartition("/")[0] == module
        and net.counts[candidate] == outputs
        and net.entry_indices[candidate] is None
        and not part.is_lookup
    )


def layer_moments(net: Network, plan: MomentPlan) -> LayerMoments:
    """The second moments of ``plan``, summed over all samples of a network."""
    return _summed(_Moments(plan), net)


def squared_sensitivities(
    net: Network, plan: MomentPlan, biased: tuple[bool, ...], bases: Bases
) -> list[jax.Array]:
    """For every part of the plan (g matrices of one layer), EK-FAC's eigenvalues s (g, i, o).

    They are the diagonal of J^T J in the basis U (x) V, whose columns are u_x and v_y: the sums
    s_xy of this module. ``biased`` says which parts have a bias: a one is then appended to a_t.
    ``bases`` are U (g, i, i) and V (g, o, o) of every part.
    """
    entries = sum(net.counts[part.parameter] for part in plan.parts)
    return _summed(_Squares(replace(plan, others=()), biased, bases), net, entries)


def _summed(sums: _Moments | _Squares, net: Network, added_width: int = 0) -> Any:
    """The sum of the results of ``sums`` over all rows of R^T J, for some of them at a time.

    A row of a sample takes its pairs of inputs and sensitivities, its columns, and ``added_width``
    numbers.
    """
    plan = sums.plan
    layers_of_parts = {part.parameter: part.layer for part in plan.parts}
    # Pairs have the width 0 here, as the results of their uses are counted below.
    pairs = [Item(parameter, layer, "pair", 0) for parameter, layer in layers_of_parts.items()]
    columns = (Item(other, None, "columns", net.counts[other]) for other in plan.others)
    trace, items = sample_trace(net), (*pairs, *columns)
    uses = [use for item in items for use in uses_of(trace, item)]
    width = net.k + sum(use.results for use in uses) + sum(item.width for item in items)
    width += added_width
    rows = int(min(net.rows, max(1, _NUMBERS // width)))
    samples = int(min(net.batch, max(1, _NUMBERS // (rows * width))))
    portion = same_size(net.samples, samples), rows
    results = pieces_of(net, items, portion=portion, through=sums)
    return reduce(partial(jax.tree.map, jnp.add), results)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Moments:
    """The second moments of ``plan``, as a function of n samples and j of their rows of R^T J."""

    plan: MomentPlan = field(metadata={"static": True})

    def __call__(
        self, net: Network, samples: Any, pairs: list[Pair], rows: jax.Array
    ) -> LayerMoments:
        """The sums over n samples from which K-FAC's factors are made.

        They are made of the inputs and sensitivities in ``pairs``, and of the ``rows`` (n, j, p'),
        the columns of J of all parameters that are in no part. A sample of ``samples`` (x,
        target) has the mean of the weights of its loss's terms.
        """
        plan, weights = self.plan, jnp.ones(len(rows))
        # In the network of an empirical Fisher matrix the target is in x, as losses are outputs.
        leaves = jax.tree.leaves(samples, is_leaf=lambda node: isinstance(node, Target))
        target = next((leaf for leaf in leaves if isinstance(leaf, Target)), None)
        if target is not None and target.weights is not None:
            weights = target.weights.reshape(len(rows), -1).mean(axis=1)
        ends = np.cumsum([net.counts[other] for other in plan.others])[:-1]
        # Without others, ``split`` returns the one array without columns, and zip ends before it.
        columns_of = dict(zip(plan.others, jnp.split(rows, ends, axis=2), strict=bool(plan.others)))
        parts = []
        # a is (n, t, g, i) and delta (n, j, t, g, o) for t positions and g matrices.
        for part, (a, delta) in zip(plan.parts, _by_parts(net, plan, pairs), strict=True):
            weighted = weights[:, None, None, None] * a
            rule = "ntgi,ntgi->gi" if part.is_lookup else "ntgi,ntgj->gij"
            # The columns of J that a bias would have: sum_t delta_t. A parameter is the bias of
            # this layer if its own columns differ from them by no more than rounding.
            bias_rows = delta.sum(axis=2).reshape(*delta.shape[:2], -1)
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
    """The sums s of :func:`squared_sensitivities`, of n samples and j of their rows."""

    plan: MomentPlan = field(metadata={"static": True})
    biased: tuple[bool, ...] = field(metadata={"static": True})
    bases: Bases

    def __call__(
        self, net: Network, samples: Any, pairs: list[Pair], rows: jax.Array
    ) -> list[jax.Array]:
        """For every part sum (u_x^T (sum_t a_t delta_t^T) v_y)^2 over samples and rows, (g, x, y).

        sum_t a_t delta_t^T (i, o) is a row of J for the layer's weights. A bias counts as one more
        row of the weights, whose input is 1.
        """
        del samples, rows
        sums = []
        of_parts = zip(_by_parts(net, self.plan, pairs), self.bases, self.biased, strict=True)
        for (a, delta), (u, v), has_bias in of_parts:
            if has_bias:
                a = jnp.concatenate([a, jnp.ones_like(a[..., :1])], axis=-1)
            a = a if u is None else _einsum("ntgi,gix->ntgx", a, u)
            delta = delta if v is None else _einsum("njtgo,goy->njtgy", delta, v)
            if a.shape[1] == 1:  # with one position the square of a product is one of squares
                sums.append(_einsum("ntgx,njtgy->gxy", jnp.square(a), jnp.square(delta)))
            else:
                products = _einsum("ntgx,njtgy->njgxy", a, delta)
                sums.append(jnp.square(products).sum(axis=(0, 1)))
        return sums


def _by_parts(net: Network, plan: MomentPlan, pairs: Sequence[Pair]) -> list[Pair]:
    """The inputs a (n, t, g, i) and sensitivities delta (n, j, t, g, o) of every part of the plan.

    ``pairs`` are those of n samples for all uses of all layers, in the shapes of their equations;
    delta are the derivatives of j outputs. The positions t of a part are those of all uses that its
    matrices enter, one use after the other.
    """
    trace, pairs_left = sample_trace(net), iter(pairs)
    of_layer: dict[int, list[Pair]] = {}
    for layer in dict.fromkeys(part.layer for part in plan.parts):
        of_layer[layer] = [
            jax.vmap(partial(by_positions, use, dtype=net.dtype))(next(pairs_left))
            for use in trace.layers[layer].uses
        ]
    joined = []
    for part in plan.parts:
        pairs_of_part = [of_layer[part.layer][use] for use in part.uses]
        a = jnp.concatenate([pair[0] for pair in pairs_of_part], axis=1)
        joined.append((a, jnp.concatenate([pair[1] for pair in pairs_of_part], axis=2)))
    return joined
