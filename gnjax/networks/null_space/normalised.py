"""Directions in which the parameters before BatchNorm and those of BatchNorm cancel out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network, forward_products
from gnjax.networks.null_space.families import (
    MOST_DIRECTIONS,
    MOST_PAIRS,
    SHIFTS,
    Leaves,
    as_vector,
    layers_of,
    tolerance,
    unit,
)
from gnjax.numerics.host import on_device

_TRIALS = 3  # a direction must also hold at so many random parameters


def normalised_units(net: Network) -> list[np.ndarray]:
    """Directions v with J v = 0 that belong to single units before BatchNorm.

    Each v combines four directions of a unit: its weights times a number, its bias, its scale and
    its shift. The combinations are singular vectors of J on these four directions. They count only
    if J has as many of them at random other parameters of that layer.
    """
    leaves, layers = layers_of(net)
    directions: list[np.ndarray] = []
    for source, norm in itertools.islice(itertools.permutations(layers.values(), 2), MOST_PAIRS):
        width = leaves[norm[0]].size
        fits = all(leaves[i].ndim and leaves[i].shape[-1] == width for i in source)
        kernels = any(leaves[i].ndim > 1 for i in source)
        scales = len(norm) == 2 and all(leaves[i].shape == (width,) for i in norm)
        if fits and kernels and scales and width <= MOST_DIRECTIONS // 4:
            directions += _null_vectors_of_units(net, leaves, source, norm)
    return directions


def _null_vectors_of_units(
    net: Network, leaves: list[np.ndarray], source: list[int], norm: list[int]
) -> list[np.ndarray]:
    """The null vectors of all units of one layer that stay null at other random parameters."""
    vectors = _unit_directions(net, leaves, source, norm)
    if vectors is None:
        return []
    null_vectors = _null_vectors(net, vectors)
    counts = [len(v) for v in null_vectors]
    rng = np.random.default_rng(3)
    for _ in range(_TRIALS):
        trial_leaves = list(leaves)
        for i in (*source, *norm):
            factors = 10 ** rng.uniform(-SHIFTS, SHIFTS, leaves[i].shape[-1])
            trial_leaves[i] = factors * (leaves[i] + 0.1 * rng.standard_normal(leaves[i].shape))
        arrays = tuple(jnp.asarray(leaf, net.dtype) for leaf in trial_leaves)
        trial = replace(net, leaves=arrays)
        directions = _unit_directions(trial, trial_leaves, source, norm)
        trial_vectors = _null_vectors(trial, directions)
        counts = [min(count, len(v)) for count, v in zip(counts, trial_vectors, strict=True)]
    return [v for count, unit in zip(counts, null_vectors, strict=True) for v in unit[:count]]


def _unit_directions(
    net: Network, leaves: list[np.ndarray], source: list[int], norm: list[int]
) -> np.ndarray | None:
    """For every unit its directions as rows (4, p); None where some of them are held fixed."""
    rows = []
    for place in range(leaves[norm[0]].size):
        unit_mask = np.arange(leaves[norm[0]].size) == place
        biases = [{i: unit_mask.astype(float)} for i in (*source, *norm) if leaves[i].ndim == 1]
        weights: Leaves = {i: leaves[i] * unit_mask for i in source}
        directions = [as_vector(net, direction) for direction in (weights, *biases)]
        if any(v is None or not v.any() for v in directions):
            return None
        rows.append(np.stack([unit(v) for v in directions if v is not None]))
    return np.stack(rows)


def _null_vectors(net: Network, vectors: np.ndarray | None) -> list[np.ndarray]:
    """For every unit, the combinations v of its directions with J v = 0 up to rounding, as rows."""
    assert vectors is not None  # whether a leaf is held fixed does not depend on its values
    units, count, size = vectors.shape
    columns = on_device(vectors.reshape(-1, size).T.astype(net.dtype))
    images = np.asarray(forward_products(net, columns), np.float64).reshape(-1, units, count)
    null_vectors = []
    for place in range(units):
        _, values, rows = np.linalg.svd(images[:, place], full_matrices=False)
        largest = float(np.linalg.norm(images[:, place], axis=0).max())
        null = values <= tolerance(net) * largest
        null_vectors.append(rows[null][::-1] @ vectors[place])
    return null_vectors
