"""Families of transformations of a network's parameters that may leave every output unchanged.

Which of them really do is tested in :mod:`gnjax.networks.null_space.dimension`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network
from gnjax.networks.parameters import paths

MOST_DIRECTIONS = 1000
MOST_PAIRS = 64
SHIFTS = 2.0  # shifts are drawn from so many decades to either side
_WIDEST = 24  # invertible matrices are tried between layers with at most so many units
_SAME = 2.0**-26  # tolerance relative to the largest output; its square root in float32

Leaves = dict[int, np.ndarray]
"""Values or derivatives of some leaves of the parameters, by their index."""


@dataclass(frozen=True)
class Family:
    """Transformations of the parameters: random members of it, and its derivatives at t = 0."""

    transform: Callable[[np.random.Generator, float], Leaves]  # takes the decades of factors
    directions: Sequence[Leaves]


def as_vector(net: Network, direction: Leaves) -> np.ndarray | None:
    """A direction as a vector (p,); None where it moves parameters that are held fixed."""
    parts = []
    remaining = dict(direction)
    for leaf, indices in zip(net.leaf_indices, net.entry_indices, strict=True):
        shape = net.leaves[leaf].shape
        flat = np.ravel(remaining.pop(leaf, np.zeros(shape)))
        if indices is not None:
            fixed_entries = np.delete(flat, np.asarray(indices))
            flat = flat[np.asarray(indices)]
            if fixed_entries.any():
                return None
        parts.append(flat)
    return None if any(np.any(part) for part in remaining.values()) else np.concatenate(parts)


def unit(v: np.ndarray) -> np.ndarray:
    """v / |v|, where squares of its entries may underflow."""
    scaled: np.ndarray = v / np.abs(v).max()
    return scaled / np.linalg.norm(scaled)


def tolerance(net: Network) -> float:
    return _SAME if net.dtype == jnp.float64 else _SAME**0.5


def layers_of(net: Network) -> tuple[list[np.ndarray], dict[str, list[int]]]:
    """All leaves, and by its path each layer's leaves: they differ only in their last names."""
    names = paths(jax.tree.unflatten(net.structure, list(net.leaves)))
    layers: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        layers.setdefault(name.rpartition("/")[0], []).append(index)
    return [np.asarray(leaf, np.float64) for leaf in net.leaves], layers


def families(net: Network) -> Iterator[Family]:
    """Yield the families of transformations that change only chosen leaves."""
    leaves, layers = layers_of(net)
    for index in net.leaf_indices:
        if leaves[index].ndim:
            yield from _shifts(leaves[index], index)
    chosen_layers = {
        name: members for name, members in layers.items() if set(members) <= set(net.leaf_indices)
    }
    for source, target, behind in itertools.islice(_pairs(leaves, chosen_layers), MOST_PAIRS):
        yield from _exchanges(leaves, source, target)
        for bias in behind:
            yield from _bias_shifts(leaves, source, target, bias)


def _shifts(leaf: np.ndarray, index: int) -> Iterator[Family]:
    """Add the same number to all outputs of a layer; to a bias, add a number for each output.

    The outputs are the last axis of the leaf. For a matrix the first axis is tried as well.
    """
    rows = np.arange(leaf.size // leaf.shape[-1])
    patterns = [np.broadcast_to(rows.reshape(*leaf.shape[:-1], 1), leaf.shape)]
    if leaf.ndim == 1:
        patterns.append(np.arange(leaf.size))
    if leaf.ndim == 2:
        patterns.append(np.broadcast_to(np.arange(leaf.shape[1])[None], leaf.shape))
    for pattern in patterns:
        count = int(pattern.max()) + 1
        if count <= MOST_DIRECTIONS:
            yield Family(
                partial(_random_shift, leaf, index, pattern),
                [{index: (pattern == i).astype(float)} for i in range(count)],
            )


def _random_shift(
    leaf: np.ndarray, index: int, pattern: np.ndarray, rng: np.random.Generator, decades: float
) -> Leaves:
    del decades
    size = float(np.abs(leaf).max()) or 1.0
    size *= 10 ** rng.uniform(-SHIFTS, SHIFTS)
    return {index: leaf + size * rng.standard_normal(int(pattern.max()) + 1)[pattern]}


def _pairs(
    leaves: list[np.ndarray], layers: dict[str, list[int]]
) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yield the leaves of a layer, a kernel that may read its units, and biases beside it."""
    for name, source in layers.items():
        widths = {leaves[i].shape[-1] if leaves[i].ndim else 0 for i in source}
        if len(widths) != 1 or 0 in widths:
            continue
        width = widths.pop()
        for reader, members in layers.items():
            for target in members if reader != name else ():
                kernel = leaves[target]
                if kernel.ndim >= 2 and kernel.shape[-2] % width == 0:
                    outputs = kernel.shape[-1:]
                    yield source, target, [i for i in members if leaves[i].shape == outputs]


def _exchanges(leaves: list[np.ndarray], source: list[int], target: int) -> Iterator[Family]:
    """Scale the units of a layer by a, or mix them by A, and apply the inverse to the next kernel.

    If the kernel has several rows for a unit, as behind a flattened convolution, these rows are
    one number of units apart.
    """
    width = leaves[source[0]].shape[-1]
    kernel = leaves[target]
    kernel_by_units = kernel.reshape(*kernel.shape[:-2], -1, width, kernel.shape[-1])

    def exchanged(into: np.ndarray, out_of: np.ndarray) -> Leaves:
        before = {i: leaves[i] @ into for i in source}
        return {**before, target: (out_of @ kernel_by_units).reshape(kernel.shape)}

    def scale(rng: np.random.Generator, decades: float) -> Leaves:
        factors = 10.0 ** (decades * rng.choice([-1.0, 1.0], width))
        return exchanged(np.diag(factors), np.diag(1 / factors))

    def mix(rng: np.random.Generator, decades: float) -> Leaves:
        matrix = np.linalg.qr(rng.standard_normal((width, width)))[0] * rng.uniform(0.5, 2, width)
        factor = 10.0 ** (decades * rng.choice([-1.0, 1.0]))
        return exchanged(factor * matrix, np.linalg.inv(matrix) / factor)

    def derivative(i: int, j: int) -> Leaves:
        unit = np.zeros((width, width))
        unit[i, j] = 1.0
        return exchanged(unit, -unit)

    if width <= MOST_DIRECTIONS:
        yield Family(scale, [derivative(i, i) for i in range(width)])
    if width <= _WIDEST:
        everywhere = itertools.product(range(width), repeat=2)
        yield Family(mix, [derivative(i, j) for i, j in everywhere])


def _bias_shifts(
    leaves: list[np.ndarray], source: list[int], target: int, bias: int
) -> Iterator[Family]:
    """Add c to the bias of one layer, and subtract its effect from the next: b_2 - W_2^T c."""
    kernel = leaves[target]
    for index in source:
        width = leaves[index].shape[-1]
        if leaves[index].ndim > 1 or kernel.shape != (width, kernel.shape[-1]):
            continue

        def difference(c: np.ndarray, index: int = index) -> Leaves:
            return {index: c, bias: -c @ kernel}

        def carry(rng: np.random.Generator, decades: float, index: int = index) -> Leaves:
            del decades
            size = 10 ** rng.uniform(-SHIFTS, SHIFTS)
            steps = difference(size * rng.standard_normal(len(kernel)), index)
            return {i: leaves[i] + step for i, step in steps.items()}

        yield Family(carry, [difference(unit, index) for unit in np.eye(width)])
