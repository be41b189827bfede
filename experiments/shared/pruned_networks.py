"""The networks of figures 1 and 13 to 17, how each is made, and the images that they see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from gnjax import data as datasets
from gnjax import initializers
from gnjax.models import MLP, VGG, ResNet, ViT, freeze_statistics
from gnjax.models.vgg import VGG5

KERNELS = "*kernel*"  # what is pruned: the weights of linear and convolution layers
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
    filters = [width * layer // VGG5[0] for layer in VGG5[: depth - 1]]
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
def images(data: str, samples: int, seed: int, side: int) -> Images:
    """Load images, bring them to ``side`` (0: as they are), and standardise each channel.

    Larger images are downsampled. Smaller ones get a frame of zeros, which is black.
    """
    dataset = datasets.load(data, samples=samples, seed=seed)
    inputs, shape = dataset.inputs, dataset.shape
    if 0 < side < max(shape[:2]):
        inputs = datasets.downsample(inputs, shape, (side, side))
        shape = (side, side, *shape[2:])
    x = inputs.reshape(samples, *shape[:2], -1)
    framed = side > min(shape[:2])
    if framed:
        missing = [(side - length) for length in shape[:2]]
        edges = [(each // 2, each - each // 2) for each in missing]
        x = np.pad(x, [(0, 0), *edges, (0, 0)])
    name = f"{data}, padded to {side} x {side}" if framed else data
    x = (x - x.mean(axis=(0, 1, 2))) / x.std(axis=(0, 1, 2))
    return Images(name, x, dataset.labels, dataset.classes, dataset.source)


def frozen(net: nnx.Module, x: NDArray[np.float64]) -> nnx.Module:
    """The network with its BatchNorm layers, if any, frozen at the statistics of these samples."""
    norms = [node for _, node in nnx.iter_graph(net) if isinstance(node, nnx.BatchNorm)]
    return freeze_statistics(net, jax.numpy.asarray(x)) if norms else net
