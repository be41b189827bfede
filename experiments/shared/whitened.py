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
    deviation: float  # of the whitened covariance from the identity
    variances: tuple[float, ...]  # of the data before whitening, along its principal axes


@cache
def whitened(data: str, samples: int, seed: int, side: int) -> Whitened:
    """Load (``samples`` 0: all), downsample to ``side`` (0: not at all) and whiten.

    With whitened data Sigma is the identity on the range of the data, so that kappa depends on
    the data through this rank alone.
    """
    dataset = _downsampled(data, samples, seed, side)
    white = datasets.whiten(dataset.inputs)
    sigma = datasets.covariance(white.inputs)
    deviation = float(np.abs(sigma - np.eye(white.rank)).max())
    variances = tuple(1 / (white.transform**2).sum(axis=0))  # of V S^-1 sqrt(n): s^2 / n
    return Whitened(white.rank, len(white.inputs), dataset.source, deviation, variances)


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
        f"{white.source}{size}, whitened: n={white.samples}, rank {white.rank}, covariance within "
        f"{white.deviation:.1e} of the identity"
    )
