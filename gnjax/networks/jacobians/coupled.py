"""Rows of J of a coupled batch, with fewer columns where a layer has fewer positions than inputs.

The outputs of a coupled batch are one function, whose layers act on all positions t of the batch.
A matrix W adds the columns sum_t delta_t a_t^T to J. With the inputs a = L Q of its T positions, Q
with orthonormal rows, these are the columns sum_t delta_t L_ts times Q. The columns without Q have
the same products J_W J_W^T, and they are T to an output of the layer and not one to an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.jacobians.items import Item, layer_of_leaf, uses_of
from gnjax.networks.jacobians.pieces import by_items, columns_of, unit_rows
from gnjax.networks.layer_types import Use
from gnjax.networks.layer_types.uses import Pair, by_positions
from gnjax.networks.network import Network, apply_loss_factor
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device


def widths(net: Network) -> list[int]:
    """How many columns :func:`rows` has for each chosen parameter."""
    return [item.width for item in _items(net, _trace(net))]


def rows(net: Network) -> Iterator[np.ndarray]:
    """Yield C (n r, c) with C C^T = J J^T some rows at a time."""
    return (np.concatenate(columns, axis=1) for columns in _blocks(net))


def jacobians(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """C_b (n r, c_b) with C_b C_b^T = J_b J_b^T for the parameters of each part."""
    blocks: list[list[np.ndarray]] = [[] for _ in parts]
    for columns in _blocks(net):
        for part, block in zip(parts, blocks, strict=True):
            block.append(np.concatenate([columns[place] for place in part], axis=1))
    return [np.concatenate(block) for block in blocks]


def _blocks(net: Network) -> Iterator[list[np.ndarray]]:
    """The columns (b, c_l) of each chosen parameter l, some rows at a time."""
    for unit, skip in unit_rows(net):
        parts = _rows(net, on_device(unit.reshape(len(unit), net.samples, net.rows)))
        yield [np.asarray(part)[skip:] for part in parts]


def _trace(net: Network) -> layers.TracedLayers:
    """The batch as one function, and its layers."""
    return layers.traced_layers(net.together, net.leaves, net.x)


def _items(net: Network, trace: layers.TracedLayers) -> tuple[Item, ...]:
    """The chosen parameters, "narrow" where their columns without Q are fewer."""
    of_leaf, items = layer_of_leaf(trace), []
    parameters = zip(net.leaf_indices, net.entry_indices, net.counts, strict=True)
    for place, (leaf, chosen, count) in enumerate(parameters):
        index = of_leaf.get(leaf)
        width = None if index is None or chosen is not None else _width(net, trace.layers[index])
        if width is None:
            items.append(Item(place, index, "rows", count))
        else:
            items.append(Item(place, index, "narrow", width))
    return tuple(items)


def _width(net: Network, layer: layers.Layer) -> int | None:
    """The columns of a layer without Q; None for several matrices, or where they are no fewer."""
    sizes = layer.uses[0].sizes
    positions = sum(use.positions for use in layer.uses)
    alike = len(layers.with_same_matrices(layer, net.leaves[layer.leaf].shape)) == 1
    if positions >= sizes.inputs or not alike or any(use.groups > 1 for use in layer.uses):
        return None
    return positions * sizes.outputs


@bounded_jit
def _rows(net: Network, unit: jax.Array) -> list[jax.Array]:
    """The columns of each chosen parameter for u^T J, with u (b, n, r)."""
    trace = _trace(net)
    items = _items(net, trace)

    def weights(outputs: jax.Array) -> jax.Array:
        f = outputs.reshape(net.samples, net.k)
        weighted = jax.vmap(partial(apply_loss_factor, net.target, f, transpose=False))(unit)
        return weighted.reshape(len(unit), -1)

    return [
        _without_q(net, uses_of(trace, item), pairs)
        if item.form == "narrow"
        else columns_of(net, trace, item, pairs, gradient)
        for item, pairs, gradient in by_items(net, items, trace, net.x, weights)
    ]


def _without_q(net: Network, uses: Sequence[Use], pairs: Sequence[Pair]) -> jax.Array:
    """sum_t delta_t L_ts (j, s q_out) with a = L Q, over the positions of all uses."""
    placed = [by_positions(use, pair, net.dtype) for use, pair in zip(uses, pairs, strict=True)]
    a = jnp.concatenate([pair[0][:, 0] for pair in placed])  # (t, q_in)
    delta = jnp.concatenate([pair[1][:, :, 0] for pair in placed], axis=1)  # (j, t, q_out)
    lower = jnp.linalg.qr(a.T, mode="r").T
    columns = jnp.einsum("jto,ts->jso", delta, lower, precision="highest")
    return columns.reshape(len(delta), -1)
