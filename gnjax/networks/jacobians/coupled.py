"""J of a coupled batch, with fewer columns where a layer has fewer positions than inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    """How many columns :func:`rows` has for each chosen parameter of a coupled network."""
    return [item.width for item in _trace_and_items(net)[1]]


def rows(net: Network) -> Iterator[np.ndarray]:
    """Yield a matrix C (n r, c) with C C^T = J J^T, some rows at a time."""
    return (np.concatenate(columns, axis=1) for columns in _columns_by_parameter(net))


def factors(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each group b of parameters a matrix C_b (n r, c_b) with C_b C_b^T = J_b J_b^T.

    ``parts`` lists for each group the indices of its parameters among the chosen ones.
    """
    rows_of_parts: list[list[np.ndarray]] = [[] for _ in parts]
    for columns in _columns_by_parameter(net):
        for part, rows_of_part in zip(parts, rows_of_parts, strict=True):
            rows_of_part.append(np.concatenate([columns[index] for index in part], axis=1))
    return [np.concatenate(rows_of_part) for rows_of_part in rows_of_parts]


def _columns_by_parameter(net: Network) -> Iterator[list[np.ndarray]]:
    """Yield b rows of C, C C^T = J J^T, at a time: a block (b, c_l) for each parameter l."""
    for unit_vectors, seen_before in unit_rows(net):
        u = unit_vectors.reshape(len(unit_vectors), net.samples, net.rows)
        columns_of_parameters = _rows(net, on_device(u))
        yield [np.asarray(columns)[seen_before:] for columns in columns_of_parameters]


def _trace_and_items(net: Network) -> tuple[layers.TracedLayers, list[Item]]:
    """The equations of the batch as one function, and the item of each parameter for J J^T.

    Its form is "columns" of J, or "narrow", which are fewer. A layer with q_in inputs and q_out
    outputs at T positions t has the q_in q_out columns J_l = sum_t delta_t a_t^T of J. With
    a = L Q, L (T, T) lower triangular and Q (T, q_in) with orthonormal rows, the T q_out columns
    C_l = sum_t delta_t L_ts have C_l C_l^T = J_l J_l^T, and are fewer if T < q_in. There is no C_l
    for chosen entries of a parameter, nor for a layer with several matrices, by groups or because
    its uses see different entries of the parameter.
    """
    trace = layers.traced_layers(net.together, net.leaves, net.x)
    layer_by_leaf, items = layer_of_leaf(trace), []
    parameters = zip(net.leaf_indices, net.entry_indices, net.counts, strict=True)
    for index, (leaf, entries, count) in enumerate(parameters):
        item = Item(index, layer_by_leaf.get(leaf), "columns", count)
        if item.layer is not None and entries is None:
            layer = trace.layers[item.layer]
            sizes, positions = layer.uses[0].sizes, sum(use.positions for use in layer.uses)
            grouped = any(use.groups > 1 for use in layer.uses)
            matrices = layers.with_same_matrices(layer, net.leaves[leaf].shape)
            if positions < sizes.inputs and len(matrices) == 1 and not grouped:
                item = replace(item, form="narrow", width=positions * sizes.outputs)
        items.append(item)
    return trace, items


@bounded_jit
def _rows(net: Network, u: jax.Array) -> list[jax.Array]:
    """b rows of C, C C^T = J J^T, as a block (b, c_l) for each chosen parameter l.

    u (b, n, r) are the unit vectors that choose the rows.
    """
    trace, items = _trace_and_items(net)

    def weights(outputs: jax.Array) -> jax.Array:
        """R u (b, n k) for each of the b vectors u, with the loss's factor R at the outputs."""
        f = outputs.reshape(net.samples, net.k)
        weighted = jax.vmap(partial(apply_loss_factor, net.target, f, transpose=False))(u)
        return weighted.reshape(len(u), -1)

    return [
        _without_q(net, uses_of(trace, item), pairs)
        if item.form == "narrow"
        else columns_of(net, trace, item, pairs, gradient)
        for item, pairs, gradient in by_items(net, items, trace, net.x, weights)
    ]


def _without_q(net: Network, uses: Sequence[Use], pairs: Sequence[Pair]) -> jax.Array:
    """A matrix C (j, s q_out) with C C^T = J_l J_l^T for j rows of a layer's columns J_l of J.

    With the inputs a_t (q_in) and sensitivities delta_t (j, q_out) of t positions in all uses, J_l
    is sum_t a_t (x) delta_t with the Kronecker product (x). Let a = L Q, Q (s, q_in) with
    orthonormal rows: L^T is the R of a QR factorisation of a^T. Then J_l = C (Q (x) I) with
    C = sum_t L_ts delta_t.
    """
    # of each use a (t, 1, q_in) and delta (j, t, 1, q_out), with one group
    by_use = [by_positions(use, pair, net.dtype) for use, pair in zip(uses, pairs, strict=True)]
    a = jnp.concatenate([inputs[:, 0] for inputs, _ in by_use])  # (t, q_in)
    delta = jnp.concatenate([deltas[:, :, 0] for _, deltas in by_use], axis=1)  # (j, t, q_out)
    lower = jnp.linalg.qr(a.T, mode="r").T
    columns = jnp.einsum("jto,ts->jso", delta, lower, precision="highest")
    return columns.reshape(len(delta), -1)
