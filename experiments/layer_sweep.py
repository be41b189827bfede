"""Partial products of linear networks over the layer: figures 11 and 12.

python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.claims.layer_sweep import CLAIMS, OTHER, PRINTED
from experiments.shared.linear_network import Start, at_index, initial_weights
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields


@dataclass(frozen=True)
class Config:
    """The settings of figures 11 and 12, and ``others``: (side, outputs, width) of other networks.

    Those are as deep as the deepest of the figures.
    """

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
    others: tuple[tuple[int, int, int], ...]
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
    ``sizes`` says whose d, k and m they are: those that are printed, or others.
    """

    sizes: str
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
    return tuple(cell for sizes in (PRINTED, OTHER) for cell in _of_sizes(config, sizes))


def _of_sizes(config: Config, sizes: str) -> list[Cell]:
    """The cells of the printed sizes at every depth, or of the others at the largest."""
    printed = (config.side, config.outputs, config.width)
    shapes, depths = (
        ((printed,), config.depths) if sizes == PRINTED else (config.others, (max(config.depths),))
    )
    return [
        copy_fields(
            Cell,
            config,
            gain=gain,
            depth=depth,
            seed=seed,
            side=side,
            outputs=outputs,
            width=width,
        )
        for side, outputs, width in shapes
        for gain in config.gains
        for depth in depths
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]


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
            sizes=sizes,
            layer=layer + 1,
            data=f"{cell.data}, whitened",
            **at_index(measured[cell], layer),
        )
        for sizes in (PRINTED, OTHER)
        for cell in _of_sizes(config, sizes)
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
