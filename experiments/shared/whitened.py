"""The whitened data set of a cell, which each process loads once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gnjax import data as datasets


@dataclass(frozen=True)
class Whitened:
    """The rank of whitened data, on which kappa of a linear network depends, and their source."""

    rank: int
    samples: int
    source: str
    deviation: float  # of X^T X, or of X X^T where n < d, from the identity
    variances: tuple[float, ...]  # of the data before whitening, along their principal axes


@cache
def whitened(data: str, samples: int, seed: int, side: int) -> Whitened:
    """Load (``samples`` 0: all), downsample to ``side`` (0: not at all) and whiten.

    Whitening is that of paper A's published code: X = U S V^T is replaced by U V^T and nothing is
    centred. All min(n, d) singular values are then 1, also those of a pixel that is black in every
    image, for which the decomposition chooses a direction. So 60,000 images of MNIST have rank 784,
    where the range of the data has 712 dimensions. kappa of a linear network depends on the data
    through this rank alone.
    """
    dataset = _downsampled(data, samples, seed, side)
    lefts, values, rights = np.linalg.svd(dataset.inputs, full_matrices=False)
    white = lefts @ rights
    gram = white.T @ white if len(white) >= len(rights.T) else white @ white.T
    deviation = float(np.abs(gram - np.eye(len(values))).max())
    variances = tuple(values**2 / len(white))
    return Whitened(len(values), len(white), dataset.source, deviation, variances)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Some samples of data that were whitened whole, so that their own Sigma is not the identity.

    ``inputs`` is (n, r) for data of rank r.
    """

    inputs: NDArray[np.float64]
    source: str


@cache
def drawn(data: str, samples: int, seed: int, side: int, count: int) -> Drawn:
    """``count`` samples, without replacement, of what ``whitened`` whitens."""
    whole = _downsampled(data, samples, seed, side)
    white = replace(whole, inputs=datasets.whiten(whole.inputs).inputs)
    chosen = datasets.subsample(white, count, seed)
    size = f", downsampled to {side} x {side}" if side else ""
    rank = chosen.inputs.shape[1]
    return Drawn(chosen.inputs, f"{chosen.source}{size}, whitened before drawing: rank {rank}")


def _downsampled(data: str, samples: int, seed: int, side: int) -> datasets.Dataset:
    dataset = datasets.load(data, samples=samples or None, seed=seed)
    if not side:
        return dataset
    small = datasets.downsample(dataset.inputs, dataset.shape, (side, side))
    return replace(dataset, inputs=small, shape=(side, side, *dataset.shape[2:]))


def describe(data: str, samples: int, seed: int, side: int) -> str:
    """One line for the provenance."""
    white = whitened(data, samples, seed, side)
    size = f", downsampled to {side} x {side}" if side else ""
    return (
        f"{white.source}{size}, whitened to U V^T: n={white.samples}, rank {white.rank}, X^T X "
        f"within {white.deviation:.1e} of the identity"
    )
