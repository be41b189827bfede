"""The rows of J of a network, layer by layer, and J^T J as their sum, in bounded memory.

A convolution, a dense layer on several positions, a parameter with several uses, and a layer with
masked entries have their Jacobian sum_t delta_t a_t^T formed for some samples at a time; any other
parameter has it from automatic differentiation. What J J^T takes in place of rows, the inputs a and
sensitivities delta of a layer, is made here as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.forms.samples import (
    even_size,
    one_sample,
    reshaped,
    sample_count,
    take,
    windows,
)
from gnjax.networks.layer_types.uses import Pair, by_places, by_positions, has_places
from gnjax.networks.network import Network, backward_products
from gnjax.networks.outputs.hessians import root_rows
from gnjax.networks.outputs.targets import Target
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_cpu, on_device, on_host, zeros

_ROWS = 64

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Item:
    """One chosen parameter, and the form in which its part of J is computed.

    The form is "rows" for the columns of J themselves. It is "pair" for the inputs a and the
    sensitivities delta of each use, in the shapes of its equation; "vectors" for both as vectors,
    where the layer acts on a single position; and "places" where every a_t is a unit vector and the
    indices of the ones stand for a.
    """

    place: int  # index among the chosen leaves
    layer: int | None  # index among the traced layers; None: by differentiation
    form: Literal["rows", "pair", "vectors", "places"]
    width: int  # how many numbers it takes for each row of J


Pieces = tuple[list[Pair], jax.Array]
"""The pairs of some samples, of items that are not "rows", and rows (n, r, p)."""


def row_blocks(net: Network, first: int = 0) -> Iterator[jax.Array]:
    """Yield J (n r, p) some rows at a time, columns in the order of the parameter vector.

    The blocks before the one with the number ``first`` are left out.
    """
    if net.coupled:
        yield from islice(_coupled_blocks(net), first, None)
        return
    items = tuple(replace(item, form="rows") for item in items_of(net, sample_trace(net)))
    for _, rows in in_windows(net, items, (net.x, net.target), first):
        yield reshaped(rows, -1, net.parameters)


def in_batches(net: Network, items: tuple[Item, ...]) -> Iterator[Pieces]:
    """Yield the pairs and rows of the items for all samples, some samples at a time.

    Memory limits their number, since a sample takes r backward passes at once.
    """
    yield from in_windows(net, items, (net.x, net.target))


def in_windows(
    net: Network, items: tuple[Item, ...], samples: Any, first: int = 0
) -> Iterator[Pieces]:
    """Yield the pieces of J for ``samples`` in parts of one size, so that one program serves all.

    The last part overlaps the one before it, and what was computed twice is yielded once. The parts
    before the one with the number ``first`` are left out.
    """
    size = even_size(sample_count(samples), max(1, net.batch // net.rows))
    for (x, target), skip in islice(windows(samples, size), first, None):
        pieces = _pieces(net, items, x, target)
        yield take(pieces, slice(skip, None)) if skip else pieces


def jacobian(net: Network) -> np.ndarray:
    """J (n r, p), columns in the order of the parameter vector."""
    return np.concatenate([np.asarray(block) for block in row_blocks(net)])


def parameter_gram(net: Network, vectors: np.ndarray) -> tuple[jax.Array, np.ndarray]:
    """J^T J (p, p), and U J (m, p) for vectors U (m, n r), both summed over rows."""
    total, images = jnp.zeros((net.parameters, net.parameters), net.dtype), 0.0
    start = 0
    for block in row_blocks(net):
        images = images + vectors[:, start : start + len(block)] @ on_host(block)
        total = _accumulate(total, block)
        start += len(block)
    return total, np.asarray(images)


@partial(jax.jit, donate_argnums=0)
def _accumulate(total: jax.Array, rows: jax.Array) -> jax.Array:
    return total + jnp.matmul(rows.T, rows, precision="highest")


def sample_trace(net: Network) -> layers.Trace:
    """The network of one sample, and its layers."""
    return layers.trace(net.one, net.leaves, one_sample(net.x))


def items_of(net: Network, trace: layers.Trace) -> tuple[Item, ...]:
    """The form in which the part of each chosen parameter in J is computed."""
    of_leaf = {layer.leaf: index for index, layer in enumerate(trace.layers)}
    items = []
    for place, (leaf, indices) in enumerate(zip(net.leaf_indices, net.entry_indices, strict=True)):
        index = of_leaf.get(leaf)
        if index is None:
            items.append(Item(place, None, "rows", net.counts[place]))
            continue
        use = trace.layers[index].only_use
        positions = 0 if use is None else use.positions
        if use is None or indices is not None:
            items.append(Item(place, index, "rows", net.counts[place]))
        elif has_places(use) and positions**2 < use.sizes.inputs:
            items.append(Item(place, index, "places", positions * (use.sizes.outputs + 1)))
        elif positions == use.groups == 1:
            width = use.sizes.outputs + use.sizes.inputs // net.rows + 1
            items.append(Item(place, index, "vectors", width))
        else:
            items.append(Item(place, index, "rows", net.counts[place]))
    return tuple(items)


def joined(parts: Sequence[Tree]) -> Tree:
    """Join trees of arrays, each for some of the samples, along the samples."""
    return parts[0] if len(parts) == 1 else jax.tree.map(_concatenated, *parts)


def _concatenated(*parts: jax.Array) -> jax.Array:
    """Concatenate on the first axis; on a CPU by NumPy, as JAX would compile for every shape."""
    if all(on_cpu(part) and len(part.devices()) == 1 for part in parts):
        buffer = zeros((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        return on_device(np.concatenate([np.asarray(part) for part in parts], out=buffer))
    return jnp.concatenate(parts)


@bounded_jit(static_argnames=("group",))
def _pieces(net: Network, group: tuple[Item, ...], x: Any, target: Target | None) -> Pieces:
    """The pairs and rows of the items for the samples x, weighted by R^T."""
    trace = sample_trace(net)
    layers_of_group = [trace.layers[item.layer] for item in group if item.layer is not None]
    uses = [use for layer in layers_of_group for use in layer.uses]
    other_leaves = [net.leaf_indices[item.place] for item in group if item.layer is None]

    def sample(xi: Any, part: Target | None) -> Pieces:
        root = partial(root_rows, part)
        pairs, gradients = layers.sensitivities(trace, uses, other_leaves, net.leaves, xi, root)
        pairs_left, gradients_left = iter(pairs), iter(gradients)
        pairs_of_items: list[Pair] = []
        rows = [jnp.zeros((net.rows, 0), net.dtype)]
        for item in group:
            if item.layer is None:
                rows.append(_chosen_columns(net, item, next(gradients_left)))
                continue
            layer = trace.layers[item.layer]
            pairs_of_layer = [next(pairs_left) for _ in layer.uses]
            if item.form == "pair":
                pairs_of_items += pairs_of_layer
            elif item.form == "places":
                pairs_of_items.append(by_places(layer.uses[0], pairs_of_layer[0], net.dtype))
            elif item.form == "vectors":
                a, delta = by_positions(layer.uses[0], pairs_of_layer[0], net.dtype)
                pairs_of_items.append((a[0, 0], delta[:, 0, 0]))
            else:
                rows_of_layer = layers.jacobian_rows(layer, net.leaves[layer.leaf], pairs_of_layer)
                rows.append(_chosen_columns(net, item, rows_of_layer))
        return pairs_of_items, jnp.concatenate(rows, axis=1)

    return jax.vmap(sample)(x, target)


def _chosen_columns(net: Network, item: Item, rows: jax.Array) -> jax.Array:
    """The columns of the chosen entries of a parameter."""
    indices = net.entry_indices[item.place]
    return rows if indices is None else rows[:, indices]


def _coupled_blocks(net: Network) -> Iterator[jax.Array]:
    """J of the whole batch as one function, some outputs at a time."""
    size = net.samples * net.rows
    for start in range(0, size, _ROWS):
        unit = np.eye(size, min(_ROWS, size - start), -start, dtype=net.dtype)
        yield backward_products(net, on_device(unit)).T
