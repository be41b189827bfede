"""A linear network at initialisation: its weights, and what a table says of its conditioning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax

import gnjax
from gnjax import papers


class Network(Protocol):
    """The fields of a cell that its weights are drawn from."""

    @property
    def depth(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def initializer(self) -> str: ...

    @property
    def gain(self) -> float: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Start:
    """The data (``samples`` 0: all of them), and how the weights are drawn."""

    data: str
    samples: int
    data_seed: int
    side: int
    outputs: int
    gain: float
    initializer: str


@dataclass(frozen=True)
class Cell(Start):
    """One network at initialisation on one data set."""

    rtol: float
    depth: int
    width: int
    seed: int


def layer_widths(inputs: int, depth: int, width: int, outputs: int) -> tuple[int, ...]:
    """d, m, .., m, k of a network with ``depth`` layers."""
    return (inputs, *[width] * (depth - 1), outputs)


def weights(widths: Sequence[int], initializer: str, gain: float, seed: int) -> list[jax.Array]:
    """W_1 (m, d), .., W_L (k, m)."""
    options = {"gain": gain} if initializer.startswith("kaiming") else {}
    return gnjax.initializers.chain(jax.random.key(seed), widths, initializer, **options)


def reduced_weights(
    widths: Sequence[int], initializer: str, gain: float, seed: int
) -> list[jax.Array]:
    """The weights of a plain linear network, or of a smaller one where those are Gaussian and wide.

    The distribution of kappa is the same for both (:func:`gnjax.initializers.reduced_chain`).
    """
    inputs, *hidden, outputs = widths
    if initializer != "kaiming_normal" or min(hidden, default=0) < inputs + outputs:
        return weights(widths, initializer, gain, seed)
    return gnjax.initializers.reduced_chain(jax.random.key(seed), tuple(widths), gain)


def initial_weights(inputs: int, network: Network) -> list[jax.Array]:
    """W_1 (m, d), .., W_L (k, m)."""
    widths = layer_widths(inputs, network.depth, network.width, network.outputs)
    return weights(widths, network.initializer, network.gain, network.seed)


def bound_fields(bound: papers.bounds.LinearBound) -> dict[str, Any]:
    """Both bounds of Lemma 2 or Eq 7, None where they do not apply."""
    return {
        "bound_convex": bound.convex,
        "bound_maximum": bound.maximum,
        "bound_applicable": bound.applicable,
    }
