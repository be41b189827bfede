"""The sharpness of linear networks over the number of samples, and its peak: figure C5.

python -m experiments.data_sharpness --config=configs/data_sharpness.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.claims.data_sharpness import CLAIMS, FITTED
from experiments.shared import label_training
from experiments.shared.label_training import Recipe
from experiments.shared.linear_network import at_index
from experiments.shared.linear_training import Data, Drawn, draw, draws
from gnjax import data as datasets
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields


@dataclass(frozen=True)
class Panel:
    """Runs on all data and numbers of samples, from every initialiser, with every share and seed.

    ``shares`` are those of class 0. The sharpness is measured after each of ``epochs``.
    """

    data: tuple[str, ...]
    side: int  # of the grey, downsampled image, 0 for the image as it is
    samples: tuple[int, ...]
    shares: tuple[float, ...]
    initializers: tuple[str, ...]
    epochs: tuple[int, ...]
    seeds: int


@dataclass(frozen=True)
class Config:
    """Balanced networks over n (panel a), and sharpness along training over the share (b)."""

    paper_ratios: regimes.Rows
    depth: int
    width: int
    sigma_x: float
    start: float
    rate: float
    rtol: float
    first_seed: int
    over_samples: Panel
    along_training: Panel


@dataclass(frozen=True)
class Cell:
    """Runs that are trained together: every share with every seed."""

    panel: str
    data: str
    samples: int
    side: int
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    epochs: tuple[int, ...]
    rtol: float

    def runs(self) -> list[Data]:
        return draws(self.data, self.samples, self.shares, self.seeds, self.side)


@dataclass(frozen=True)
class Row:
    """The largest eigenvalue of the Hessian of one network after one epoch."""

    panel: str
    data: str
    inputs: int  # the rank of the samples
    outputs: int
    depth: int
    width: int
    initializer: str
    samples: int
    seed: int
    share: float  # of class 0, as realised
    epoch: int
    measured: float
    error: float  # of ``measured``
    printed: float  # Eq 14 as printed, with sigma_max(Y)
    least: float  # lambda_*: Eq 14 with |Y X^T| / (n sigma_x^2); no minimum is flatter
    loss: float
    floor: float  # the least-squares optimum


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        copy_fields(
            Cell,
            panel,
            panel=name,
            data=data,
            samples=samples,
            seeds=tuple(range(config.first_seed, config.first_seed + panel.seeds)),
            recipe=_recipe(config, initializer, panel.epochs[-1]),
            rtol=config.rtol,
        )
        for name, panel in (("a", config.over_samples), ("b", config.along_training))
        for data in panel.data
        for initializer in panel.initializers
        for samples in panel.samples
    )


def _recipe(config: Config, initializer: str, epochs: int) -> Recipe:
    chosen = {"inputs": "orthogonalised", "initializer": initializer, "activation": "linear"}
    return copy_fields(Recipe, config, **chosen, epochs=epochs)


def cost(cell: Cell) -> float:
    """About the seconds of the eigenvalues, which take longer than the training."""
    return 0.05 * len(cell.runs()) * len(cell.epochs)


def shape(cell: Cell) -> Hashable:
    """A balanced network is reduced to the rank of the labels, whatever n is."""
    return cell.recipe, len(cell.epochs), len(cell.runs())


def drawn(data: Data) -> Drawn:
    """Images, or random inputs that fit their labels: for ``FITTED``."""
    return _fitted(data) if data.name == FITTED else draw(data)


def _fitted(data: Data) -> Drawn:
    """Random mixtures of the labels and of Gaussian features, side^2 inputs in all.

    A linear map of the inputs gives the labels back, however many samples there are.
    """
    rng = np.random.default_rng(data.seed)
    others = int((1 - data.share) * data.samples / 9 + 1e-9)
    counts = [data.samples - 9 * others, *[others] * 9]
    labels = datasets.one_hot(np.repeat(np.arange(10), counts), 10)
    features = rng.standard_normal((data.samples, data.side**2 - 10))
    mixed = np.hstack([labels, features]) @ rng.standard_normal((data.side**2, data.side**2))
    return Drawn(mixed, labels, counts[0] / data.samples, "Gaussian inputs that fit one-hot labels")


def measure(cell: Cell) -> Measurement:
    """The columns of the rows: every run at every epoch."""
    runs = cell.runs()
    problems = [label_training.problem_on(drawn(data), cell.recipe, data.seed) for data in runs]
    paths = label_training.train(problems, cell.recipe, cell.epochs)
    points = [
        (data, problem, path, index)
        for data, problem, path in zip(runs, problems, paths, strict=True)
        for index in range(len(cell.epochs))
    ]
    found = [
        label_training.sharpness([w[index] for w in path.params], problem.data, cell.rtol)
        for _, problem, path, index in points
    ]
    return {
        "inputs": [problem.inputs for _, problem, _, _ in points],
        "seed": [data.seed for data, _, _, _ in points],
        "share": [problem.share for _, problem, _, _ in points],
        "epoch": [cell.epochs[index] for _, _, _, index in points],
        "measured": [one.value for one in found],
        "error": [one.error for one in found],
        "printed": [problem.printed for _, problem, _, _ in points],
        "least": [problem.least for _, problem, _, _ in points],
        "loss": [float(path.losses[index]) for _, _, path, index in points],
        "floor": [label_training.floor(problem.data) for _, problem, _, _ in points],
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            data=f"{cell.data}, {cell.recipe.inputs}",
            outputs=10,
            depth=cell.recipe.depth,
            width=cell.recipe.width,
            initializer=cell.recipe.initializer,
            **at_index(measured[cell], line),
        )
        for cell in cells(config)
        if cell in measured
        for line in range(len(measured[cell]["measured"]))
    )


def sources(config: Config) -> list[str]:
    found = []
    for panel in (config.over_samples, config.along_training):
        for name in panel.data:
            data = Data(name, panel.samples[-1], panel.shares[0], 0, panel.side)
            size = f"{panel.side} x {panel.side}" if panel.side else "full size"
            found.append(f"{drawn(data).source}, {size}")
    return list(dict.fromkeys(found))


EXPERIMENT = Experiment(
    "data_sharpness",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"sharpness {max(measurement['measured']):.4g}",
    shape=shape,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
