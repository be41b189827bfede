"""Data: loaded under its own name with its provenance, then transformed by pure functions."""

import difflib
from typing import TYPE_CHECKING

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

if not TYPE_CHECKING:  # a type checker shall still refuse names that do not exist

    def __getattr__(name):
        """No attribute; the error says what was meant, as names of loaders are often guessed."""
        similar = difflib.get_close_matches(name, __all__, n=1)
        hint = f"; did you mean gnjax.data.{similar[0]}?" if similar else ""
        if "load" in name or name in names():
            known = name if name in names() else "digits"
            hint = f"; write gnjax.data.load({known!r}), with a name of gnjax.data.names()"
        msg = f"module 'gnjax.data' has no attribute {name!r}{hint}"
        raise AttributeError(msg)
