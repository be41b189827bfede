"""Data: loaded under its own name with its provenance, then transformed by pure functions."""

from gnjax.data.datasets import Dataset, fetch, load, names, one_hot, state
from gnjax.data.places import DataUnavailableError
from gnjax.data.text import Text, load_text, sequences
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
    "Text",
    "Whitened",
    "class_imbalance",
    "covariance",
    "downsample",
    "fetch",
    "grayscale",
    "load",
    "load_text",
    "names",
    "one_hot",
    "orthogonalise",
    "sequences",
    "standardise",
    "state",
    "subsample",
    "whiten",
]
