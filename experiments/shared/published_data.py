"""Images as the published code of paper A prepares them: the first ones, strides, U V^T."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnjax import data as datasets

Array = NDArray[np.float64]

CHANNEL_MEANS = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's training images, as everybody rounds them
CHANNEL_DEVIATIONS = (0.2023, 0.1994, 0.2010)  # as much code has them


def first_images(name: str, samples: int, step: int = 1) -> datasets.Dataset:
    """The first ``samples`` images of the file (0: all), every ``step``-th pixel of each side."""
    return strided(datasets.load(name, first=samples or None), step)


def strided(dataset: datasets.Dataset, step: int) -> datasets.Dataset:
    """Every ``step``-th pixel of each side from the first one on, nothing averaged."""
    if step == 1:
        return dataset
    images = dataset.inputs.reshape(-1, *dataset.shape)[:, ::step, ::step]
    place = {2: "2nd", 3: "3rd"}.get(step, f"{step}th")
    size = f"every {place} pixel: {images.shape[1]} x {images.shape[2]}"
    return replace(
        dataset,
        inputs=images.reshape(len(images), -1),
        shape=images.shape[1:],
        source=f"{dataset.source}, {size}",
    )


def without_channel_means(dataset: datasets.Dataset) -> datasets.Dataset:
    """Images of values in [0, 1] in three channels, less the mean of each channel."""
    if dataset.shape[-1:] != (3,):
        msg = f"{dataset.name} has images of shape {dataset.shape}, and no three channels"
        raise ValueError(msg)
    images = dataset.inputs.reshape(-1, 3) - np.array(CHANNEL_MEANS)
    return replace(
        dataset,
        inputs=images.reshape(dataset.inputs.shape),
        source=f"{dataset.source}, less the mean of each channel",
    )


def over_channel_deviations(dataset: datasets.Dataset) -> datasets.Dataset:
    """Images less the mean of each channel, over the constants that much code for CIFAR-10 has.

    The constants are the standard deviation within an image, averaged over the images. That of all
    pixels of a channel is larger: 0.247, 0.243 and 0.262.
    """
    centred = without_channel_means(dataset)
    images = centred.inputs.reshape(-1, 3) / np.array(CHANNEL_DEVIATIONS)
    return replace(
        centred,
        inputs=images.reshape(centred.inputs.shape),
        source=f"{centred.source}, over {', '.join(map(str, CHANNEL_DEVIATIONS))}",
    )


def standardised(dataset: datasets.Dataset) -> datasets.Dataset:
    """Images of which every channel has mean 0 and variance 1 over all their pixels."""
    _, _, *channels = dataset.shape
    images = dataset.inputs.reshape(-1, *channels or (1,))
    images = (images - images.mean(axis=0)) / images.std(axis=0)
    return replace(
        dataset,
        inputs=images.reshape(dataset.inputs.shape),
        source=f"{dataset.source}, standardised by channel",
    )


def orthonormal(x: Array) -> Array:
    """U V^T for x = U S V^T, not centred: X^T X = I, or X X^T = I where there are fewer samples.

    >>> x = orthonormal(np.random.default_rng(0).standard_normal((6, 2)))
    >>> np.allclose(x.T @ x, np.eye(2))
    True
    """
    lefts, _, rights = np.linalg.svd(x, full_matrices=False)
    return lefts @ rights
