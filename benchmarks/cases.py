"""The problems that every tool solves, as plain arrays: real data, and weights from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from flax import nnx

import gnjax
from benchmarks.rivals.harness import Arrays, Case

_HIDDEN = 500
_TANH_HIDDEN = 100
CLASSES = 10
_BRANCH = 0.3  # scale of a residual branch: depth then does not blow up the outputs


def ntk(samples: int) -> Case:
    """An MLP 784-500-10 with ReLU and no biases, on Fashion-MNIST; float64."""
    rng = np.random.default_rng(0)
    data = gnjax.data.load("fashion_mnist_5000", samples=samples)
    weights = {
        "layer1_dense": _gaussian(rng, (_HIDDEN, data.inputs.shape[1]), 2.0),
        "layer2_dense": _gaussian(rng, (CLASSES, _HIDDEN), 1.0),
    }
    return Case("ntk", weights, data.inputs, data.labels)


def hessian(samples: int) -> Case:
    """An MLP 64-100-10 with tanh and biases, cross-entropy, on the digits; float64."""
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
    """Weights and BatchNorm's statistics for our ResNet20, under the names of a case."""
    model = gnjax.models.ResNet(20, CLASSES, shortcut="zeros", key=jax.random.key(0))
    held: dict[type[nnx.Variable], Arrays] = {nnx.Param: {}, nnx.BatchStat: {}}
    for path, value in nnx.to_flat_state(nnx.state(model, tuple(held))):
        names = [str(name) for name in path]
        held[type(value)][_name(names)] = _value(rng, names, _outputs_first(value.shape))
    return held[nnx.Param], held[nnx.BatchStat]


def _name(path: Sequence[str]) -> str:
    """The name of an array in a case: stage1_block1_first_conv, head_dense, .."""
    *modules, layer, kind = path
    if layer == "head":
        return {"kernel": "head_dense", "bias": "head_bias"}[kind]
    renamed = {"kernel": "conv", "bias": "shift", "var": "variance"}
    return "_".join([*modules, renamed.get(kind, kind)])


def _value(rng: np.random.Generator, path: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    kind = path[-1]
    if kind == "kernel":
        return _gaussian(rng, shape, 1.0)
    if kind in ("scale", "var"):
        branch = _BRANCH if kind == "scale" and "second" in path else 1.0
        return branch * rng.uniform(0.5, 1.5, shape)
    return 0.1 * rng.standard_normal(shape)


def _outputs_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (outputs, inputs, height, width) for a shape (height, width, inputs, outputs)."""
    if len(shape) == 1:
        return shape
    *positions, inputs, outputs = shape
    return (outputs, inputs, *positions)


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """N(0, gain / fan-in) entries, for weights (outputs, inputs, ...)."""
    return rng.standard_normal(shape) * math.sqrt(gain / math.prod(shape[1:]))
