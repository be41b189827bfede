"""Bounds on the rank of the Jacobian J of a network, from its structure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnjax.networks.duplicates import unique_samples
from gnjax.networks.network import Network
from gnjax.networks.null_space.dimension import null_dimensions
from gnjax.networks.outputs.hessians import has_root


def rank_bounds(net: Network, groups: Sequence[Sequence[int]]) -> list[int]:
    """For every group of chosen leaves, a bound on the rank of its columns of J.

    It is the smallest of three numbers: the rows of J that belong to different samples; the rows
    whose weight is not zero (a label of -1 has the weight zero); and the number of columns minus
    the dimension of the directions in which structure keeps every output unchanged (see
    :mod:`gnjax.networks.null_space.dimension`).
    """
    rows = min(unique_samples(net) * net.rows, _weighted_rows(net))
    most = 2 * rows if has_root(net.target) else 0
    sizes = [sum(net.counts[place] for place in group) for group in groups]
    nulls = null_dimensions(net, groups, most)
    return [min(size - null, rows) for size, null in zip(sizes, nulls, strict=True)]


def _weighted_rows(net: Network) -> int:
    """The rows of J of terms of the loss whose weight is not zero; the other rows are zero."""
    weights = None if net.target is None else net.target.weights
    if weights is None:
        return net.samples * net.rows
    terms = np.asarray(weights).reshape(net.samples, -1)
    if net.rows % terms.shape[1]:
        return net.samples * net.rows
    return int(np.count_nonzero(terms)) * (net.rows // terms.shape[1])
