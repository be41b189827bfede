"""Samples that occur more than once: their rows of J are the same, and one row stands for all.

For samples i in a group of m equal ones, sum_i J_i^T B_i J_i = J_1^T (m B_1) J_1, so that one
sample with the factor sqrt(m) R_1 gives the same Gauss-Newton matrix.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.samples import take
from gnjax.networks.network import Network
from gnjax.networks.outputs.targets import Target


def merged(net: Network) -> Network:
    """The network with samples that are equal bit for bit merged into one, or ``net`` itself.

    Coupled samples stay as they are. Where R depends on targets or weights, a group of samples must
    have the same ones.
    """
    first, counts = _groups(net, (net.x, net.target))
    if len(first) == net.samples:
        return net
    sizes = jnp.asarray(counts, net.dtype)
    if net.target is None:
        target = Target(None, sizes, "squared_error", net.shapes)
    else:
        target = take(net.target, first).repeated(sizes)
    return replace(net, x=take(net.x, first), target=target, batch=min(net.batch, len(first)))


def folded(net: Network, vectors: np.ndarray) -> np.ndarray:
    """The vectors w (m, n' r) of the merged network with the same J^T w as u (m, n r) of ``net``.

    A sample that stands for c equal ones has the rows sqrt(c) J_1, so that w has the sum of the u
    over the equal samples, divided by sqrt(c).
    """
    group = _group_of_each(net, (net.x, net.target))
    counts = np.bincount(group)
    sums = np.zeros((len(counts), len(vectors), net.rows))
    parts = vectors.reshape(len(vectors), net.samples, net.rows)
    np.add.at(sums, group, parts.swapaxes(0, 1))
    sums /= np.sqrt(counts)[:, None, None]
    return sums.swapaxes(0, 1).reshape(len(vectors), -1)


def unique_samples(net: Network) -> int:
    """How many different samples there are; all of them, where samples are coupled."""
    return len(_groups(net, net.x)[0])


def _groups(net: Network, samples: Any) -> tuple[np.ndarray, np.ndarray]:
    """The index of the first sample of each group of equal samples, and the size of the group."""
    _, first, counts = np.unique(
        _group_of_each(net, samples), return_index=True, return_counts=True
    )
    return first, counts


def _group_of_each(net: Network, samples: Any) -> np.ndarray:
    """The index of each sample's group of equal samples; groups are in the order of their first."""
    arrays = jax.tree.leaves(samples)
    n = net.samples
    if net.coupled or not all(array.is_fully_addressable for array in arrays):
        return np.arange(n)
    parts = [np.ascontiguousarray(array).reshape(n, -1) for array in arrays]
    groups: dict[bytes, int] = {}
    digests = (
        hashlib.blake2b(b"".join(part[i].tobytes() for part in parts)).digest() for i in range(n)
    )
    return np.array([groups.setdefault(digest, len(groups)) for digest in digests])
