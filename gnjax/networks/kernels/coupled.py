"""Rows of J of a coupled batch, with fewer columns where a layer has fewer positions than inputs.

The outputs of a coupled batch are one function, whose layers act on all positions t of the batch.
A matrix W adds the columns sum_t delta_t a_t^T to J. With the inputs a = L Q of its T positions, Q
with orthonormal rows, these are the columns sum_t delta_t L_ts times Q. The columns without Q have
the same products J_W J_W^T, and they are T to an output of the layer and not one to an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.layer_types.uses import by_positions
from gnjax.networks.network import Network, apply_loss_factor
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device

_ROWS = 64


@dataclass(frozen=True)
class _Columns:
    """How the columns of one chosen parameter are computed, and how many there are."""

    layer: int | None  # index among the traced layers; None: by differentiation
    narrow: bool  # whether they are the columns without Q
    count: int


def widths(net: Network) -> list[int]:
    """How many columns :func:`rows` has for each chosen parameter."""
    return [columns.count for columns in _plan(net, _trace(net))]


def rows(net: Network, first: int = 0) -> Iterator[np.ndarray]:
    """Yield C (n r, c) with C C^T = J J^T some rows at a time.

    The blocks before the one with the number ``first`` are left out.
    """
    return (np.concatenate(columns, axis=1) for columns in _blocks(net, first))


def jacobians(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """C_b (n r, c_b) with C_b C_b^T = J_b J_b^T for the parameters of each part."""
    blocks: list[list[np.ndarray]] = [[] for _ in parts]
    for columns in _blocks(net):
        for part, block in zip(parts, blocks, strict=True):
            block.append(np.concatenate([columns[place] for place in part], axis=1))
    return [np.concatenate(block) for block in blocks]


def _blocks(net: Network, number: int = 0) -> Iterator[list[np.ndarray]]:
    """The columns (b, c_l) of each chosen parameter l, from the block with this number on."""
    size = net.samples * net.rows
    count = min(_ROWS, size)
    for start in range(number * count, size, count):
        first = min(start, size - count)  # the last part overlaps, so that one program serves all
        unit = np.eye(count, size, first, dtype=net.dtype).reshape(count, net.samples, net.rows)
        parts = _rows(net, on_device(unit))
        yield [np.asarray(part)[start - first :] for part in parts]


def _trace(net: Network) -> layers.Trace:
    """The batch as one function, and its layers."""
    return layers.trace(net.together, net.leaves, net.x)


def _plan(net: Network, trace: layers.Trace) -> tuple[_Columns, ...]:
    of_leaf = {layer.leaf: index for index, layer in enumerate(trace.layers)}
    plan = []
    for leaf, chosen, count in zip(net.leaf_indices, net.entry_indices, net.counts, strict=True):
        index = of_leaf.get(leaf)
        width = None if index is None or chosen is not None else _width(net, trace.layers[index])
        plan.append(_Columns(index, width is not None, count if width is None else width))
    return tuple(plan)


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
    plan = _plan(net, trace)
    used = [trace.layers[columns.layer] for columns in plan if columns.layer is not None]
    uses = [use for layer in used for use in layer.uses]
    pairs_of = zip(net.leaf_indices, plan, strict=True)
    others = [leaf for leaf, columns in pairs_of if columns.layer is None]

    def weights(outputs: jax.Array) -> jax.Array:
        f = outputs.reshape(net.samples, net.k)
        weighted = jax.vmap(partial(apply_loss_factor, net.target, f, transpose=False))(unit)
        return weighted.reshape(len(unit), -1)

    pairs, gradients = layers.sensitivities(trace, uses, others, net.leaves, net.x, weights)
    pairs_left, gradients_left = iter(pairs), iter(gradients)
    parts: list[jax.Array] = []
    for columns, chosen in zip(plan, net.entry_indices, strict=True):
        if columns.layer is None:
            part: Any = next(gradients_left)
        else:
            layer = trace.layers[columns.layer]
            of_layer = [next(pairs_left) for _ in layer.uses]
            if columns.narrow:
                parts.append(_without_q(net, layer, of_layer))
                continue
            part = layers.jacobian_rows(layer, net.leaves[layer.leaf], of_layer)
        parts.append(part if chosen is None else part[:, chosen])
    return parts


def _without_q(net: Network, layer: layers.Layer, pairs: list[Any]) -> jax.Array:
    """sum_t delta_t L_ts (j, s q_out) with a = L Q, over the positions of all uses."""
    moved = [
        by_positions(use, pair, net.dtype) for use, pair in zip(layer.uses, pairs, strict=True)
    ]
    a = jnp.concatenate([pair[0][:, 0] for pair in moved])  # (t, q_in)
    delta = jnp.concatenate([pair[1][:, :, 0] for pair in moved], axis=1)  # (j, t, q_out)
    lower = jnp.linalg.qr(a.T, mode="r").T
    columns = jnp.einsum("jto,ts->jso", delta, lower, precision="highest")
    return columns.reshape(len(delta), -1)
