"""A tanh network that classifies small images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import gnjax
from experiments.shared.language import Sizes, of_last_position

IMAGES = "fashion_mnist_5000"


@dataclass(frozen=True)
class Network:
    """The sizes of a GPT or of a tanh network; ``length`` counts characters, 0 for images."""

    samples: int
    outputs: int
    length: int
    width: int
    depth: int


def tanh_classifier(sizes: Sizes, side: int) -> tuple[nnx.Module, Any, Any]:
    """The network at initialisation, standardised images (n, side^2) and their labels (n,).

    The seed of the weights draws the images too.
    """
    loaded = gnjax.data.load(IMAGES, samples=sizes.samples, seed=sizes.seed)
    x = gnjax.data.standardise(gnjax.data.downsample(loaded.inputs, loaded.shape, (side, side)))
    widths = (x.shape[1], *[sizes.width] * (sizes.depth - 1), sizes.outputs)
    key = jax.random.key(sizes.seed)
    mlp = gnjax.models.MLP(widths, activation="tanh", initializer="pytorch_default", key=key)
    return mlp, x, loaded.labels


def gpt_or_classifier(
    network: str, sizes: Sizes, side: int
) -> tuple[nnx.Module, jax.Array, jax.Array]:
    """The GPT that predicts the last character where ``network`` is "gpt", else the classifier.

    Each with its inputs and its labels; the seed of the weights draws the samples too.
    """
    if network == "gpt":
        model, x, y = of_last_position(sizes, sizes.seed)
    else:
        model, x, y = tanh_classifier(sizes, side)
    return model, jnp.asarray(x), jnp.asarray(y)
