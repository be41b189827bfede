"""Partial products of linear networks over the layer: figures 11 and 12.

python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.claims.layer_sweep import CLAIMS
from experiments.shared.linear_network import Start, at_index, initial_weights
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields


@dataclass(frozen=True)
class Config:
    paper_ratios: regimes.Rows
    data: str
    samples: int  # 0: all of them
    data_seed: int
    side: int  # of the downsampled image, 0 for the image as it is
    outputs: int
    gains: tuple[float, ...]  # variance times fan-in: 1 in Appendix G, 2 in PyTorch
    initializer: str
    depths: tuple[int, ...]
    width: int
    seeds: int
    first_seed: int


@dataclass(frozen=True)
class Cell(Start):
    """One network at initialisation on one whitened data set."""

    depth: int
    width: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One layer l of one network; left is W^{L:l+1}, right is W^{1:l-1}.

    ``kappa2`` is the squared condition number of a product, ``smallest2`` its squared sigma_min.
    """

    depth: int
    layer: int
    width: int
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    left_kappa2: float
    left_smallest2: float
    right_kappa2: float
    right_smallest2: float
    weight: float  # gamma_l
    term: float  # left_kappa2 right_kappa2


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        copy_fields(Cell, config, gain=gain, depth=depth, seed=seed)
        for gain in config.gains
        for depth in config.depths
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    )


def cost(cell: Cell) -> float:
    inputs = cell.side**2 or 784
    return float(cell.depth * cell.width * inputs * (cell.width + 2 * inputs))


def measure(cell: Cell) -> Measurement:
    """The condition numbers and the weights gamma_l in Lemma 2, as lists over the layers."""
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    bound = papers.bounds.linear(initial_weights(white.rank, cell))
    if not bound.applicable:
        raise ValueError(bound.reason)
    return {
        "inputs": white.rank,
        "samples": white.samples,
        "left_kappa2": list((bound.left_largest / bound.left_smallest) ** 2),
        "left_smallest2": list(bound.left_smallest**2),
        "right_kappa2": list((bound.right_largest / bound.right_smallest) ** 2),
        "right_smallest2": list(bound.right_smallest**2),
        "weight": list(bound.weights),
        "term": list(bound.terms),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            layer=layer + 1,
            data=f"{cell.data}, whitened",
            **at_index(measured[cell], layer),
        )
        for cell in cells(config)
        if cell in measured
        for layer in range(cell.depth)
    )


def sources(config: Config) -> list[str]:
    return [describe(config.data, config.samples, config.data_seed, config.side)]


EXPERIMENT = Experiment(
    "layer_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"largest term {max(measurement['term']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
