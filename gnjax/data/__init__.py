"""Data: loaded under its own name with its provenance, then transformed by pure functions."""

from gnjax.data.datasets import Dataset, fetch, load, names, one_hot, state
from gnjax.data.places import DataUnavailableError
from gnjax.data.transforms import (
    Imbalanced,
    Whitened,
    class_imbalance,
    covariance,
    downsample,
    grayscale,
    orthogonalise,
    standardise,
    subsample,
    whiten,
)

__all__ = [
    "DataUnavailableError",
    "Dataset",
    "Imbalanced",
    "Whitened",
    "class_imbalance",
    "covariance",
    "downsample",
    "fetch",
    "grayscale",
    "load",
    "names",
    "one_hot",
    "orthogonalise",
    "standardise",
    "state",
    "subsample",
    "whiten",
]
