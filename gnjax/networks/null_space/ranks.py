"""Bounds on the rank of the Jacobian J of a network, from its structure, with their evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnjax.networks.duplicates import unique_samples
from gnjax.networks.network import Network
from gnjax.networks.null_space.dimension import in_one_process, null_dimensions, zero_counts
from gnjax.networks.null_space.zeros import (
    Batches,
    columns_stay_zero,
    nonzero_columns,
    nonzero_rows,
)
from gnjax.networks.parameters import indices_of
from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.rank_bound import RankBound, least

TRIALS = Error(0.0, MEASURED, reason="the null space of J, by trials at other parameters")
_LOOKED_FOR = 2  # directions are looked for among at most so many times the rows of J


def rank_bounds(net: Network, groups: Sequence[Sequence[int]]) -> list[RankBound]:
    """For every group of chosen leaves, a bound on the rank of its columns of J.

    Proved are the number of columns, that of the rows of different samples, and that of the rows
    whose weight is not zero (a label of -1 has the weight zero). Trials show which columns and rows
    are zero, and in which directions structure keeps every output unchanged (see
    :mod:`gnjax.networks.null_space.dimension`).
    """
    parts = [indices_of(net.counts, group) for group in groups]
    rows = _different_rows(net)
    return _bounds(net, parts, rows, null_dimensions(net, groups, _LOOKED_FOR * rows))


def entry_rank_bounds(net: Network, parts: Sequence[np.ndarray]) -> list[RankBound]:
    """Bounds on the ranks of the columns of groups of entries, from columns that are zero."""
    rows = _different_rows(net)
    return _bounds(net, parts, rows, zero_counts(net, parts, _LOOKED_FOR * rows))


def _bounds(
    net: Network, parts: Sequence[np.ndarray], rows: int, nulls: Sequence[int]
) -> list[RankBound]:
    """The bounds for groups of entries whose columns have null spaces of these dimensions.

    J has at most so many different ``rows``. Trials count only where one process has all samples.
    """
    bounds = []
    for indices, null in zip(parts, nulls, strict=True):
        proved = least(RankBound(len(indices)), RankBound(rows))
        if not in_one_process(net):
            bounds.append(proved)
            continue
        columns = RankBound(len(indices) - null, TRIALS)
        filled = RankBound(nonzero_rows(net, indices, min(proved.value, columns.value)), TRIALS)
        bounds.append(least(proved, columns, filled))
    return bounds


def rank_bound_of_batches(batches: Batches, columns: int, rows: int) -> RankBound:
    """A bound on the rank of J, of so many rows and columns, for samples that come in batches.

    Of the null space only columns that are zero are looked for.
    """
    proved = least(RankBound(columns), RankBound(rows))
    nonzero = nonzero_columns(batches, [np.arange(columns)], proved.value - 1)
    if nonzero.sum() < proved.value and columns_stay_zero(batches, ~nonzero):
        return RankBound(int(nonzero.sum()), TRIALS)
    return proved


def _different_rows(net: Network) -> int:
    """The rows of J of different samples, or those that have a weight, whichever are fewer."""
    return min(unique_samples(net) * net.rows, _weighted_rows(net))


def _weighted_rows(net: Network) -> int:
    """The rows of J of terms of the loss whose weight is not zero; the other rows are zero."""
    weights = None if net.target is None else net.target.weights
    if weights is None:
        return net.samples * net.rows
    terms = np.asarray(weights).reshape(net.samples, -1)
    if net.rows % terms.shape[1]:
        return net.samples * net.rows
    return int(np.count_nonzero(terms)) * (net.rows // terms.shape[1])
