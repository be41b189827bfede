"""Flax NNX models."""

from gnjax.models.linear import LinearNet

__all__ = ["LinearNet"]
