"""The problems every tool computes on, as plain arrays: real data, weights drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

import gnjax
from benchmarks.rivals.harness import Arrays, Case

_HIDDEN = 500
_TANH_HIDDEN = 100
CLASSES = 10
_STAGES = {1: 16, 2: 32, 3: 64}  # channels
_BRANCH = 0.3  # scale of a residual branch: depth then does not blow up the outputs


def ntk(samples: int) -> Case:
    """784-500-10 with ReLU and no biases, on Fashion-MNIST; float64."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("fashion_mnist_5000", samples=samples)
    weights = {
        "layer1_dense": _gaussian(rng, (_HIDDEN, data.inputs.shape[1]), 2.0),
        "layer2_dense": _gaussian(rng, (CLASSES, _HIDDEN), 1.0),
    }
    return Case("ntk", weights, data.inputs, data.labels)


def hessian(samples: int) -> Case:
    """64-100-10 with tanh and biases, cross-entropy, on the digits; float64."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("digits", samples=samples)
    weights = {
        "layer1_dense": _gaussian(rng, (_TANH_HIDDEN, data.inputs.shape[1]), 1.0),
        "layer1_bias": 0.1 * rng.standard_normal(_TANH_HIDDEN),
        "layer2_dense": _gaussian(rng, (CLASSES, _TANH_HIDDEN), 1.0),
        "layer2_bias": 0.1 * rng.standard_normal(CLASSES),
    }
    return Case("hessian", weights, data.inputs, data.labels)


def ggn(samples: int, columns: int) -> Case:
    """ResNet20 in evaluation mode, cross-entropy, on 32 x 32 colour crops; float32."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("photo_patches", samples=samples)
    weights, statistics = _resnet20(rng)
    vectors = rng.standard_normal((sum(a.size for a in weights.values()), columns))
    images = data.inputs.reshape(-1, *data.shape) - data.inputs.mean()
    case = Case("ggn", weights, images / data.inputs.std(), data.labels, statistics, vectors)
    return as_type(case, np.float32)


def first(case: Case, samples: int) -> Case:
    """The same case with fewer samples."""
    return replace(case, x=case.x[:samples], y=case.y[:samples])


def as_type(case: Case, dtype: type[np.floating]) -> Case:
    """The same case in another precision."""

    def cast(arrays: Arrays) -> Arrays:
        return {name: a.astype(dtype) for name, a in arrays.items()}

    return replace(
        case,
        weights=cast(case.weights),
        x=case.x.astype(dtype),
        statistics=cast(case.statistics),
        vectors=case.vectors.astype(dtype),
    )


def _resnet20(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Weights, and the statistics of BatchNorm."""
    weights: Arrays = {}
    statistics: Arrays = {}

    def conv_norm(name: str, inputs: int, outputs: int, scale: float) -> None:
        weights[f"{name}_conv"] = _gaussian(rng, (outputs, inputs, 3, 3), 1.0)
        weights[f"{name}_scale"] = scale * rng.uniform(0.5, 1.5, outputs)
        weights[f"{name}_shift"] = 0.1 * rng.standard_normal(outputs)
        statistics[f"{name}_mean"] = 0.1 * rng.standard_normal(outputs)
        statistics[f"{name}_variance"] = rng.uniform(0.5, 1.5, outputs)

    conv_norm("stem", 3, _STAGES[1], 1.0)
    inputs = _STAGES[1]
    for stage, channels in _STAGES.items():
        for block in (1, 2, 3):
            conv_norm(f"stage{stage}_block{block}_first", inputs, channels, 1.0)
            conv_norm(f"stage{stage}_block{block}_second", channels, channels, _BRANCH)
            inputs = channels
    weights["head_dense"] = _gaussian(rng, (CLASSES, inputs), 1.0)
    weights["head_bias"] = np.zeros(CLASSES)
    return weights, statistics


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """N(0, gain / fan-in) entries, for weights (outputs, inputs, ...)."""
    return rng.standard_normal(shape) * math.sqrt(gain / math.prod(shape[1:]))
