"""Sharpness and preconditioned sharpness along training, and warm-up: figure T5.

python -m experiments.edge_of_stability --config=configs/edge_of_stability.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax
from ml_collections import ConfigDict

import gnjax
from experiments.claims.edge_of_stability import CLAIMS
from experiments.shared.language import of_every_position
from experiments.shared.small_images import IMAGES, tanh_classifier
from sweeps import command_line
from sweeps.experiment import Experiment

MOMENTUM = 0.9  # b1 of Adam, optax's default
STABLE = {"gradient descent": 2.0, "Adam": (2 + 2 * MOMENTUM) / (1 - MOMENTUM)}
"""The optimiser is stable on a quadratic below this over the rate."""
# At most so many products with H for one eigenvalue. The eigenvectors change much between two rows,
# so that those of one row are no good start for the next.
PRODUCTS = 100
RESIDUAL = 2e-3  # relative to |H|_2, which may be 100 times the sharpness where H is indefinite
KNOWN = 10.0  # a value is kept if it is more than so many times its error
EARLY = (1, 2, 5, 10, 20, 50)  # steps to measure at before step ``every``
SIDE = 8  # of the images
LOSSES = {"mlp": "squared_error", "gpt": "cross_entropy"}


@dataclass(frozen=True)
class Cell:
    """One full-batch training run from one initialisation, on samples drawn by the same seed.

    In the ``warmup`` steps the rate rises linearly to ``rate``; 0 where it is constant. Sharpness
    is measured once in ``every`` steps.
    """

    network: str
    optimizer: str
    samples: int
    outputs: int
    length: int
    width: int
    depth: int
    rate: float
    warmup: int
    steps: int
    every: int
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A tanh network under gradient descent and under Adam, and a GPT under Adam, which is first.

    There is one run for each pair of a learning rate and a number of warm-up steps.
    """
    for name in ("gpt_adam", "mlp_adam", "mlp_descent"):
        network, runs = name.split("_")[0], config[name]
        optimizer = "Adam" if name.endswith("adam") else "gradient descent"
        shared = {"network": network, "optimizer": optimizer, **config[network]}
        shared |= {"steps": runs.steps, "every": runs.every}
        for rate in runs.rates:
            for warmup in runs.warmups:
                for seed in range(config.first_seed, config.first_seed + config.seeds):
                    yield {}, {**shared, "rate": rate, "warmup": warmup, "seed": seed}


def cost(cell: Cell) -> float:
    """Multiplications in the steps, and in about twenty products with H at every stop."""
    weights = cell.depth * cell.width**2 * (12 if cell.network == "gpt" else 1)
    passes = cell.steps + 40 * len(stops(cell))
    return float(6 * cell.samples * max(cell.length, 1) * weights * passes)


def stops(cell: Cell) -> list[int]:
    """The steps to measure at: those of ``EARLY`` below ``every``, then multiples of ``every``."""
    early = {step for step in EARLY if step < cell.every}
    return sorted(early | set(range(cell.every, cell.steps + 1, cell.every)))


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The model at initialisation, its inputs and targets."""
    if cell.network == "gpt":
        model, x, y = of_every_position(cell, cell.seed)
    else:
        model, x, labels = tanh_classifier(cell, SIDE)
        y = gnjax.data.one_hot(labels, cell.outputs)
    return model, jnp.asarray(x), jnp.asarray(y)


def mean_loss(params: Any, apply: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean over all targets of |f - y|^2 / 2, or of the cross-entropy for integer targets."""
    found = apply(params, x)
    if jnp.issubdtype(y.dtype, jnp.integer):
        return optax.softmax_cross_entropy_with_integer_labels(found, y).mean()
    return ((found - y) ** 2).sum(-1).mean() / 2


def rule(optimizer: str, rate: Any, warmup: Any) -> optax.GradientTransformation:
    """The optimiser with warm-up: step t = 1, 2, .. has the rate min(1, t / warmup) ``rate``."""

    def now(count: Any) -> Any:
        steps = jnp.asarray(count, float) + 1  # of int32, the quotient would be a float32
        return rate * jnp.minimum(1.0, steps / jnp.maximum(warmup, 1))

    return optax.adam(now, b1=MOMENTUM) if optimizer == "Adam" else optax.sgd(now)


def adams_metric(memory: Any) -> Any:
    """P = (nu / (1 - b2^t))^{1/2} + eps after t steps, a tree; None before the first step.

    The last step was the rate times m / P for the mean m of gradients, so that the limit of
    stability is a number over the rate.
    """
    (adam, *_) = memory
    if not int(adam.count):
        return None
    share = 1 - 0.999 ** int(adam.count)
    return jax.tree.map(lambda nu: jnp.sqrt(nu / share) + 1e-8, adam.nu)


@partial(jax.jit, static_argnames="optimizer")
def advanced(
    start: Any, count: Any, rate: Any, warmup: Any, apply: Any, x: Any, y: Any, optimizer: str
) -> tuple[Any, jax.Array]:
    """Parameters and state of the optimiser after ``count`` more steps, and the loss there."""
    made_rule = rule(optimizer, rate, warmup)

    def step(_: Any, now: Any) -> Any:
        params, memory = now
        moved, memory = made_rule.update(jax.grad(mean_loss)(params, apply, x, y), memory, params)
        return optax.apply_updates(params, moved), memory

    params, memory = lax.fori_loop(0, count, step, start)
    return (params, memory), mean_loss(params, apply, x, y)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """One row for each stop, up to the last before the loss overflows.

    ``sharpness`` is the largest eigenvalue of H of the mean loss, and ``preconditioned`` that of
    P^{-1/2} H P^{-1/2} with Adam's P, or the sharpness under gradient descent, where P = I. An
    eigenvalue lies within the error of each; a value that is not more than 10 times its error is
    left out. ``threshold`` is what it has to stay below for stability at ``rate_now``, the rate of
    the step that led here, and ``final_threshold`` the same at ``rate``.
    """
    model, x, y = made(cell)
    apply, params = gnjax.functional(model)
    monitor = gnjax.Monitor(
        x,
        y,
        loss=LOSSES[cell.network],
        gauss_newton=False,
        kappa=False,
        rtol=RESIDUAL,
        steps=PRODUCTS,
    )
    state: Any = params, rule(cell.optimizer, cell.rate, cell.warmup).init(params)
    images = f"{IMAGES}, downsampled and standardised"
    shared = {
        "data": "python_topics" if cell.network == "gpt" else images,
        "inputs": x[0].size,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
    }
    done, rows, limit = 0, [], STABLE[cell.optimizer]
    for stop in stops(cell):
        state, loss = advanced(
            state, stop - done, cell.rate, cell.warmup, apply, x, y, cell.optimizer
        )
        done = stop
        if not math.isfinite(loss):
            break
        metric = adams_metric(state[1]) if cell.optimizer == "Adam" else None
        row = monitor(stop, (apply, state[0]), metric=metric)
        assert row is not None
        now = cell.rate * min(1.0, stop / max(cell.warmup, 1))
        rates = {"rate_now": now, "threshold": limit / now, "final_threshold": limit / cell.rate}
        ends = _known(row.sharpness, row.sharpness_error)
        of_metric = _known(row.preconditioned, row.preconditioned_error)
        scaled = of_metric if cell.optimizer == "Adam" else ends
        values = dict(zip(_MEASURED, (*ends, *scaled), strict=True))
        rows.append({**shared, **rates, "step": stop, "loss": loss, **values})
    return rows


_MEASURED = ("sharpness", "sharpness_error", "preconditioned", "preconditioned_error")


def _known(value: float | None, error: float | None) -> tuple[float | None, float | None]:
    """The value with its error, if it is large enough beside it."""
    known = value is not None and error is not None and value > KNOWN * error
    return value if known else None, error


def sources(config: ConfigDict) -> list[str]:
    text = gnjax.data.load_text(vocabulary=config.gpt.outputs).source
    images = gnjax.data.load(IMAGES, samples=config.mlp.samples, seed=config.first_seed).source
    return [
        f"{text}: {config.gpt.samples} pieces of {config.gpt.length} characters for each seed",
        f"{images}, for each seed its own, downsampled to {SIDE} x {SIDE}, standardised",
    ]


EXPERIMENT = Experiment(
    "edge_of_stability",
    settings,
    measure,
    cost,
    columns=(
        *("network", "optimizer", "data", "samples", "inputs", "outputs", "width", "depth"),
        *("parameters", "rate", "warmup", "steps", "seed", "step", "rate_now", "threshold"),
        *("final_threshold", "loss", *_MEASURED),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="loss",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
