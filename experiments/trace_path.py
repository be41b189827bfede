"""The trace of the Hessian beside Eq 7 while a deep linear network trains: figure B3.

python -m experiments.trace_path --config=configs/trace_path.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.claims.trace_path import CLAIMS
from experiments.shared.linear_network import as_lists, at_index
from experiments.shared.linear_training import (
    Data,
    Orthogonal,
    Point,
    Training,
    describe,
    orthogonal,
    split_hessian,
    train,
)
from gnjax.papers import balanced
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields


@dataclass(frozen=True)
class Config:
    """Three data sets, one for each panel.

    ``narrow`` is the width of a second network, whose trace is also taken exactly: that costs a
    product with the Hessian for every parameter.
    """

    paper_ratios: regimes.Rows
    a: Data
    b: Data
    c: Data
    sigma_x: float
    training: Training
    narrow: int
    probes: int
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if self.narrow < 1 or self.probes < 2 or self.seeds < 1:
            msg = f"narrow and seeds are at least 1 and probes 2, got {self}"
            raise ValueError(msg)

    def panels(self) -> dict[str, Data]:
        return {"a": self.a, "b": self.b, "c": self.c}


@dataclass(frozen=True)
class Cell:
    """One network, trained on one data set."""

    data: Data
    sigma_x: float
    training: Training
    exact: bool
    probes: int
    seed: int


@dataclass(frozen=True)
class Row:
    """The trace after some epochs."""

    panel: str
    data: str
    epoch: int
    seed: int
    depth: int
    width: int
    inputs: int
    outputs: int
    samples: int
    probes: int
    largest_share: float
    excess: float  # the loss minus its floor
    estimate: float  # of the full Hessian: Hutchinson's on the inputs that W_1 and B span
    standard_error: float
    exact: float | None  # of the full Hessian, by all unit vectors
    predicted: float  # Eq 7


def _uses(config: Config) -> Iterator[tuple[str, Cell]]:
    """Every (panel, cell), in the order of the table."""
    narrow = replace(config.training, width=config.narrow)
    for panel, data in config.panels().items():
        for training, exact in ((config.training, False), (narrow, True)):
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                yield (
                    panel,
                    copy_fields(Cell, config, data=data, training=training, exact=exact, seed=seed),
                )


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cell for _, cell in _uses(config)))


def cost(cell: Cell) -> float:
    """Multiplications of the epochs, and of the products with the Hessian."""
    outputs, width = 10, cell.training.width
    inputs = min(cell.data.side**2 or 784, width + outputs)
    parameters = width * (inputs + width * (cell.training.depth - 2) + outputs)
    products = cell.probes + (parameters if cell.exact else 0)
    epochs = max(cell.training.epochs) * 6.0 * outputs * parameters
    return epochs + 6.0 * len(cell.training.epochs) * products * inputs * parameters


def measure(cell: Cell) -> Measurement:
    """The columns of the cell's rows, as lists over the epochs."""
    found = orthogonal(cell.data, cell.sigma_x)
    points = train(found, cell.training, cell.seed)
    return {
        "inputs": found.inputs,
        "outputs": found.outputs,
        "samples": found.samples,
        "largest_share": found.largest_share,
        **as_lists([_traces(point, found, cell) for point in points]),
    }


def _traces(point: Point, found: Orthogonal, cell: Cell) -> dict[str, Any]:
    """The trace by products with random vectors, by those with all unit vectors, and by Eq 7."""
    split = split_hessian(point.weights, found.moments)
    # Every point has its own random vectors, so that their errors are independent.
    stream = int(np.random.SeedSequence([cell.seed, point.epoch]).generate_state(1)[0])
    estimate, standard_error = split.trace(cell.probes, stream)
    return {
        "epoch": point.epoch,
        "excess": point.loss - found.floor,
        "estimate": estimate,
        "standard_error": standard_error,
        "exact": split.exact_trace() if cell.exact else None,
        "predicted": balanced.trace(point.weights, cell.sigma_x),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            panel=panel,
            data=f"{cell.data.name}, orthogonalised",
            depth=cell.training.depth,
            width=cell.training.width,
            **at_index(measured[cell], line),
        )
        for panel, cell in _uses(config)
        if cell in measured
        for line in range(len(measured[cell]["epoch"]))
    )


def sources(config: Config) -> list[str]:
    return [describe(data, config.sigma_x) for data in dict.fromkeys(config.panels().values())]


EXPERIMENT = Experiment(
    "trace_path",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"trace {measurement['predicted'][-1]:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
