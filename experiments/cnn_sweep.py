"""kappa of two-layer linear CNNs over kernel size and number of filters: figure 8.

python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.claims.cnn_sweep import CLAIMS
from experiments.shared import linear_cnn
from experiments.shared.linear_cnn import ExtremeEigenvalues, extreme_eigenvalues
from experiments.shared.linear_network import kappa_fields
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

READINGS = ("convolutions", "dense", "shared")
"""Toeplitz entries as parameters, the last layer a convolution or dense; or shared weights."""


@dataclass(frozen=True)
class Panel:
    """All pairs of a kernel size and a number of filters, in one reading and for one image side.

    ``channels`` counts the output channels of the last convolution; 0 stands for as many as there
    are filters. ``frame`` is the width of a frame of pixels that are zero in all images.
    """

    reading: str
    side: int
    kernels: tuple[int, ...]
    filters: tuple[int, ...]
    seeds: int
    channels: int = 1
    frame: int = 0

    def __post_init__(self) -> None:
        sizes = (*self.kernels, *self.filters)
        if not (self.kernels and self.filters) or min(sizes) < 1 or self.seeds < 1:
            msg = f"a panel needs kernels, filters and seeds of at least 1, got {self}"
            raise ValueError(msg)
        if self.reading not in READINGS:
            msg = f"reading={self.reading!r} is not one of {', '.join(READINGS)}"
            raise ValueError(msg)
        layers = 2 if self.reading == "convolutions" else 1
        if layers * (max(self.kernels) - 1) >= self.side or 2 * self.frame >= self.side:
            msg = (
                f"{layers} kernels of {max(self.kernels)}, or a frame of {self.frame}, leave "
                f"nothing of an image of side {self.side}; take smaller ones"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """The settings of figure 8; a panel's name, after "8-", is its figure in the table."""

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    first_seed: int
    outputs: int
    gain: float
    rtol: float
    convolutions: Panel
    dense: Panel
    shared: Panel
    convolutions_half: Panel  # half the side
    dense_half: Panel
    shared_other: Panel  # another side
    channels: Panel  # the last convolution has as many output channels as the first
    framed_convolutions: Panel
    framed_dense: Panel

    def panels(self) -> dict[str, Panel]:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {f"8-{name}": value for name, value in named.items() if isinstance(value, Panel)}


@dataclass(frozen=True)
class Cell:
    """One network at initialisation on one whitened data set, in one reading."""

    data: str
    samples: int
    data_seed: int
    outputs: int
    gain: float
    rtol: float
    reading: str
    side: int
    frame: int
    channels: int
    kernel: int
    filters: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One cell in one figure, which can share it; ``parameters`` counts weights of both layers."""

    figure: str
    reading: str
    side: int
    frame: int
    channels: int
    kernel: int
    filters: int
    seed: int
    inputs: int
    data_rank: int
    outputs: int
    samples: int
    data: str
    gain: float
    parameters: int
    size: int
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


def _uses(config: Config) -> list[tuple[str, Cell]]:
    """Every (figure, cell), in the order of the table."""
    return [
        (
            figure,
            copy_fields(
                Cell,
                config,
                reading=panel.reading,
                side=panel.side,
                frame=panel.frame,
                channels=panel.channels or filters,
                kernel=kernel,
                filters=filters,
                seed=seed,
            ),
        )
        for figure, panel in config.panels().items()
        for kernel in panel.kernels
        for filters in panel.filters
        for seed in range(config.first_seed, config.first_seed + panel.seeds)
    ]


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, the most expensive first, so that short ones are left at the end."""
    return tuple(sorted(dict.fromkeys(cell for _, cell in _uses(config)), key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in finding the eigenvalues of the matrices of this reading."""
    pixels = (cell.side - 2 * cell.frame) ** 2
    if cell.reading == "shared":
        return float((cell.outputs * pixels) ** 3)
    last = cell.channels * max(cell.side - 2 * cell.kernel + 2, 0) ** 2
    return float(pixels**3 + (last**3 if cell.reading == "convolutions" else 0))


def measure(cell: Cell) -> Measurement:
    """kappa with its interval."""
    seen = linear_cnn.images(cell.data, cell.samples, cell.data_seed, cell.side, cell.frame)
    kernels = linear_cnn.first_kernels(cell.kernel, cell.filters, cell.gain, cell.seed)
    last = _last_layer(cell)
    found = {
        "inputs": seen.pixels,
        "data_rank": seen.rank,
        "samples": seen.samples,
        "parameters": kernels.size + last.size,
    }
    if cell.reading == "shared":
        op = linear_cnn.shared_gauss_newton(kernels, last, cell.side, seen.root)
        kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
        return {**found, "size": op.shape[0], **kappa_fields(kappa)}
    if cell.reading == "dense":
        outer = linear_cnn.head_gram(last)
    else:
        outer = linear_cnn.convolution_gram(last, cell.side - cell.kernel + 1)
    sums = linear_cnn.kappa_of_kronecker_sum(extreme_eigenvalues(outer), _inner_eigenvalues(cell))
    return {**found, "size": outer.shape[0] * seen.rank, **sums}


def _last_layer(cell: Cell) -> NDArray[np.float64]:
    """The kernels of a second convolution, or a dense head."""
    if cell.reading == "convolutions":
        return linear_cnn.second_kernels(
            cell.kernel, cell.filters, cell.channels, cell.gain, cell.seed
        )
    features = cell.filters * (cell.side - cell.kernel + 1) ** 2
    return linear_cnn.dense_head(features, cell.outputs, cell.gain, cell.seed)


def _inner_eigenvalues(cell: Cell) -> ExtremeEigenvalues:
    """The extreme eigenvalues of T_1^T T_1 on the range of the data, as in both Toeplitz readings.

    The two readings share them, so that they are computed once.
    """
    where = cell.data, cell.samples, cell.data_seed, cell.side, cell.frame
    return _eigenvalues_of_first_layer(where, cell.kernel, cell.filters, cell.gain, cell.seed)


@cache
def _eigenvalues_of_first_layer(
    where: tuple[str, int, int, int, int], kernel: int, filters: int, gain: float, seed: int
) -> ExtremeEigenvalues:
    seen, side = linear_cnn.images(*where), where[3]
    first = linear_cnn.first_kernels(kernel, filters, gain, seed)
    return extreme_eigenvalues(linear_cnn.on_range(linear_cnn.inner_gram(first, side), seen.root))


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(Row, cell, figure=figure, data=f"{cell.data}, whitened", **measured[cell])
        for figure, cell in _uses(config)
        if cell in measured
    )


def sources(config: Config) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    kinds = dict.fromkeys((panel.side, panel.frame) for panel in config.panels().values())
    drawn = config.data, config.samples, config.data_seed
    return [linear_cnn.images(*drawn, *kind).source for kind in kinds]


EXPERIMENT = Experiment(
    "cnn_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa']:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
