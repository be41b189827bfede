"""Data sets that are made here, from scikit-learn's bundled files or from a seed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gnjax.numerics.extras import optional
from gnjax.numerics.memory.free import check_room

_Samples = tuple[NDArray[np.float64], NDArray[np.int64]]  # (n, *shape), (n,)

PATCH = 32
REGIONS = 5  # vertical strips of each photograph
PHOTOGRAPHS = ("china.jpg", "flower.jpg")


def digits() -> _Samples:
    """scikit-learn's 1,797 handwritten digits, 8 x 8, with the grey levels 0..16 over 16."""
    bunch = optional("sklearn.datasets", 'the data set "digits"').load_digits()
    return bunch.images / 16.0, bunch.target.astype(np.int64)


def gaussian(samples: int, dimension: int, classes: int, seed: int) -> _Samples:
    """Rows x ~ N(0, I_d); a row's label is argmax(A x) for an A with N(0, 1) entries.

    The labels can therefore be fitted by a linear map. With one seed, fewer samples are the first
    rows of more samples.
    """
    # How many numbers x, A and x A^T have together.
    numbers = (samples + classes) * (dimension + 0.0) + samples * classes
    check_room(f"gaussian data of {samples:,} samples", 8 * numbers, "ask for fewer")
    teacher_stream, inputs_stream = np.random.SeedSequence(seed).spawn(2)
    teacher = np.random.default_rng(teacher_stream).standard_normal((classes, dimension))
    inputs = np.random.default_rng(inputs_stream).standard_normal((samples, dimension))
    return inputs, np.argmax(inputs @ teacher.T, axis=1).astype(np.int64)


def photo_patches(samples: int, seed: int) -> _Samples:
    """32 x 32 x 3 crops of two photographs; the class is the strip a crop was cut from.

    Each photograph is split into 5 vertical strips, which makes 10 classes; the i-th crop has
    class i mod 10 and lies wholly within its strip. No crop occurs twice.
    """
    datasets = optional("sklearn.datasets", 'the data set "photo_patches"')
    strips = [
        strip
        for photograph in PHOTOGRAPHS
        for strip in np.array_split(datasets.load_sample_image(photograph), REGIONS, axis=1)
    ]
    crops_of_a_strip = min(math.prod(_windows(strip).shape[:2]) for strip in strips)
    most = len(strips) * crops_of_a_strip
    if samples > most:
        msg = f"photo_patches has at most {most:,} samples, and {samples:,} were asked for"
        raise ValueError(msg)
    memory = 2.0 * 8 * samples * PATCH * PATCH * 3  # of two arrays: before and after division
    check_room(f"photo_patches of {samples:,} samples", memory, "ask for fewer")
    labels = np.arange(samples) % len(strips)
    patches = np.empty((samples, PATCH, PATCH, 3))
    for label, stream in enumerate(np.random.SeedSequence(seed).spawn(len(strips))):
        members = np.flatnonzero(labels == label)
        patches[members] = crops(strips[label], len(members), np.random.default_rng(stream))
    return patches / 255.0, labels.astype(np.int64)


def crops(
    image: NDArray[np.uint8], count: int, rng: np.random.Generator
) -> NDArray[np.uint8]:  # (count, 32, 32, 3)
    """``count`` different crops of 32 x 32 pixels of an image (height, width, 3).

    Their positions are drawn without replacement.
    """
    windows = _windows(image)
    rows, columns = windows.shape[:2]
    positions = rng.choice(rows * columns, count, replace=False)
    patches = windows[positions // columns, positions % columns]  # (count, 3, 32, 32)
    return patches.transpose(0, 2, 3, 1)


def _windows(image: NDArray[np.uint8]) -> NDArray[np.uint8]:  # (rows, columns, 3, 32, 32)
    """Every crop of 32 x 32 pixels by its upper left corner, as views: nothing is copied."""
    return np.lib.stride_tricks.sliding_window_view(image, (PATCH, PATCH), axis=(0, 1))
