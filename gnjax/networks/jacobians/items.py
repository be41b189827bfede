"""Which parameters of a network are in known layers, and the form of their part of J."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnjax.networks import layers
from gnjax.networks.forms.samples import one_sample
from gnjax.networks.layer_types import Use
from gnjax.networks.layer_types.uses import has_one_hot_inputs
from gnjax.networks.network import Network


@dataclass(frozen=True)
class Item:
    """One chosen parameter, and the form in which its columns of J are computed.

    The form is "columns" for the columns of J themselves. The other forms hold the inputs a of the
    parameter's layer and the sensitivities delta, the derivatives of the outputs by the layer's
    result, from which the columns are sum_t delta_t a_t^T over its positions t. It is "pair" for
    both in the shapes of the layer's equation; "vectors" for both as vectors, where the layer acts
    on a single position; and "places" where every a_t is a unit vector and the indices of the ones
    stand for a. Of coupled samples, whose layers act on all of them at once, "narrow" is for fewer
    columns C with the same C C^T (:mod:`gnjax.networks.jacobians.coupled`).
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

    With inputs a_t and sensitivities delta_t at positions t of a layer, J_l is sum_t delta_t a_t^T.
    A layer that acts at one position is in the form "vectors", which holds a and delta. A table in
    which rows are looked up at few positions is in the form "places", which holds the indices of
    the rows in place of a. Any other parameter is in the form "columns", which holds J_l. ``trace``
    has the layers of the network of one sample.
    """
    layer_by_leaf = layer_of_leaf(trace)
    items = []
    for index, (leaf, entries) in enumerate(zip(net.leaf_indices, net.entry_indices, strict=True)):
        layer = layer_by_leaf.get(leaf)
        if layer is None:
            items.append(Item(index, None, "columns", net.counts[index]))
            continue
        use = trace.layers[layer].only_use
        positions = 0 if use is None else use.positions
        if use is None or entries is not None:
            items.append(Item(index, layer, "columns", net.counts[index]))
        elif has_one_hot_inputs(use) and positions**2 < use.sizes.inputs:
            # J_l J_l^T compares all pairs of positions; at a position delta has q_out numbers, and
            # the index of the row is one more
            items.append(Item(index, layer, "places", positions * (use.sizes.outputs + 1)))
        elif positions == use.groups == 1:
            # delta has q_out numbers for each of the r rows of a sample, and a has q_in in all
            width = use.sizes.outputs + use.sizes.inputs // net.rows + 1
            items.append(Item(index, layer, "vectors", width))
        else:
            items.append(Item(index, layer, "columns", net.counts[index]))
    return tuple(items)


def as_columns(net: Network) -> tuple[Item, ...]:
    """One item of the form "columns" for each chosen parameter: together all columns of J."""
    layered = () if net.coupled else net.layered  # the parameters in known layers
    layer_by_leaf = {leaf: layer for layer, leaf in enumerate(layered)}
    parameters = enumerate(zip(net.leaf_indices, net.counts, strict=True))
    return tuple(
        Item(i, layer_by_leaf.get(leaf), "columns", count) for i, (leaf, count) in parameters
    )
