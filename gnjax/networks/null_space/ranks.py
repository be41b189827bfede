"""Bounds on the rank of the Jacobian J of a network, from its equations, with their evidence.

They are ranks of J modulo a prime, or counts of columns and rows that are not zero there. The exact
rank is higher only if the prime divides all minors of a higher order, or if a comparison (of a
ReLU, say) goes the wrong way by rounding; so the evidence is "measured".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from gnjax.networks.arguments.samples import digest, windows
from gnjax.networks.equations.forward_mode import pushforward
from gnjax.networks.network import (
    Network,
    backward_parts,
    forward_products,
    gather,
    scatter,
)
from gnjax.networks.null_space.loss_projections import FORMED, loss_projections
from gnjax.networks.null_space.modulo import Followed, NotFollowedError, Number
from gnjax.networks.parameters import indices_of
from gnjax.numerics import modular
from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.host import on_device
from gnjax.numerics.rank_bound import RankBound, least

ALGEBRA = Error(
    0.0,
    MEASURED,
    reason="the rank of J modulo a prime, which cannot see a comparison that rounding turned, and "
    "for which masks of -1e4 or less are -inf",
)
_LOOKED_FOR = 2  # the rank is looked for if at most so many times the rows of J are nonzero columns
_A_SECOND = 5e6  # such numbers, which take about a second
_QUICK = 1e6  # numbers on the way to all rows of J, up to which it is looked for in any case
_WORK = 1e10  # multiplications, up to which J is formed modulo a prime and its rank found
_LARGEST = 2e7  # numbers of a network and its values, up to which its equations are followed
_ENTRIES = 2e6  # at most so many entries of the rows of J are formed at once

_Batches = Callable[[], Iterable[Network]]
"""The networks at all batches of samples; their parameters are the same."""


def rank_bounds(net: Network, groups: Sequence[Sequence[int]]) -> list[RankBound]:
    """For every group of chosen leaves, a bound on the rank of its columns of J."""
    return entry_rank_bounds(net, [indices_of(net.counts, group) for group in groups])


def entry_rank_bounds(
    net: Network, parts: Sequence[np.ndarray], *, only_quickly: bool = False
) -> list[RankBound]:
    """For each group of columns of J an upper bound on its rank; ``parts`` lists their indices.

    Three bounds are proved: the number of columns, the number of rows of samples that differ, and
    the number of rows whose weight in the loss is not zero (a label of -1 has the weight zero). If
    the network is small enough that its equations can be computed modulo a prime, they may give
    smaller bounds, which are measured; with ``only_quickly`` where that takes about a second.
    """
    terms = _weighted_terms(net, net.rows)
    rows_of_a_term = net.rows // terms.shape[1]
    rows = min(_different_samples(net) * net.rows, np.count_nonzero(terms) * rows_of_a_term)
    quick = rows * _size(net) <= _QUICK
    if only_quickly and rows * _size(net) > _A_SECOND:
        return [least(RankBound(len(part)), RankBound(rows)) for part in parts]
    most_columns = math.inf if quick else _LOOKED_FOR * rows
    bounds = _bounds(net, lambda: iter((net,)), parts, rows, most_columns)
    if not _can_be_followed(net):
        return bounds
    return [_bound_by_rows(net, part, b) for part, b in zip(parts, bounds, strict=True)]


def _different_samples(net: Network) -> int:
    """How many samples differ; coupled ones count as different, as their place may matter."""
    if net.coupled or not _in_one_process(net):
        return net.samples
    x = jax.tree.map(np.asarray, net.x)
    return len({digest(x, i, i + 1) for i in range(net.samples)})  # equal for equal samples


def rank_bound_of_batches(first: Network, batches: _Batches, rows: int) -> RankBound:
    """An upper bound on the rank of the Jacobian J (rows, p) where its samples come in batches."""
    return _bounds(first, batches, [np.arange(first.parameters)], rows, _LOOKED_FOR * rows)[0]


def _bounds(
    first: Network,
    batches: _Batches,
    parts: Sequence[np.ndarray],
    rows: int,
    most_columns: float,
) -> list[RankBound]:
    """For each group of columns of J an upper bound on its rank.

    The bound is the number of columns, or of ``rows`` that are different and not zero, or the rank
    modulo a prime. That rank is computed for a group in which few columns are nonzero in floating
    arithmetic: fewer than the bound by its shape, or at most ``most_columns`` and so few that
    elimination modulo the prime takes little work. With more columns than that J seldom has
    dependent rows. ``first`` is the network at the first batch of samples.
    """
    bounds = [least(RankBound(len(part)), RankBound(rows)) for part in parts]
    if not _can_be_followed(first):
        return bounds
    by_loss = _rows_of_loss(first, batches, rows)
    if by_loss < rows:
        rows, bounds = by_loss, [least(bound, RankBound(by_loss, ALGEBRA)) for bound in bounds]
    seems_nonzero = _nonzero_columns(batches, parts, most_columns)
    counts = [int(np.count_nonzero(seems_nonzero[part])) for part in parts]
    searched = [  # the groups whose rank modulo the prime is computed
        i
        for i, (count, bound) in enumerate(zip(counts, bounds, strict=True))
        if count < bound.value or (count <= most_columns and _work(rows, count) <= _WORK)
    ]
    try:
        ranks = _ranks(first, batches, [parts[i] for i in searched], rows) if searched else []
    except (NotFollowedError, OverflowError):  # an equation has no residues, or a sum is too long
        return bounds
    for i, rank in zip(searched, ranks, strict=True):
        bounds[i] = least(bounds[i], RankBound(rank, ALGEBRA))
    return bounds


def _rows_of_loss(first: Network, batches: _Batches, rows: int) -> int:
    """The sum of the ranks of the output Hessians of a loss of the caller's; ``rows`` for others.

    Only for these does the loss itself not tell the number of rows.
    """
    if first.target is None or not callable(first.target.loss) or rows * first.k > FORMED:
        return rows
    return min(rows, sum(int(loss_projections(net).ranks.sum()) for net in batches()))


def _work(rows: int, columns: int) -> float:
    """About how many multiplications the rank of a matrix (rows, columns) takes, by elimination."""
    return float(rows) * columns * min(rows, columns)


def _ranks(first: Network, batches: _Batches, parts: Sequence[np.ndarray], rows: int) -> list[int]:
    """For each group of columns of J its rank modulo the prime, or how many are not zero there.

    The rank is computed where it takes little work, from random sums of all rows of J; elsewhere
    the columns are counted. As many sums are taken as the largest group has columns, or as there
    are rows if these are fewer: such sums span what the rows span, but for a chance of about
    1 / prime.
    """
    nonzero = _exact_columns(first, batches)
    nonzero_parts = [part[nonzero[part]] for part in parts]
    small = [0 < _work(rows, len(part)) <= _WORK for part in nonzero_parts]
    small_parts = [part for part, is_small in zip(nonzero_parts, small, strict=True) if is_small]
    if not small_parts:
        return [len(part) for part in nonzero_parts]
    columns = np.unique(np.concatenate(small_parts))
    sums = _sums_of_rows(first, batches, columns, min(rows, max(map(len, small_parts))))
    # ``columns`` is sorted, so that searchsorted gives the place of each column in the sums
    return [
        modular.rank(_square(sums[:, np.searchsorted(columns, part)])) if is_small else len(part)
        for part, is_small in zip(nonzero_parts, small, strict=True)
    ]


def _square(matrix: np.ndarray) -> np.ndarray:
    """A square matrix of residues of the same rank, but for a chance of about 1 / prime.

    Random sums take the place of its rows or columns, whichever are more.
    """
    rows, columns = matrix.shape
    # the seeds 2 and 3 are those of no other draw here, so that the sums are independent of others
    if rows > columns:
        return modular.product(modular.drawn(2, columns, rows), matrix)
    return modular.product(matrix, modular.drawn(3, columns, rows)) if columns > rows else matrix


def _sums_of_rows(first: Network, batches: _Batches, columns: np.ndarray, count: int) -> np.ndarray:
    """``count`` sums of all rows of J with random weights, modulo the prime: (count, columns).

    So J itself need not be held.
    """
    total: Any = np.zeros((count, len(columns)), np.int64)
    rng = np.random.default_rng(1)
    for rows in _blocks_of_rows(first, batches):
        weights = rng.integers(0, modular.PRIME, (count, len(rows)))
        total = (total + modular.product(weights, rows[:, columns])) % modular.PRIME
    return total


def _blocks_of_rows(first: Network, batches: _Batches) -> Iterator[np.ndarray]:
    """Yield the rows (.., p) of P dF/dtheta modulo the prime, some at a time.

    F are the outputs of all samples, and P_i are those of :func:`loss_projections`. Rows of outputs
    whose term of the loss has the weight zero are left out.
    """
    of_batch, of_samples = Followed(partial(_together, first)), Followed(partial(_apart, first))
    for net in batches():
        leaves, weighted = list(net.leaves), _weighted(net, net.k)  # a mask (n, k)
        projections = loss_projections(net)
        # numbers that one row takes: its entries, or the values on the way to it
        width = max(net.parameters, net.written * (net.samples if net.coupled else 1))
        if net.coupled:
            samples, outputs = np.nonzero(weighted)
            pieces = math.ceil(len(samples) * width / _ENTRIES)
            for places in np.array_split(np.arange(len(samples)), pieces):
                i, row = samples[places], np.arange(len(places))
                unit_vectors = np.zeros((len(places), net.k), np.int64)
                unit_vectors[row, outputs[places]] = 1
                u = np.zeros((len(places), net.samples, net.k), np.int64)
                u[row, i] = projections.times(unit_vectors, i)
                yield of_batch(leaves, net.x, Number(u.reshape(len(places), -1)))
            continue
        samples_at_once = max(1, int(_ENTRIES / (net.k * width)))
        for (x, at), seen_before in windows((net.x, np.arange(net.samples)), samples_at_once):
            new = np.asarray(at)[seen_before:]  # the last window may overlap the one before
            matrices = Number(projections.at(np.asarray(at)))
            rows = of_samples(leaves, x, matrices)  # (n, k, p)
            yield rows[seen_before:][weighted[new]]


def _apart(net: Network, leaves: list[jax.Array], x: Any, u: jax.Array) -> jax.Array:
    """u_i J_i (n, b, p) for u (n, b, k), J_i (k, p) the Jacobian of sample i of x by itself."""

    def of_sample(sample: Any, rows: jax.Array) -> jax.Array:
        pullback = jax.vjp(partial(net.one, sample=sample), leaves)[1]
        return jax.vmap(lambda row: gather(net, pullback(row)[0]))(rows)

    return jax.vmap(of_sample)(x, u)


def _together(net: Network, leaves: list[jax.Array], x: Any, u: jax.Array) -> jax.Array:
    """u J (b, p) for u (b, n k), with the Jacobian J (n k, p) of all samples as one function."""
    pullback = jax.vjp(partial(net.together, x=x), leaves)[1]
    return jax.vmap(lambda row: gather(net, pullback(row)[0]))(u)


def _exact_columns(first: Network, batches: _Batches) -> np.ndarray:
    """A mask (p,) of the columns of P dF/dtheta that are not zero modulo the prime.

    The entry of u P dF/dtheta modulo the prime, for a random u, is zero for a zero column, and for
    any other with the chance 1 / prime. So the mask may lack a column with that chance, and never
    has one too much. P_i are those of :func:`loss_projections`, and rows of outputs whose weight
    in the loss is zero are left out.
    """
    follow, nonzero = Followed(partial(_together, first)), np.zeros(first.parameters, bool)
    for net in batches():
        projections, weighted = loss_projections(net), _weighted(net, net.k)
        for (x, at), _ in windows((net.x, np.arange(net.samples)), _samples_at_once(net)):
            places = np.asarray(at)
            random = modular.drawn(0, *weighted[places].shape) * weighted[places]  # (n, k)
            u = projections.times(random, places).reshape(1, -1)
            nonzero |= follow(list(net.leaves), x, Number(u))[0] != 0
    return nonzero


def _nonzero_columns(batches: _Batches, parts: Sequence[np.ndarray], most: float) -> np.ndarray:
    """A mask (p,) of the columns of J, of all batches, that are not zero in floating arithmetic.

    Samples are read only until every group has more than ``most`` such columns. Rounding may make
    a column zero, or not zero, so that the mask only shows which groups are worth a look in exact
    arithmetic.
    """
    rng, nonzero = np.random.default_rng(0), np.zeros((), bool)
    for net in batches():
        u = rng.standard_normal((net.samples * net.k, 1)) * _weighted(net, net.k).reshape(-1, 1)
        without_loss = replace(net, target=None)
        for sums in backward_parts(without_loss, on_device(u.astype(net.dtype))):
            nonzero = nonzero | (np.asarray(sums)[:, 0] != 0)
            if all(np.count_nonzero(nonzero[columns]) > most for columns in parts):
                return nonzero
    return nonzero


def _bound_by_rows(net: Network, columns: np.ndarray, bound: RankBound) -> RankBound:
    """The ``bound`` on the rank of some columns of J, or a smaller one from their rows.

    J v for a random v that is zero outside of the ``columns`` shows which rows are zero: first in
    floating arithmetic, and only if that would lower the bound, modulo the prime.
    """
    v = np.zeros(net.parameters, net.dtype)
    v[columns] = np.random.default_rng(0).standard_normal(len(columns))
    rows = np.asarray(forward_products(replace(net, target=None), on_device(v)))
    if _count(net, rows != 0) >= bound.value:
        return bound
    residues = np.zeros(net.parameters, np.int64)
    residues[columns] = modular.drawn(0, len(columns))

    def product(leaves: list[jax.Array], x: Any, v: jax.Array) -> jax.Array:
        outputs = partial(net.together, x=x)
        return pushforward(outputs, leaves, scatter(net, v), net.forward)[1]

    follow = Followed(product)
    try:
        images = [
            follow(list(net.leaves), x, Number(residues)).reshape(-1, net.k)[seen_before:]
            for x, seen_before in windows(net.x, _samples_at_once(net))
        ]
    except (NotFollowedError, OverflowError):  # an equation has no residues, or a sum is too long
        return bound
    count = _count(net, np.concatenate(images) != 0)
    return RankBound(count, ALGEBRA) if count < bound.value else bound


def _count(net: Network, nonzero: np.ndarray) -> int:
    """How many rows of J have a weight and are not zero, at most as many as the loss sees of each.

    ``nonzero`` is a mask (n k,) of the rows.
    """
    rows = nonzero.reshape(net.samples, net.k) & _weighted(net, net.k)
    return int(np.minimum(rows.sum(axis=1), loss_projections(net).ranks).sum())


def _can_be_followed(net: Network) -> bool:
    """Whether this process has the whole network, and it is small enough to be followed."""
    return _in_one_process(net) and _size(net) <= _LARGEST


def _size(net: Network) -> float:
    """How many numbers the parameters have, and the values for one sample, or a coupled batch."""
    return sum(leaf.size for leaf in net.leaves) + net.written * (net.batch if net.coupled else 1)


def _samples_at_once(net: Network) -> int:
    """How many samples are followed modulo the prime at once; all where they are coupled."""
    return net.samples if net.coupled else max(1, int(_ENTRIES / net.written))


def _in_one_process(net: Network) -> bool:
    """Whether this process has all parameters and samples."""
    arrays = jax.tree.leaves((net.leaves, net.x))
    return all(array.is_fully_addressable for array in arrays)


def _weighted(net: Network, count: int) -> np.ndarray:
    """A mask (n, count) of outputs, or rows of J, of each sample that have a weight in the loss."""
    terms = _weighted_terms(net, count)
    return np.repeat(terms, count // terms.shape[1], axis=1)


def _weighted_terms(net: Network, count: int) -> np.ndarray:
    """A mask (n, t) of the terms of the loss, for every sample, that have a weight in it.

    Each term of a sample, such as a token, has an equal number of its ``count`` outputs or rows of
    J. Where a loss of the caller's may use all outputs in each term, or ``count`` is no multiple of
    the number of terms, t is 1: all of a sample count if one of its terms has a weight.
    """
    if net.target is None or net.target.weights is None:
        return np.ones((net.samples, 1), bool)
    terms = (np.asarray(net.target.weights) != 0).reshape(net.samples, -1)
    if callable(net.target.loss) or count % terms.shape[1]:
        return terms.any(axis=1, keepdims=True)
    return terms
