"""On which samples the rounding of a network is measured in Monte Carlo arithmetic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import GRAM, Network
from gnjax.numerics.host import on_host

WRITTEN = 1e6  # about so many numbers are written by a product with some samples
MOST_SAMPLES = 8  # that are chosen
_FEWEST = 2  # samples on which the rounding of a Jacobian is measured
_SMALL = 1e6  # numbers written by a product with all samples up to which all are computed
_ALL = 4e7  # such numbers up to which the second look is at all samples, with one vector


def is_small(net: Network, evaluations: int) -> bool:
    """Whether all samples are computed in Monte Carlo arithmetic, as that takes no longer."""
    return evaluations * net.written * net.samples <= _SMALL


def all_are_looked_at(net: Network, evaluations: int) -> bool:
    """Whether the second look at products is at all samples and not at some."""
    return evaluations * net.written * net.samples <= _ALL


def samples_looked_at(net: Network) -> np.ndarray | None:
    """The indices of the samples on which the rounding of a large network's J is measured usually.

    One of them has the largest floating inputs, and the others are drawn at random. None stands for
    all: of a small network, and of samples that depend on each other.
    """
    count = int(np.clip(WRITTEN / (GRAM * net.written), _FEWEST, MOST_SAMPLES))
    if is_small(net, GRAM) or net.coupled or count >= net.samples:
        return None
    sizes = np.zeros(net.samples)
    for leaf in jax.tree.leaves(net.x):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            rows = np.asarray(on_host(leaf), np.float64).reshape(net.samples, -1)
            sizes += np.square(rows).sum(axis=1)
    largest = int(np.argmax(sizes))
    others = np.delete(np.arange(net.samples), largest)
    chosen = np.random.default_rng(3).choice(others, count - 1, replace=False)
    return np.sort(np.append(chosen, largest))
