"""The campaign for scales inside of one network: outputs and branches of very different size.

The outputs of a network are multiplied by numbers between 1e-15 and 1e15, a residual branch by one
between 1e-12 and 1, a feature of the inputs may be of subnormal size, and units may be saturated.
What is small in floating arithmetic is no more zero than what is large.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tests.held_out import campaigns, networks, tape
from tests.held_out.architectures import EPSILON, JAX, Architecture, Ops
from tests.held_out.verdicts import Row

_METHODS = ("auto", "dense", "factored", "krylov", "inverse")
_FEATURES, _WIDTH, _OUTPUTS = 3, 4, 2
_SUBNORMAL = {"float64": 1e-310, "float32": 1e-41}
_COLUMNS = np.cumsum([0, _FEATURES, 1, _OUTPUTS])  # features, the branch's factor, the outputs'


def _parts(ops: Ops, x: Any) -> list[Any]:
    """The columns of x: the features, the factor of a branch and those of the outputs."""
    identity = np.eye(_COLUMNS[-1])
    chosen = [identity[:, first:last] for first, last in itertools.pairwise(_COLUMNS)]
    if ops is JAX:
        return [x @ columns.astype(x.dtype) for columns in chosen]
    return [x @ tape.lift(columns) for columns in chosen]


def _unit(ops: Ops, place: int) -> Any:
    """The row (1, outputs) that is one at this place and zero elsewhere."""
    row = np.eye(_OUTPUTS)[place : place + 1]
    return row if ops is JAX else tape.lift(row)


def _mean_free(ops: Ops, h: Any) -> Any:
    h = h - h.mean(axis=1, keepdims=True)
    return h * ops.rsqrt((h * h).mean(axis=1, keepdims=True) + EPSILON)


Inner = Callable[[Ops, Any, Any, Any], Any]
"""(functions, parameters, features, the factor of a branch) to outputs before their factors."""

_SQUARE = {"0/w": (_FEATURES, _WIDTH), "1/w": (_WIDTH, _WIDTH), "2/w": (_WIDTH, _OUTPUTS)}
_INNER: dict[str, tuple[Inner, dict[str, tuple[int, ...]]]] = {
    "tanh": (
        lambda ops, p, x, s: ops.tanh(x @ p["0/w"] + p["0/b"]) @ p["2/w"],
        {"0/w": (_FEATURES, _WIDTH), "0/b": (1, _WIDTH), "2/w": (_WIDTH, _OUTPUTS)},
    ),
    "relu": (
        lambda ops, p, x, s: ops.relu(x @ p["0/w"] + p["0/b"]) @ p["2/w"] + p["2/b"],
        {
            "0/w": (_FEATURES, _WIDTH),
            "0/b": (1, _WIDTH),
            "2/w": (_WIDTH, _OUTPUTS),
            "2/b": (1, _OUTPUTS),
        },
    ),
    "linear layers": (lambda ops, p, x, s: x @ p["0/w"] @ p["1/w"] @ p["2/w"], _SQUARE),
    "residual branch": (
        lambda ops, p, x, s: (x @ p["0/w"] + s * ops.tanh(x @ p["0/w"] @ p["1/w"])) @ p["2/w"],
        _SQUARE,
    ),
    "two branches": (
        lambda ops, p, x, s: (
            ops.tanh(x @ p["0/w"]) @ p["2/w"] + s * (ops.gelu(x @ p["1/w"]) @ p["3/w"])
        ),
        {
            "0/w": (_FEATURES, 2),
            "1/w": (_FEATURES, 2),
            "2/w": (2, _OUTPUTS),
            "3/w": (2, _OUTPUTS),
        },
    ),
    "two heads": (
        lambda ops, p, x, s: (
            ops.tanh(x @ p["0/w"]) @ p["2/w"] * _unit(ops, 0)
            + ops.tanh(x @ p["1/w"]) @ p["3/w"] * _unit(ops, 1)
        ),
        {"0/w": (_FEATURES, 2), "1/w": (_FEATURES, 2), "2/w": (2, 1), "3/w": (2, 1)},
    ),
    "layer norm": (
        lambda ops, p, x, s: ops.tanh(_mean_free(ops, x @ p["0/w"] + p["0/b"])) @ p["2/w"],
        {"0/w": (_FEATURES, _WIDTH), "0/b": (1, _WIDTH), "2/w": (_WIDTH, _OUTPUTS)},
    ),
    "saturated sigmoid": (
        lambda ops, p, x, s: ops.sigmoid(ops.tanh(x @ p["0/w"] @ p["1/w"]) @ p["2/w"] + 40.0),
        _SQUARE,
    ),
}


def _architecture(name: str) -> Architecture:
    inner, shapes = _INNER[name]

    def apply(ops: Ops, p: Any, x: Any) -> Any:
        features, branch, outputs = _parts(ops, x)
        return inner(ops, p, features, branch) * outputs

    return Architecture(name, apply, shapes, (int(_COLUMNS[-1]),), _OUTPUTS)


ARCHITECTURES = {name: _architecture(name) for name in _INNER}


def draw(rng: np.random.Generator, name: str, samples: int) -> networks.Case:
    """A random case, all of whose numbers are those of its precision."""
    architecture = ARCHITECTURES[name]
    dtype = str(rng.choice(["float64", "float32"]))
    params = {
        key: rng.standard_normal(shape) / shape[0] ** 0.5
        for key, shape in architecture.shapes.items()
    }
    features = rng.standard_normal((samples, _FEATURES))
    if rng.random() < 0.2:
        features[:, rng.integers(_FEATURES)] *= _SUBNORMAL[dtype]
    branch = 10 ** rng.uniform(-12, 0) if rng.random() < 0.7 else 1.0
    outputs = 10 ** rng.uniform(-15, 15, _OUTPUTS) if rng.random() < 0.7 else np.ones(_OUTPUTS)
    factors = np.broadcast_to([branch, *outputs], (samples, 1 + _OUTPUTS))
    x = np.concatenate([features, factors], axis=1).astype(dtype)
    loss = str(rng.choice(networks.LOSSES))
    y = rng.integers(0, _OUTPUTS, samples)
    targets = rng.standard_normal((samples, _OUTPUTS)) if loss == "mse" else y
    given = {key: value.astype(dtype) for key, value in params.items()}
    regime = f"unequal scales, {name}, {dtype}"
    return networks.Case(architecture, regime, loss, dtype, given, x, targets)


def unequal(seed: int, count: int, *, names: Sequence[str] = ()) -> list[Row]:
    """``count`` networks, in their own precision, by every method.

    All have the architecture of the seed, so that few compilations serve them, unless ``names``
    are given.
    """
    rows: list[Row] = []
    every = list(names or ARCHITECTURES)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = every[(index if names else seed) % len(every)]
        samples = int(rng.choice((networks.SEVERAL, networks.MANY), p=(0.25, 0.75)))
        case = draw(rng, name, samples)
        with jax.enable_x64(case.dtype == "float64"):
            rows += campaigns.asked_network(f"{seed}:{index}", case, _METHODS, hessians=False)
    return rows
