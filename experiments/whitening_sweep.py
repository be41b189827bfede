"""kappa of linear networks over depth on raw and on whitened data: figure 19.

python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import gnjax
from experiments.claims.whitening_sweep import CLAIMS
from experiments.shared import linear_network
from experiments.shared.linear_network import (
    as_lists,
    at_index,
    bound_fields,
    initial_weights,
    kappa_fields,
)
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

WHITENED, RAW = "whitened", "raw"  # Sigma^0 and Sigma^1


@dataclass(frozen=True)
class Config:
    """The settings of figure 19. ``powers`` are the t between 0 and 1 at which the inputs have
    covariance Sigma^t; the raw ones, t = 1, and the whitened ones, t = 0, always run.
    """

    paper_ratios: regimes.Rows
    data: str
    samples: int  # 0: all of them
    data_seed: int
    side: int  # of the downsampled image, 0 for the image as it is
    outputs: int
    gain: float
    initializer: str
    rtol: float
    width: int
    depths: tuple[int, ...]
    powers: tuple[float, ...]
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"depths and seeds must be at least 1, got {self.depths} and {self.seeds}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell(linear_network.Cell):
    """One network at initialisation on inputs with every power of the covariance."""

    powers: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One network on inputs of covariance Sigma^t: whitened, raw or, in between, "Sigma^t"."""

    depth: int
    width: int
    whitening: str
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    covariance_condition: float  # kappa(Sigma) of these inputs
    kappa: float
    kappa_low: float
    kappa_high: float
    evidence: str  # the weakest kind that the interval rests on
    failure: float
    resolved: bool
    method: str
    rank: int
    lambda_max: float
    lambda_min: float
    bound_convex: float | None
    bound_maximum: float | None
    bound_applicable: bool


def cells(config: Config) -> tuple[Cell, ...]:
    """The cells, the most expensive first, so that short ones are left at the end."""
    found = [
        copy_fields(Cell, config, depth=depth, seed=seed)
        for depth in config.depths
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]
    return tuple(sorted(found, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the partial products, as if there were as many inputs as hidden units."""
    return float(cell.depth * cell.width**3)


def measure(cell: Cell) -> Measurement:
    """kappa and the bounds of Lemma 2 for the same weights, on inputs of every covariance.

    A rotation of the inputs does not change kappa. So the inputs are taken in the principal axes
    of the data, where Sigma is diagonal for raw inputs and the identity for whitened ones.
    """
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    weights = initial_weights(white.rank, cell)
    found = []
    variances = np.asarray(white.variances)
    sigmas = (None, *(np.diag(variances**power) for power in (1.0, *cell.powers)))
    bounds = papers.bounds.linear_on_each(weights, sigmas)
    for sigma, bound in zip(sigmas, bounds, strict=True):
        op = papers.linear_gauss_newton(weights, sigma)
        found.append(
            {
                "covariance_condition": bound.covariance_condition,
                **kappa_fields(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
                **bound_fields(bound),
            }
        )
    return {"inputs": white.rank, "samples": white.samples, **as_lists(found)}


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(Row, cell, whitening=whitening, **at_index(measured[cell], index))
        for cell in cells(config)
        if cell in measured
        for index, whitening in enumerate(inputs(config))
    )


def inputs(config: Config) -> tuple[str, ...]:
    """The names of the inputs, in the order in which a cell measures them."""
    return (WHITENED, RAW, *(f"Sigma^{power:g}" for power in config.powers))


def sources(config: Config) -> list[str]:
    return [describe(config.data, config.samples, config.data_seed, config.side)]


EXPERIMENT = Experiment(
    "whitening_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa'][0]:.4g}, raw {measurement['kappa'][1]:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
