"""The top of the Hessian's spectrum beside Eq 15 while a two-layer linear network trains: B4.

python -m experiments.shallow_eigenvalues --config=configs/shallow_eigenvalues.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np

from experiments.claims.shallow_eigenvalues import CLAIMS
from experiments.shared.linear_network import at_index
from experiments.shared.linear_training import (
    Data,
    Orthogonal,
    Point,
    SplitHessian,
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

PRODUCTS = 500.0  # with the Hessian, at one epoch


@dataclass(frozen=True)
class Config:
    """Three data sets, one for each panel."""

    paper_ratios: regimes.Rows
    a: Data
    b: Data
    c: Data
    sigma_x: float
    training: Training
    count: int  # eigenvalues, from the largest
    rtol: float  # of their residuals, relative to the norm
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if self.training.depth != 2 or self.count < 1 or self.seeds < 1:
            msg = f"Eq 15 is about 2 layers; count and seeds are at least 1, got {self}"
            raise ValueError(msg)

    def panels(self) -> dict[str, Data]:
        return {"a": self.a, "b": self.b, "c": self.c}


@dataclass(frozen=True)
class Cell:
    """One network, trained on one data set."""

    data: Data
    sigma_x: float
    training: Training
    count: int
    rtol: float
    seed: int


@dataclass(frozen=True)
class Row:
    """The ``index``-th largest eigenvalue after some epochs."""

    panel: str
    data: str
    epoch: int
    index: int
    seed: int
    depth: int
    width: int
    inputs: int
    outputs: int
    samples: int
    largest_share: float
    excess: float  # the loss minus its floor
    measured: float  # of the full Hessian
    error: float  # of ``measured``: an eigenvalue lies this close, proved by the residual
    predicted: float  # Eq 15
    bound: float  # |H - G|_2, which |measured - predicted| cannot exceed (Weyl)


def _uses(config: Config) -> Iterator[tuple[str, Cell]]:
    """Every (panel, cell), in the order of the table."""
    for panel, data in config.panels().items():
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield (
                panel,
                copy_fields(Cell, config, data=data, seed=seed),
            )


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cell for _, cell in _uses(config)))


def cost(cell: Cell) -> float:
    """Multiplications of the epochs, and of the products with the Hessian."""
    outputs = 10
    inputs = min(cell.data.side**2 or 784, cell.training.width + outputs)
    epoch = 6.0 * cell.training.width * inputs * outputs
    product = 6.0 * inputs * cell.training.width * (inputs + outputs)
    return max(cell.training.epochs) * epoch + len(cell.training.epochs) * PRODUCTS * product


def measure(cell: Cell) -> Measurement:
    """The columns of the rows, as lists over the epochs and, within each, over the eigenvalues."""
    found = orthogonal(cell.data, cell.sigma_x)
    lists: dict[str, list[float]] = {}
    for point in train(found, cell.training, cell.seed):
        for name, values in _spectrum(point, found, cell).items():
            lists.setdefault(name, []).extend(values)
    return {
        "inputs": found.inputs,
        "outputs": found.outputs,
        "samples": found.samples,
        "largest_share": found.largest_share,
        **lists,
    }


def _spectrum(point: Point, found: Orthogonal, cell: Cell) -> dict[str, list[float]]:
    """The largest eigenvalues of the Hessian, those of Eq 15, and a bound on their difference."""
    split = split_hessian(point.weights, found.moments)
    values, errors = split.largest(cell.count, cell.rtol)
    w1, w2 = point.weights
    predicted = balanced.shallow(w1, w2, cell.sigma_x).values[: cell.count]
    gap = balanced.shallow_gap(w1, w2, found.moments.covariance, found.moments.cross)
    return {
        "epoch": [point.epoch] * cell.count,
        "index": list(range(1, cell.count + 1)),
        "excess": [point.loss - found.floor] * cell.count,
        "measured": values.tolist(),
        "error": (errors + _of_the_covariance(split, w1, w2, cell.sigma_x)).tolist(),
        "predicted": predicted.tolist(),
        "bound": [gap] * cell.count,
    }


def _of_the_covariance(split: SplitHessian, w1: jax.Array, w2: jax.Array, sigma_x: float) -> float:
    """How far the eigenvalues may move because C is c I only up to rounding.

    G changes by at most |C - c I| / c times |G|, and |G| = c (|W_1|^2 + |W_2|^2) here. The rest of
    the Hessian changes by |W_2 W_1 (C - c I)|, which is at most half as much.
    """
    squares = sum(float(np.linalg.norm(np.asarray(w), 2)) ** 2 for w in (w1, w2))
    return 1.5 * split.deviation * sigma_x**2 * squares


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        Row(
            panel=panel,
            data=f"{cell.data.name}, orthogonalised",
            seed=cell.seed,
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
    "shallow_eigenvalues",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"loss {measurement['excess'][-1]:.2g} above its floor",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
