"""The types of layers whose structure is used, one file each, by the name of their primitive."""

from gnjax.networks.layer_types import convolution, dense_layer, lookup
from gnjax.networks.layer_types.layer_type import LayerType, Loop, Relabel, Use

LAYER_TYPES = {
    "dot_general": dense_layer.TYPE,
    "conv_general_dilated": convolution.TYPE,
    "gather": lookup.TYPE,
}

__all__ = ["LAYER_TYPES", "LayerType", "Loop", "Relabel", "Use"]
