"""Flax NNX models."""

from gnjax.models.cnn import CNN, LinearCNN
from gnjax.models.gpt import GPT
from gnjax.models.linear import LinearNet
from gnjax.models.mlp import MLP, freeze_statistics
from gnjax.models.resnet import ResNet
from gnjax.models.vgg import VGG
from gnjax.models.vit import ViT

__all__ = [
    "CNN",
    "GPT",
    "MLP",
    "VGG",
    "LinearCNN",
    "LinearNet",
    "ResNet",
    "ViT",
    "freeze_statistics",
]
