"""A GPT that says which character follows a piece of text, and the pieces that it sees.

Its outputs are the logits of the last position alone: one vector of k numbers for each sample, as
of the classifiers of paper A. Beginnings that several pieces share then give no equal rows of J.
"""

from __future__ import annotations

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import gnjax


class NextCharacter(nnx.Module):
    """The logits (n, k) of a language model behind the last character of each piece (n, t)."""

    def __init__(self, model: nnx.Module) -> None:
        self.model = model

    def __call__(self, tokens: jax.Array) -> jax.Array:
        logits: jax.Array = self.model(tokens)
        return logits[:, -1]


def pieces(
    vocabulary: int, samples: int, length: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Different pieces (n, t) of the bundled text, and the character behind each (n,)."""
    text = gnjax.data.load_text(vocabulary=vocabulary)
    x, y = gnjax.data.sequences(text, 2 * samples, length, seed=seed)
    _, first = np.unique(x, axis=0, return_index=True)
    chosen = np.sort(first)[:samples]
    if len(chosen) < samples:
        msg = f"{2 * samples} pieces of length {length} hold only {len(chosen)} different ones"
        raise ValueError(msg)
    return x[chosen], y[chosen, -1]


def described(vocabulary: int, samples: int, length: int) -> str:
    """One line for the provenance of a table."""
    source = gnjax.data.load_text(vocabulary=vocabulary).source
    return f"{source}: {samples} different pieces of {length} characters"
