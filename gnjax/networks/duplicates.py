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
    repeated = jnp.asarray(counts, net.dtype)
    if net.target is None:
        target = Target(None, repeated, "squared_error", net.shapes)
    else:
        target = take(net.target, first).repeated(repeated)
    return replace(net, x=take(net.x, first), target=target, batch=min(net.batch, len(first)))


def unique_samples(net: Network) -> int:
    """How many different samples there are; all of them, where samples are coupled."""
    return len(_groups(net, net.x)[0])


def _groups(net: Network, samples: Any) -> tuple[np.ndarray, np.ndarray]:
    """The index of the first sample of each group of equal samples, and the size of the group."""
    arrays = jax.tree.leaves(samples)
    n = net.samples
    if net.coupled or not all(array.is_fully_addressable for array in arrays):
        return np.arange(n), np.ones(n, int)
    held = [np.ascontiguousarray(array).reshape(n, -1) for array in arrays]
    seen: dict[bytes, int] = {}
    first: list[int] = []
    counts: list[int] = []
    for i in range(n):
        digest = hashlib.blake2b(b"".join(part[i].tobytes() for part in held)).digest()
        group = seen.setdefault(digest, len(first))
        if group == len(first):
            first.append(i)
            counts.append(1)
        else:
            counts[group] += 1
    return np.array(first), np.array(counts)
