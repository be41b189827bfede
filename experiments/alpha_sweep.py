"""kappa of Leaky-ReLU networks over their width and slope: figures 6 and 23.

python -m experiments.alpha_sweep --config=configs/alpha_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.claims.alpha_sweep import CLAIMS
from experiments.shared.linear_network import as_lists, at_index, initial_weights, kappa_fields
from experiments.shared.whitened import drawn
from gnjax import papers
from gnjax.papers.closed_form.leaky_relu import leaky_relu_gauss_newtons
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

ONE_HIDDEN, TWO_HIDDEN = 2, 3  # weight matrices
RELU, LINEAR = 0.0, 1.0


@dataclass(frozen=True)
class Config:
    """The settings of figures 6 and 23.

    ``samples`` of the data (0: all of them) are whitened, then ``drawn`` of those are drawn;
    ``side`` is the side of the downsampled image, 0 for the image as it is.
    """

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    side: int
    drawn: int
    outputs: int
    gain: float
    initializer: str
    rtol: float
    slopes: tuple[float, ...]  # of figure 23
    slope: float  # of figure 6, one of ``slopes``
    widths: tuple[int, ...]
    seeds: int
    deep_widths: tuple[int, ...]  # of figure 6, of both hidden layers
    deep_seeds: int
    first_seed: int

    def __post_init__(self) -> None:
        if self.slope not in self.slopes or min(self.seeds, self.deep_seeds) < 1:
            msg = (
                f"slope={self.slope} must be one of slopes={self.slopes}, and seeds={self.seeds} "
                f"and deep_seeds={self.deep_seeds} at least 1"
            )
            raise ValueError(msg)
        if not self.widths or not self.deep_widths or min(*self.widths, *self.deep_widths) < 1:
            msg = f"widths of at least 1 are needed, got {self.widths} and {self.deep_widths}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One network at initialisation on one draw of samples, to be measured at every slope."""

    data: str
    samples: int
    data_seed: int
    side: int
    drawn: int
    outputs: int
    gain: float
    initializer: str
    rtol: float
    slopes: tuple[float, ...]
    depth: int
    width: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One slope of one cell in a figure."""

    figure: str
    depth: int
    width: int
    slope: float
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
    bound: float | None
    bound_estimate: float | None
    bound_applicable: bool


def _cells(
    config: Config, depth: int, widths: Sequence[int], seeds: int, slopes: Sequence[float]
) -> list[Cell]:
    return [
        copy_fields(
            Cell,
            config,
            data_seed=config.data_seed + seed,
            slopes=tuple(slopes),
            depth=depth,
            width=width,
            seed=seed,
        )
        for width in widths
        for seed in range(config.first_seed, config.first_seed + seeds)
    ]


def _uses(config: Config) -> list[tuple[str, tuple[float, ...], list[Cell]]]:
    """Every figure with the slopes that it draws and its cells, in the order of the table."""
    shallow = _cells(config, ONE_HIDDEN, config.widths, config.seeds, config.slopes)
    one = (config.slope,)
    deep = _cells(config, TWO_HIDDEN, config.deep_widths, config.deep_seeds, one)
    return [("6", one, shallow), ("6-deep", one, deep), ("23", config.slopes, shallow)]


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, the most expensive first, so that short ones are left at the end."""
    distinct = dict.fromkeys(cell for _, _, used in _uses(config) for cell in used)
    return tuple(sorted(distinct, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in forming the matrices and in one Cholesky factor of each."""
    size = cell.drawn * cell.outputs
    formed = 1 if cell.depth == ONE_HIDDEN else cell.depth
    return float(size**2 * (formed * cell.width + len(cell.slopes) * size / 6))


def measure(cell: Cell) -> Measurement:
    """kappa at every slope for the same weights and samples, with Eq 11 for one hidden layer."""
    x = drawn(cell.data, cell.samples, cell.data_seed, cell.side, cell.drawn).inputs
    each = _one_hidden(cell, x) if cell.depth == ONE_HIDDEN else _deeper(cell, x)
    return {"inputs": x.shape[1], "samples": len(x), **as_lists(list(each))}


def _one_hidden(cell: Cell, x: NDArray[np.float64]) -> Iterator[Measurement]:
    inner, outer = initial_weights(x.shape[1], cell)
    ops = leaky_relu_gauss_newtons(inner, outer, x.T, cell.slopes)
    for slope, op in zip(cell.slopes, ops, strict=True):
        bound = papers.bounds.leaky_relu(inner, outer, x.T, slope)
        yield {
            "slope": slope,
            **kappa_fields(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
            "bound": bound.value,
            "bound_estimate": bound.estimate,
            "bound_applicable": bound.applicable,
        }


def _deeper(cell: Cell, x: NDArray[np.float64]) -> Iterator[Measurement]:
    """kappa at every slope, and no bound: no theorem covers more than one hidden layer."""
    for slope in cell.slopes:
        kappa = gnjax.condition_number(
            gnjax.ntk(network(cell, x.shape[1], slope), x), rtol=cell.rtol, seed=cell.seed
        )
        silent = {"bound": None, "bound_estimate": None, "bound_applicable": False}
        yield {"slope": slope, **kappa_fields(kappa), **silent}


def network(cell: Cell, inputs: int, slope: float) -> gnjax.models.MLP:
    """The Leaky-ReLU network of the cell, with the weights of ``initial_weights``."""
    options: dict[str, Any] = {"gain": cell.gain} if "kaiming" in cell.initializer else {}
    return gnjax.models.MLP(
        (inputs, *[cell.width] * (cell.depth - 1), cell.outputs),
        activation="leaky_relu",
        slope=slope,
        bias=False,
        initializer=cell.initializer,
        key=jax.random.key(cell.seed),
        **options,
    )


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            figure=figure,
            data=f"{cell.data}, whitened",
            **at_index(measured[cell], cell.slopes.index(slope)),
        )
        for figure, slopes, used in _uses(config)
        for cell in used
        if cell in measured
        for slope in slopes
    )


def sources(config: Config) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    data = drawn(config.data, config.samples, config.data_seed, config.side, config.drawn)
    return [data.source]


EXPERIMENT = Experiment(
    "alpha_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {min(measurement['kappa']):.4g} to {max(measurement['kappa']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
