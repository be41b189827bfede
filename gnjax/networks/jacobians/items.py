"""Which parameters of a network are in known layers, and the form of their part of J."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gnjax.networks import layers
from gnjax.networks.arguments.samples import one_sample
from gnjax.networks.layer_types import Use
from gnjax.networks.layer_types.uses import has_one_hot_inputs
from gnjax.networks.network import Network


@dataclass(frozen=True)
class Item:
    """One chosen parameter, and the form in which its columns of J are computed.

    "columns" are the columns of J themselves. The other forms hold the inputs a of the parameter's
    layer and the sensitivities delta, the derivatives of the outputs by the layer's result; the
    columns are sum_t delta_t a_t^T over its positions t. In a "pair" both have the shapes of the
    layer's equation; "vectors" are both as vectors, where the layer acts on a single position; and
    in "places" the indices of the ones stand for a, where every a_t is a unit vector. Of coupled
    samples "narrow" is for fewer columns C with the same C C^T.
    """

    parameter: int  # index among the chosen leaves, ``net.leaf_indices``
    layer: int | None  # index among the traced layers; None: by differentiation
    form: Literal["columns", "pair", "vectors", "places", "narrow"]
    width: int  # how many numbers it takes for each row of J


def sample_trace(net: Network) -> layers.TracedLayers:
    """The equations of the network of one sample, and the layers among them."""
    return layers.traced_layers(net.one, net.leaves, one_sample(net.x))


def layer_of_leaf(trace: layers.TracedLayers) -> dict[int, int]:
    """For each parameter in a known layer the index of its layer."""
    return {layer.leaf: index for index, layer in enumerate(trace.layers)}


def uses_of(trace: layers.TracedLayers, item: Item) -> tuple[Use, ...]:
    """The equations that an item's parameter enters; none if it is in no known layer."""
    return () if item.layer is None else trace.layers[item.layer].uses


def items_of(net: Network, trace: layers.TracedLayers) -> tuple[Item, ...]:
    """For each chosen parameter l, with the columns J_l of J, the form of least work for J_l J_l^T.

    A layer that acts at one position is in the form "vectors", and a table in which rows are looked
    up at few positions in the form "places". ``trace`` has the layers of the network of one sample.
    """
    layer_by_leaf = layer_of_leaf(trace)
    items = []
    for index, (leaf, entries) in enumerate(zip(net.leaf_indices, net.entry_indices, strict=True)):
        item = Item(index, layer_by_leaf.get(leaf), "columns", net.counts[index])
        use = None if item.layer is None else trace.layers[item.layer].only_use
        if use is None or entries is not None:
            items.append(item)
            continue
        inputs, outputs = use.sizes.inputs, use.sizes.outputs
        if has_one_hot_inputs(use) and use.positions**2 < inputs:
            # J_l J_l^T compares all pairs of positions; at a position delta has q_out numbers, and
            # the index of the row is one more
            item = replace(item, form="places", width=use.positions * (outputs + 1))
        elif use.positions == use.groups == 1:
            # delta has q_out numbers for each of the r rows of a sample, and a has q_in in all
            item = replace(item, form="vectors", width=outputs + inputs // net.rows + 1)
        items.append(item)
    return tuple(items)


def as_columns(net: Network) -> tuple[Item, ...]:
    """One item of the form "columns" for each chosen parameter: together all columns of J."""
    # of coupled samples J is computed by differentiation alone
    layer_by_leaf = {} if net.coupled else {leaf: i for i, leaf in enumerate(net.layered)}
    parameters = enumerate(zip(net.leaf_indices, net.counts, strict=True))
    return tuple(
        Item(i, layer_by_leaf.get(leaf), "columns", count) for i, (leaf, count) in parameters
    )
