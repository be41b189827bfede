"""The types of layers whose structure is used, one file each, by the name of their primitive."""

from gnjax.networks.layer_types import convolution, dense, lookup
from gnjax.networks.layer_types.base import LayerType, Loop, Relabel, Use

LAYER_TYPES = {
    "dot_general": dense.TYPE,
    "conv_general_dilated": convolution.TYPE,
    "gather": lookup.TYPE,
}

__all__ = ["LAYER_TYPES", "LayerType", "Loop", "Relabel", "Use"]
