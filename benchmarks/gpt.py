"""A GPT of GPT-2-small's shape with random weights: the same arrays for every framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

EPSILON = 1e-5  # of LayerNorm


@dataclass(frozen=True)
class Shape:
    """The sizes of the network: 124 million parameters, as the embedding is the output layer."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_257
    positions: int = 1024


def weights(shape: Shape) -> dict[str, Any]:
    """Random weights with GPT-2's initial scales, from one seed."""
    rng, d = np.random.default_rng(0), shape.width

    def normal(*size: int, scale: float = 0.02) -> np.ndarray:
        return scale * rng.standard_normal(size, dtype=np.float32)

    def norm() -> dict[str, np.ndarray]:
        return {"scale": np.ones(d, np.float32), "bias": np.zeros(d, np.float32)}

    def dense(inputs: int, outputs: int, scale: float = 0.02) -> dict[str, np.ndarray]:
        return {
            "kernel": normal(inputs, outputs, scale=scale),
            "bias": np.zeros(outputs, np.float32),
        }

    last = 0.02 / (2 * shape.layers) ** 0.5
    blocks = [
        {
            "norm1": norm(),
            "qkv": dense(d, 3 * d),
            "out": dense(d, d, last),
            "norm2": norm(),
            "up": dense(d, 4 * d),
            "down": dense(4 * d, d, last),
        }
        for _ in range(shape.layers)
    ]
    tables = {"tokens": normal(shape.vocabulary, d), "positions": normal(shape.positions, d)}
    return tables | {"blocks": blocks, "norm": norm()}


def text(shape: Shape, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """One sequence of random tokens (1, t) and what follows each of them (1, t)."""
    drawn = np.random.default_rng(1).integers(0, shape.vocabulary, (1, tokens + 1))
    return drawn[:, :-1], drawn[:, 1:]
