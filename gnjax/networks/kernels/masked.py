"""The part of J J^T that belongs to a dense layer of which a mask keeps some weights.

Unit u has the weights of the inputs S_u alone. With K_u[i, j] = a_i . a_j over S_u, the block of
samples i and j is the sum over the units of K_u[i, j] delta_iu delta_ju^T. Per pair of samples it
takes as many multiplications as there are weights, and r^2 for each unit, where the product of
their rows of J takes r^2 for each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gnjax.networks import layers
from gnjax.networks.jacobians import Item, items_of, sample_trace
from gnjax.networks.layer_types.uses import matrices
from gnjax.networks.network import Network
from gnjax.numerics.host import on_cpu

_GAIN = 16  # so many times fewer multiplications make up for smaller products

Inputs = Sequence[NDArray[np.intp]]
"""The places of the inputs S_u of each unit u."""


def as_vectors(net: Network, trace: layers.TracedLayers) -> tuple[Item, ...]:
    """The items of J J^T, with masked dense layers as pairs of vectors where that is less work."""
    return tuple(_as_vectors(net, trace, item) for item in items_of(net, trace))


def _as_vectors(net: Network, trace: layers.TracedLayers, item: Item) -> Item:
    if item.form != "rows" or item.layer is None or net.entry_indices[item.place] is None:
        return item
    use = trace.layers[item.layer].only_use
    if use is None or not use.positions == use.groups == 1 or not on_cpu(net.leaves[0]):
        return item
    units = use.sizes.outputs
    gain = min(net.rows**2, net.counts[item.place] / units)
    width = units + use.sizes.inputs // net.rows + 1
    return item if gain < _GAIN else replace(item, form="vectors", width=width)


def inputs_of_units(net: Network, item: Item) -> Inputs | None:
    """The inputs of each unit of a layer that is a pair of vectors; None without a mask."""
    weights = net.entry_indices[item.place]
    if weights is None or item.layer is None or item.form != "vectors":
        return None
    layer = sample_trace(net).layers[item.layer]
    shape = net.leaves[layer.leaf].shape
    mask = jnp.zeros(int(np.prod(shape)), bool).at[weights].set(True)
    (of_units,) = np.asarray(matrices(layer.uses[0], mask.reshape(shape)))  # (q_in, q_out)
    return [np.flatnonzero(column) for column in of_units.T]


def add(
    block: np.ndarray,
    left: tuple[np.ndarray, np.ndarray],
    right: tuple[np.ndarray, np.ndarray],
    inputs: Inputs,
) -> None:
    """Add the sum over units to a block (i, r, j, r), from a (i, q_in) and delta (i, r, q_out)."""
    (a, delta), (b, epsilon) = left, right
    near, far = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)  # (q_in, i), (q_in, j)
    products = np.empty((len(inputs), len(a), len(b)), block.dtype)  # K_u[i, j]
    for product, chosen in zip(products, inputs, strict=True):
        np.matmul(near[chosen].T, far[chosen], out=product)
    units_first = np.ascontiguousarray(epsilon.transpose(2, 0, 1))  # (q_out, j, r)
    weighted = np.empty_like(units_first)
    for sample, (sensitivity, rows) in enumerate(zip(delta, block, strict=True)):
        np.multiply(units_first, products[:, sample, :, None], out=weighted)
        rows += (sensitivity @ weighted.reshape(len(inputs), -1)).reshape(rows.shape)
