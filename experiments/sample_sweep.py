"""kappa of the NTK of one network over the number of samples that it is measured on: figure C1.

python -m experiments.sample_sweep --config=configs/sample_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

import gnjax
from experiments.shared.linear_network import interval_fields
from sweeps import command_line as cli
from sweeps import effects, regimes
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, verdict
from sweeps.grid import Experiment, Measurement, copy_fields
from sweeps.rows import where
from sweeps.table import Columns


@dataclass(frozen=True)
class Config:
    """Images of ``side`` by ``side`` pixels; n samples are the first n of the largest count."""

    paper_ratios: regimes.Rows
    data: str
    data_seed: int
    side: int
    width: int
    depth: int
    activation: str
    samples: tuple[int, ...]
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if min(self.samples, default=0) < 1 or self.seeds < 1:
            msg = f"samples and seeds must be at least 1, got {self.samples} and {self.seeds}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One network on the first ``samples`` of the ``most`` samples that were drawn."""

    data: str
    data_seed: int
    side: int
    width: int
    depth: int
    activation: str
    most: int
    samples: int
    seed: int


@dataclass(frozen=True)
class Row:
    """The NTK of one network on some samples."""

    data: str
    samples: int
    inputs: int
    outputs: int
    depth: int
    width: int
    activation: str
    seed: int
    kappa: float
    kappa_low: float
    kappa_high: float
    evidence: str  # the weakest kind that the interval rests on
    failure: float
    resolved: bool
    rank: int
    lambda_max: float
    lambda_min: float


def cells(config: Config) -> tuple[Cell, ...]:
    """The most samples first."""
    found = [
        copy_fields(Cell, config, most=max(config.samples), samples=samples, seed=seed)
        for samples in config.samples
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]
    return tuple(sorted(found, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications: the kernel of the hidden layers, and its singular values."""
    return float(cell.samples**2 * cell.width * cell.depth + cell.samples**3)


def measure(cell: Cell) -> Measurement:
    """The eigenvalues of the NTK of a network with one output."""
    dataset = gnjax.data.load(cell.data, samples=cell.most, seed=cell.data_seed)
    images = gnjax.data.downsample(dataset.inputs, dataset.shape, (cell.side, cell.side))
    widths = (images.shape[1], *[cell.width] * (cell.depth - 1), 1)
    key = jax.random.key(cell.seed)
    model = gnjax.models.MLP(widths, activation=cell.activation, key=key)
    kappa = gnjax.condition_number(gnjax.ntk(model, images[: cell.samples]), seed=cell.seed)
    return {
        **interval_fields(kappa),
        "inputs": images.shape[1],
        "lambda_max": kappa.lambda_max,
        "lambda_min": kappa.lambda_min,
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    return tuple(
        copy_fields(Row, cell, outputs=1, **measured[cell])
        for cell in cells(config)
        if cell in measured
    )


def sources(config: Config) -> list[str]:
    dataset = gnjax.data.load(config.data, samples=max(config.samples), seed=config.data_seed)
    return [f"{dataset.source}, downsampled to {config.side} x {config.side}"]


def _interlaces(table: Columns) -> Verdict:
    """Whether lambda_max grows and lambda_min falls with n.

    Cauchy's interlacing says so: the NTK of fewer samples is a principal submatrix.
    """
    if len(np.unique(table["samples"])) < 2 or not table["resolved"].all():
        return not_testable("fewer than 2 counts of samples, or a kappa that is not resolved")
    steps = []
    for seed in np.unique(table["seed"]):
        one = where(table, seed=seed)
        order = np.argsort(one["samples"])
        largest, least = (one[name][order] for name in ("lambda_max", "lambda_min"))
        steps += [*(largest[1:] / largest[:-1]), *(least[:-1] / least[1:])]
    text = (
        f"from one n to the next either end moves outwards by a factor of {min(steps):.4g} or more"
    )
    return verdict(min(steps) >= 1, min(steps), text)


def _grows_faster_than_samples(table: Columns) -> Verdict:
    if len(np.unique(table["samples"])) < 2 or not table["resolved"].all():
        return not_testable("fewer than 2 counts of samples, or a kappa that is not resolved")
    found = {"": effects.exponent(table, "samples")}
    return effects.decide(found, "kappa ~ n^e, e =", above=1.0)


CLAIMS = (
    Claim("C1", "the ends of the spectrum only move outwards", BEYOND, _interlaces),
    Claim("C1", "kappa grows faster than n", BEYOND, _grows_faster_than_samples),
)

EXPERIMENT = Experiment(
    "sample_sweep", cells, measure, rows, cost, lambda found: f"kappa {found['kappa']:.4g}"
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
