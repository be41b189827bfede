"""The problems that every tool solves, as plain arrays: real data, and weights from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np

import gnjax
from benchmarks.harness import Arrays, Case

_HIDDEN = 500
_TANH_HIDDEN = 100
CLASSES = 10
_WIDTHS = (16, 32, 64)  # of the stages of ResNet20
_BRANCH = 0.3  # scale of a residual branch: depth then does not blow up the outputs


def ntk(samples: int) -> Case:
    """An MLP 784-500-10 with ReLU and no biases, on Fashion-MNIST; float64."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("fashion_mnist_5000", samples=samples)
    weights = {
        "layer1_dense": _gaussian(rng, (_HIDDEN, data.inputs.shape[1]), 2.0),
        "layer2_dense": _gaussian(rng, (CLASSES, _HIDDEN), 1.0),
    }
    return Case(weights, data.inputs, data.labels)


def hessian(samples: int, hidden: int = _TANH_HIDDEN) -> Case:
    """An MLP 64-100-10 with tanh and biases, cross-entropy, on the digits; float64."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("digits", samples=samples)
    weights = {
        "layer1_dense": _gaussian(rng, (hidden, data.inputs.shape[1]), 1.0),
        "layer1_bias": 0.1 * rng.standard_normal(hidden),
        "layer2_dense": _gaussian(rng, (CLASSES, hidden), 1.0),
        "layer2_bias": 0.1 * rng.standard_normal(CLASSES),
    }
    return Case(weights, data.inputs, data.labels)


def ggn(samples: int, columns: int) -> Case:
    """ResNet20 in evaluation mode, cross-entropy, on 32 x 32 colour crops; float32."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("photo_patches", samples=samples)
    weights, statistics = _resnet20(rng)
    vectors = rng.standard_normal((sum(a.size for a in weights.values()), columns))
    images = data.inputs.reshape(-1, *data.shape) - data.inputs.mean()
    case = Case(weights, images / data.inputs.std(), data.labels, statistics, vectors)
    return as_type(case, np.float32)


def first(case: Case, samples: int) -> Case:
    """The same case with fewer samples."""
    return replace(case, x=case.x[:samples], y=case.y[:samples])


def as_type(case: Case, dtype: type[np.floating]) -> Case:
    """The same case in another precision."""

    held = {"weights": case.weights, "x": case.x, "vectors": case.vectors}
    held["statistics"] = case.statistics
    return replace(case, **jax.tree.map(lambda a: a.astype(dtype), held))


def _resnet20(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Weights of ResNet20, and BatchNorm's statistics."""
    weights = {"head_bias": 0.1 * rng.standard_normal(CLASSES)}
    weights["head_dense"] = _gaussian(rng, (CLASSES, _WIDTHS[-1]), 1.0)
    statistics: Arrays = {}
    for name, inputs, outputs in _convolutions():
        weights[f"{name}_conv"] = _gaussian(rng, (outputs, inputs, 3, 3), 1.0)
        weights[f"{name}_shift"] = 0.1 * rng.standard_normal(outputs)
        statistics[f"{name}_mean"] = 0.1 * rng.standard_normal(outputs)
        branch = _BRANCH if name.endswith("second") else 1.0
        weights[f"{name}_scale"] = branch * rng.uniform(0.5, 1.5, outputs)
        statistics[f"{name}_variance"] = rng.uniform(0.5, 1.5, outputs)
    return weights, statistics


def _convolutions() -> Iterator[tuple[str, int, int]]:
    """The name, the inputs and the outputs of each convolution of ResNet20."""
    inputs = _WIDTHS[0]
    for stage, width in enumerate(_WIDTHS, start=1):
        for block in (1, 2, 3):
            yield f"stage{stage}_block{block}_first", inputs, width
            yield f"stage{stage}_block{block}_second", width, width
            inputs = width
    yield "stem", 3, _WIDTHS[0]


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """N(0, gain / fan-in) entries, for weights (outputs, inputs, ...)."""
    return rng.standard_normal(shape) * math.sqrt(gain / math.prod(shape[1:]))
