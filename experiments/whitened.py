"""The whitened data set of a cell, loaded once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gnjax import data as datasets


@dataclass(frozen=True)
class Whitened:
    """What a linear network's kappa sees of whitened data, the rank, and where it came from."""

    rank: int
    samples: int
    source: str
    deviation: float  # of the whitened covariance from the identity


@cache
def whitened(data: str, samples: int, seed: int, side: int) -> Whitened:
    """Load (``samples`` 0: all), downsample to ``side`` (0: not at all) and whiten.

    With whitened data Sigma is the identity on the range of the data, so that kappa depends on
    the data through this rank alone.
    """
    dataset = datasets.load(data, samples=samples or None, seed=seed)
    inputs = dataset.inputs
    if side:
        inputs = datasets.downsample(inputs, dataset.shape, (side, side))
    white = datasets.whiten(inputs)
    sigma = datasets.covariance(white.inputs)
    deviation = float(np.abs(sigma - np.eye(white.rank)).max())
    return Whitened(white.rank, len(inputs), dataset.source, deviation)


def describe(data: str, samples: int, seed: int, side: int) -> str:
    """One line for the provenance."""
    white = whitened(data, samples, seed, side)
    size = f", downsampled to {side} x {side}" if side else ""
    return (
        f"{white.source}{size}, whitened: n={white.samples}, rank {white.rank}, covariance within "
        f"{white.deviation:.1e} of the identity"
    )
