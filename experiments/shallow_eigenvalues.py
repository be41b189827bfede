"""The top of the Hessian's spectrum beside Eq 15 while a two-layer linear network trains: B4.

python -m experiments.shallow_eigenvalues --config=configs/shallow_eigenvalues.py:laptop

A row is the ``index``-th largest eigenvalue after some epochs. An eigenvalue of the full Hessian
lies within ``error`` of ``measured``, proved by the residual; ``predicted`` is that of Eq 15, and
``bound`` is |H - G|_2, which |measured - predicted| cannot exceed (Weyl). ``excess`` is the loss
minus its floor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.claims.shallow_eigenvalues import CLAIMS
from experiments.shared.linear_training import (
    Data,
    SplitHessian,
    Training,
    describe,
    orthogonal,
    split_hessian,
    train,
)
from gnjax.papers import balanced
from sweeps import command_line
from sweeps.experiment import Experiment

PANELS = ("a", "b", "c")
PRODUCTS = 500.0  # with the Hessian, at one epoch


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Three data sets, one for each panel."""
    if config.training.depth != 2 or config.count < 1 or config.seeds < 1:
        msg = f"Eq 15 is about 2 layers; count and seeds are at least 1, got {config}"
        raise ValueError(msg)
    for panel in PANELS:
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {"panel": panel}, {"data": config[panel], "seed": seed}


def measure(
    data: Data,
    sigma_x: float,
    training: Training,
    count: int,  # eigenvalues, from the largest
    rtol: float,  # of their residuals, relative to the norm
    seed: int,
) -> list[dict[str, Any]]:
    """The largest eigenvalues of the Hessian, those of Eq 15, and a bound on their difference."""
    found = orthogonal(data, sigma_x)
    moments, rows = found.moments, []
    for point in train(found, training, seed):
        split = split_hessian(point.weights, moments)
        values, errors = split.largest(count, rtol)
        w1, w2 = point.weights
        predicted = balanced.shallow(w1, w2, sigma_x).values[:count]
        shared = {
            "data": f"{data.name}, orthogonalised",
            "inputs": found.inputs,
            "outputs": found.outputs,
            "samples": found.samples,
            "largest_share": found.largest_share,
            "epoch": point.epoch,
            "seed": seed,
            "excess": point.loss - found.floor,
            "bound": balanced.shallow_gap(w1, w2, moments.covariance, moments.cross),
        }
        errors = errors + _of_the_covariance(split, w1, w2, sigma_x)
        rows += [
            {**shared, "index": index, "measured": value, "error": error, "predicted": other}
            for index, (value, error, other) in enumerate(
                zip(values, errors, predicted, strict=True), start=1
            )
        ]
    return rows


def _of_the_covariance(split: SplitHessian, w1: jax.Array, w2: jax.Array, sigma_x: float) -> float:
    """How far the eigenvalues may move because C is c I only up to rounding.

    G changes by at most |C - c I| / c times |G|, and |G| = c (|W_1|^2 + |W_2|^2) here. The rest of
    the Hessian changes by |W_2 W_1 (C - c I)|, which is at most half as much.
    """
    squares = sum(float(np.linalg.norm(np.asarray(w), 2)) ** 2 for w in (w1, w2))
    return 1.5 * split.deviation * sigma_x**2 * squares


def cost(data: Data, training: Training) -> float:
    """Multiplications of the epochs, and of the products with the Hessian."""
    outputs = 10
    inputs = min(data.side**2 or 784, training.width + outputs)
    epoch = 6.0 * training.width * inputs * outputs
    product = 6.0 * inputs * training.width * (inputs + outputs)
    return max(training.epochs) * epoch + len(training.epochs) * PRODUCTS * product


def sources(config: ConfigDict) -> list[str]:
    panels = dict.fromkeys(Data(**config[panel]) for panel in PANELS)
    return [describe(data, config.sigma_x) for data in panels]


EXPERIMENT = Experiment(
    "shallow_eigenvalues",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "data", "epoch", "index", "seed", "depth", "width", "inputs", "outputs"),
        *("samples", "largest_share", "excess", "measured", "error", "predicted", "bound"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="excess",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
