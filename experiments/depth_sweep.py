"""kappa of linear networks over depth: figures 2a, 2b and 3.

python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import gnjax
from experiments.claims.depth_sweep import CLAIMS
from experiments.shared.linear_network import Cell, bound_fields, chain_weights, kappa_fields
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields


@dataclass(frozen=True)
class Panel:
    """Depths and seeds, and either widths m or multipliers c, which set the width to m = c L.

    ``side`` is the side of the downsampled image, 0 for the image as it is.
    """

    depths: tuple[int, ...]
    seeds: int
    side: int
    widths: tuple[int, ...] = ()
    multipliers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"a panel needs depths and seeds of at least 1, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """The settings of figures 2a, 2b and 3; a panel's name is its figure in the table."""

    paper_ratios: regimes.Rows
    data: str
    samples: int  # 0: all of them
    data_seed: int
    outputs: int
    gain: float
    initializer: str
    rtol: float
    first_seed: int
    fixed_width: Panel  # 2a
    slow_growth: Panel  # 2b, left
    slow_reference: Panel  # a fixed width at the size of slow_growth, to compare exponents with
    fast_growth: Panel  # 2b, right
    many_seeds: Panel  # 3
    narrow: Panel  # m < d, of which the authors' notebooks print kappas

    def panels(self) -> dict[str, Panel]:
        return {
            "2a": self.fixed_width,
            "2b-left": self.slow_growth,
            "2b-fixed": self.slow_reference,
            "2b-right": self.fast_growth,
            "3": self.many_seeds,
            "2-narrow": self.narrow,
        }


@dataclass(frozen=True)
class Row:
    """One cell in one figure; figures can share a cell."""

    figure: str
    depth: int
    width: int
    multiplier: int | None
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
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


def _widths(panel: Panel, depth: int) -> list[tuple[int, int | None]]:
    fixed: list[tuple[int, int | None]] = [(width, None) for width in panel.widths]
    return fixed + [(c * depth, c) for c in panel.multipliers]


def _uses(config: Config) -> list[tuple[str, int | None, Cell]]:
    """Every (figure, multiplier, cell), in the order of the table."""
    return [
        (
            figure,
            multiplier,
            copy_fields(Cell, config, side=panel.side, depth=depth, width=width, seed=seed),
        )
        for figure, panel in config.panels().items()
        for depth in panel.depths
        for width, multiplier in _widths(panel, depth)
        for seed in range(config.first_seed, config.first_seed + panel.seeds)
    ]


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, the most expensive first, so that short ones are left at the end."""
    distinct = dict.fromkeys(cell for _, _, cell in _uses(config))
    return tuple(sorted(distinct, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the partial products and in the Krylov spaces."""
    inputs = cell.side**2 or 784
    chain = cell.depth * cell.width * inputs * (cell.width + 2 * inputs)
    return chain + 400.0 * cell.depth * cell.outputs * inputs**2


def measure(cell: Cell) -> Measurement:
    """kappa and the bounds of Lemma 2; whitened data, so Sigma is the identity of its rank."""
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    op = papers.linear_gauss_newton(chain_weights(white.rank, cell))
    kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
    return {
        "inputs": white.rank,
        "samples": white.samples,
        **kappa_fields(kappa),
        **bound_fields(papers.bounds.of_operator(op)),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            figure=figure,
            multiplier=multiplier,
            data=f"{cell.data}, whitened",
            **measured[cell],
        )
        for figure, multiplier, cell in _uses(config)
        if cell in measured
    )


def sources(config: Config) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    sides = dict.fromkeys(panel.side for panel in config.panels().values())
    return [describe(config.data, config.samples, config.data_seed, side) for side in sides]


EXPERIMENT = Experiment(
    "depth_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa']:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
