"""Small GPTs on pieces of the bundled text.

One kind predicts the character that follows a whole piece. Its outputs are the logits of the last
position alone: one vector of k numbers for each sample, as in the classifiers of paper A. Then J
has no equal rows where two pieces begin alike. The other kind has an output at every position.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import gnjax


class Sizes(Protocol):
    """A cell of an experiment with a GPT."""

    @property
    def samples(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def seed(self) -> int: ...


class NextCharacter(nnx.Module):
    """The logits (n, k) of a language model behind the last character of each piece (n, t)."""

    def __init__(self, model: nnx.Module) -> None:
        self.model = model

    def __call__(self, tokens: jax.Array) -> jax.Array:
        logits: jax.Array = self.model(tokens)
        return logits[:, -1]


def of_last_position(sizes: Sizes, data_seed: int) -> tuple[nnx.Module, Any, Any]:
    """An untied GPT with LeCun's variances, and of :func:`pieces` the text and its targets."""
    x, y = pieces(sizes.outputs, sizes.samples, sizes.length, data_seed)
    return NextCharacter(_gpt(sizes, tied=False, initializer="lecun")), x, y


def of_every_position(sizes: Sizes, data_seed: int) -> tuple[nnx.Module, Any, Any]:
    """A GPT with the default options, pieces (n, t), and each one's next characters (n, t)."""
    text = gnjax.data.load_text(vocabulary=sizes.outputs)
    x, y = gnjax.data.sequences(text, sizes.samples, sizes.length, seed=data_seed)
    return _gpt(sizes), x, y


def _gpt(sizes: Sizes, **options: Any) -> nnx.Module:
    return gnjax.models.GPT(
        sizes.outputs,
        length=sizes.length,
        width=sizes.width,
        depth=sizes.depth,
        heads=2,
        key=jax.random.key(sizes.seed),
        **options,
    )


def pieces(
    vocabulary: int, samples: int, length: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces (n, t) of the bundled text, no two alike, and the character that follows each (n,)."""
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
