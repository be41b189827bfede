"""Flax NNX models."""

from gnjax.models.cnn import CNN, LinearCNN
from gnjax.models.linear import LinearNet
from gnjax.models.mlp import MLP, freeze_statistics

__all__ = ["CNN", "MLP", "LinearCNN", "LinearNet", "freeze_statistics"]
