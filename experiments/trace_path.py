"""The trace of the Hessian beside Eq 7 while a deep linear network trains: figure B3.

python -m experiments.trace_path --config=configs/trace_path.py:laptop

A row is the trace after some epochs: Hutchinson's ``estimate`` on the inputs that W_1 and B span,
the ``exact`` one by all unit vectors, and that ``predicted`` by Eq 7. ``excess`` is the loss minus
its floor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.claims.trace_path import CLAIMS
from experiments.shared.linear_training import (
    Data,
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


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Three data sets, one for each panel.

    ``narrow`` is the width of a second network, whose trace is also taken exactly: that costs a
    product with the Hessian for every parameter.
    """
    if config.narrow < 1 or config.probes < 2 or config.seeds < 1:
        msg = f"narrow and seeds are at least 1 and probes 2, got {config}"
        raise ValueError(msg)
    wide = {"training": config.training, "exact": False}
    narrow = {"training": {**config.training, "width": config.narrow}, "exact": True}
    for panel in PANELS:
        for network in (wide, narrow):
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                yield {"panel": panel}, {"data": config[panel], **network, "seed": seed}


def measure(
    data: Data, sigma_x: float, training: Training, exact: bool, probes: int, seed: int
) -> list[dict[str, Any]]:
    """The trace by products with random vectors, by those with all unit vectors, and by Eq 7."""
    found, rows = orthogonal(data, sigma_x), []
    for point in train(found, training, seed):
        split = split_hessian(point.weights, found.moments)
        # Every point has its own random vectors, so that their errors are independent.
        stream = int(np.random.SeedSequence([seed, point.epoch]).generate_state(1)[0])
        estimate, standard_error = split.trace(probes, stream)
        rows.append(
            {
                "data": f"{data.name}, orthogonalised",
                "inputs": found.inputs,
                "outputs": found.outputs,
                "samples": found.samples,
                "largest_share": found.largest_share,
                "seed": seed,
                "epoch": point.epoch,
                "excess": point.loss - found.floor,
                "estimate": estimate,
                "standard_error": standard_error,
                "exact": split.exact_trace() if exact else None,
                "predicted": balanced.trace(point.weights, sigma_x),
            }
        )
    return rows


def cost(data: Data, training: Training, exact: bool, probes: int) -> float:
    """Multiplications of the epochs, and of the products with the Hessian."""
    outputs, width = 10, training.width
    inputs = min(data.side**2 or 784, width + outputs)
    parameters = width * (inputs + width * (training.depth - 2) + outputs)
    products = probes + (parameters if exact else 0)
    epochs = max(training.epochs) * 6.0 * outputs * parameters
    return epochs + 6.0 * len(training.epochs) * products * inputs * parameters


def sources(config: ConfigDict) -> list[str]:
    panels = dict.fromkeys(Data(**config[panel]) for panel in PANELS)
    return [describe(data, config.sigma_x) for data in panels]


EXPERIMENT = Experiment(
    "trace_path",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "data", "epoch", "seed", "depth", "width", "inputs", "outputs", "samples"),
        *("probes", "largest_share", "excess", "estimate", "standard_error", "exact", "predicted"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="predicted",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
