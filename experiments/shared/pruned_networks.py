"""The networks of figures 1 and 13 to 17, how each is made, and the images that they see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from gnjax import data as datasets
from gnjax import initializers
from gnjax.models import MLP, VGG, ResNet, ViT, freeze_statistics

KERNELS = "*kernel*"  # what is pruned: the weights of linear and convolution layers
VGG5 = (1, 2, 4, 4)  # its filters over those of the first layer
Shape = tuple[int, ...]  # (side, side, channels) of an image
Make = Callable[[int, int, Shape, int, jax.Array], nnx.Module]


@dataclass(frozen=True)
class Kind:
    """A network: its figure, how it is made, and about how large it is at the paper's size.

    ``make`` takes the depth, the width, the shape of an image, k and a key.
    """

    figure: str
    make: Make
    width: int  # the paper's
    weights: float
    work: float  # multiplications of a forward pass of a 32 x 32 image


def _vit(depth: int, width: int, shape: Shape, outputs: int, key: jax.Array) -> ViT:
    return ViT(shape[0], outputs, depth=depth, width=width, channels=shape[2], key=key)


def _resnet(depth: int, width: int, shape: Shape, outputs: int, key: jax.Array) -> ResNet:
    return ResNet(depth, outputs, width=width, channels=shape[2], key=key)


def _vgg(depth: int, width: int, shape: Shape, outputs: int, key: jax.Array) -> VGG:
    """A VGG whose layers have filters in the proportions of VGG5."""
    filters = [width * times for times in VGG5[: depth - 1]]
    return VGG(shape[0], outputs, filters=filters, channels=shape[2], key=key)


def _feed_forward(depth: int, width: int, shape: Shape, outputs: int, key: jax.Array) -> MLP:
    """Hidden layers of one width, and PyTorch's biases."""
    model = MLP((int(np.prod(shape)), *[width] * (depth - 1), outputs), key=key)
    initializers.start_as_pytorch(model, key)
    return model


KINDS: Mapping[str, Kind] = {
    "vit": Kind("13", _vit, 48, 1.2e5, 8e6),
    "resnet20": Kind("14", _resnet, 16, 2.7e5, 4.1e7),
    "resnet32": Kind("15", _resnet, 16, 4.7e5, 7e7),
    "vgg5": Kind("16", _vgg, 32, 2.4e5, 1.3e7),
    "feed_forward": Kind("17", _feed_forward, 100, 3.2e5, 3.2e5),
}


def check_run(name: str, run: Mapping[str, Any]) -> None:
    """Refuse pruned networks without rates, seeds or a first measurement before they train."""
    counts = [run[field] for field in ("width", "samples", "seeds") if field in run]
    if min(*counts, len(run["rates"])) < 1:
        msg = f"{name} needs rates, and a width, samples and seeds of at least 1"
        raise ValueError(msg)
    stops = run["stops"]
    if stops[:1] != (0,) or any(later <= stop for stop, later in pairwise(stops)):
        msg = f"stops={stops} of {name} must begin with 0 and increase: epochs before kappa"
        raise ValueError(msg)


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, side, side, channels) with mean 0 and variance 1 of every channel.

    ``data`` is the name of the data set and what was done to its images.
    """

    data: str
    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    source: str


@cache
def images(data: str, samples: int, seed: int, side: int, channels: int = 0) -> Images:
    """Load images, bring them to ``side`` and ``channels``, and standardise each channel.

    0 leaves a side, or the channels, as they are. Larger images are downsampled. Smaller ones get a
    frame of zeros, which is black. A single channel is repeated.
    """
    dataset = datasets.load(data, samples=samples, seed=seed)
    inputs, shape = dataset.inputs, dataset.shape
    if 0 < side < max(shape[:2]):
        inputs = datasets.downsample(inputs, shape, (side, side))
        shape = (side, side, *shape[2:])
    x = inputs.reshape(samples, *shape[:2], -1)
    name = data
    if side > min(shape[:2]):
        x, name = _framed(x, side), f"{name}, padded to {side} x {side}"
    if channels not in (0, x.shape[-1]):
        x, name = _repeated(x, channels), f"{name}, in {channels} equal channels"
    x = (x - x.mean(axis=(0, 1, 2))) / x.std(axis=(0, 1, 2))
    return Images(name, x, dataset.labels, dataset.classes, dataset.source)


def _framed(x: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    missing = [side - length for length in x.shape[1:3]]
    edges = [(each // 2, each - each // 2) for each in missing]
    return np.pad(x, [(0, 0), *edges, (0, 0)])


def _repeated(x: NDArray[np.float64], channels: int) -> NDArray[np.float64]:
    if x.shape[-1] != 1:
        msg = f"images of {x.shape[-1]} channels cannot have {channels}; set channels to 0"
        raise ValueError(msg)
    return np.repeat(x, channels, axis=-1)


def frozen(net: nnx.Module, x: NDArray[np.float64]) -> nnx.Module:
    """The network with its BatchNorm layers, if any, frozen at the statistics of these samples.

    Biases before them are set to zero, which changes neither the outputs nor J: the mean that is
    subtracted changes with them. What is left of a filter without weights is then exactly the shift
    of its BatchNorm. Where that is 0, at the kink of ReLU, rounding no longer decides whether the
    filter is dead: it is.
    """
    if not any(isinstance(node, nnx.BatchNorm) for _, node in nnx.iter_graph(net)):
        return net
    unbiased = nnx.clone(net)
    for _, node in nnx.iter_graph(unbiased):
        if isinstance(node, nnx.Conv) and node.bias is not None:
            node.bias[...] = jax.numpy.zeros_like(node.bias[...])
    return freeze_statistics(unbiased, jax.numpy.asarray(x))
