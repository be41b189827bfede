"""The part of J J^T that belongs to a dense layer of which a mask keeps some weights.

Unit u has the weights of the inputs S_u alone. With K_u[i, j] = a_i . a_j over S_u, the block of
samples i and j is the sum over the units of K_u[i, j] delta_iu delta_ju^T.
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
"""For each unit u the indices S_u of the inputs that a mask leaves it."""


def as_vectors(net: Network, trace: layers.TracedLayers) -> tuple[Item, ...]:
    """The items of J J^T, with masked dense layers in the form "vectors" where that is less work.

    A mask chooses some entries of the weights (``net.entry_indices``). For a pair of samples with r
    rows of J each, products of these rows take r^2 multiplications for each weight. Vectors, the
    inputs and sensitivities of the layer, take one for each weight and r^2 for each unit. So rows
    take about min(r^2, weights of a unit) times as many: this is ``gain``. The products of vectors
    are smaller and slower, which only a large gain makes up for, and are made by NumPy on a CPU.
    """
    items = list(items_of(net, trace))
    for index, item in enumerate(items):
        masked = item.form == "columns" and net.entry_indices[item.parameter] is not None
        use = trace.layers[item.layer].only_use if masked and item.layer is not None else None
        if use is None or not use.positions == use.groups == 1 or not on_cpu(net.leaves[0]):
            continue
        units = use.sizes.outputs
        gain = min(net.rows**2, net.counts[item.parameter] / units)
        if gain >= _GAIN:
            width = units + use.sizes.inputs // net.rows + 1
            items[index] = replace(item, form="vectors", width=width)
    return tuple(items)


def inputs_of_units(net: Network, item: Item) -> Inputs | None:
    """For each unit of a masked dense layer the indices of the inputs whose weights are chosen.

    None where there is no mask, or the item has another form than "vectors".
    """
    weights = net.entry_indices[item.parameter]
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
    """Add a masked dense layer's part of J J^T to a block (i, r, j, r').

    ``left`` has the inputs a (i, q_in) and sensitivities delta (i, r, q_out) of the samples i, and
    ``right`` has b and epsilon of the samples j. With the sum K_u[i, j] of a_is b_js over the
    ``inputs`` s of unit u, it is the sum over units u of K_u[i, j] delta_iu epsilon_ju^T.
    """
    (a, delta), (b, epsilon) = left, right
    # copies with the inputs first, so that those of a unit are whole rows
    a_by_input, b_by_input = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    kernels = np.empty((len(inputs), len(a), len(b)), block.dtype)  # K_u[i, j]
    for kernel, chosen in zip(kernels, inputs, strict=True):
        np.matmul(a_by_input[chosen].T, b_by_input[chosen], out=kernel)
    epsilon_by_unit = np.ascontiguousarray(epsilon.transpose(2, 0, 1))  # (q_out, j, r')
    weighted = np.empty_like(epsilon_by_unit)
    # for each sample i: delta_i (r, q_out) times the matrix with the rows K_u[i, j] epsilon_ju
    for i, (delta_i, block_i) in enumerate(zip(delta, block, strict=True)):
        np.multiply(epsilon_by_unit, kernels[:, i, :, None], out=weighted)
        block_i += (delta_i @ weighted.reshape(len(inputs), -1)).reshape(block_i.shape)
