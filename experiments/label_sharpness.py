"""What the labels do to the sharpness of a minimum: figures B1 and B2.

python -m experiments.label_sharpness --config=configs/label_sharpness.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import jax
import numpy as np

import gnjax
from experiments.claims.label_sharpness import CLAIMS
from experiments.shared import label_training
from experiments.shared.label_training import Recipe
from experiments.shared.linear_network import at_index
from experiments.shared.linear_training import Data, draw, draws
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers import balanced
from gnjax.papers.training import linear_descent
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

RECIPES = {  # of each trained panel: inputs, initialiser, activation
    "1c": ("orthogonalised", "balanced", "linear"),
    "2a": ("raw", "balanced", "linear"),
    "2b": ("orthogonalised", "pytorch_default", "linear"),
    "2c": ("orthogonalised", "balanced", "tanh"),
    "2d": ("orthogonalised", "pytorch_default", "linear"),
}
CLASSES = 10


@dataclass(frozen=True)
class Random:
    """B1a: a balanced square network whose own outputs are the labels."""

    samples: int
    inputs: int
    depth: int
    sigma_x: float
    seeds: int


@dataclass(frozen=True)
class Contour:
    """B1b: depths, and the values of sigma_max(Y) / sqrt(n)."""

    depths: tuple[int, ...]
    norms: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """The runs of one panel: each proportion of class 0 in ``shares``, with each seed.

    A cell trains the runs of ``together`` proportions. A panel with no seeds is left out.
    """

    shares: tuple[float, ...]
    seeds: int
    epochs: int
    together: int

    def __post_init__(self) -> None:
        if not self.shares or self.seeds < 0 or min(self.epochs, self.together) < 1:
            msg = (
                "a panel needs shares, epochs and together from 1 on, and seeds from 0 on, "
                f"got {self}"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Edge:
    """B2d: sharpness over the epochs at constant learning rates.

    A fraction f stands for the rate 2 f / lambda_*, at which minima flatter than lambda_* / f are
    stable; 0 for the rate of the other panels.
    """

    data: str
    share: float
    seed: int
    fractions: tuple[float, ...]
    epochs: tuple[int, ...]


@dataclass(frozen=True)
class Config:
    """What figures B1 and B2 are made of; a panel's name is its figure in the table."""

    paper_ratios: regimes.Rows
    data: tuple[str, ...]
    samples: int
    side: int  # of the grey, downsampled image, 0 for the image as it is
    depth: int
    width: int
    sigma_x: float
    start: float  # every singular value of balanced initial weights
    rate: float
    rtol: float  # of the residual of the largest eigenvalue
    first_seed: int
    random: Random
    contour: Contour
    trained: Panel  # 1c
    raw: Panel  # 2a
    unbalanced: Panel  # 2b
    tanh: Panel  # 2c
    edge: Edge  # 2d

    def seeds(self, panel: Random | Panel) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + panel.seeds))

    def panels(self) -> dict[str, Panel]:
        every = {"1c": self.trained, "2a": self.raw, "2b": self.unbalanced, "2c": self.tanh}
        return {name: panel for name, panel in every.items() if panel.seeds}

    def recipe(self, figure: str, epochs: int) -> Recipe:
        return Recipe(
            *RECIPES[figure],
            self.depth,
            self.width,
            self.sigma_x,
            self.start,
            self.rate,
            epochs,
        )


@dataclass(frozen=True)
class RandomCell:
    """One random network of B1a."""

    samples: int
    inputs: int
    depth: int
    sigma_x: float
    seed: int


@dataclass(frozen=True)
class ContourCell:
    """All balanced networks of one depth."""

    depth: int
    norms: tuple[float, ...]


@dataclass(frozen=True)
class TrainedCell:
    """Runs that are trained together: every share with every seed."""

    data: str
    samples: int
    side: int
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    rtol: float

    def runs(self) -> list[Data]:
        return draws(self.data, self.samples, self.shares, self.seeds, self.side)


@dataclass(frozen=True)
class EdgeCell:
    """One start, trained at several constant rates."""

    data: Data
    recipe: Recipe
    fractions: tuple[float, ...]
    epochs: tuple[int, ...]
    rtol: float


Cell = RandomCell | ContourCell | TrainedCell | EdgeCell


@dataclass(frozen=True)
class Row:
    """One eigenvalue: any of the spectrum in panel 1a, the largest of a Hessian in the others."""

    figure: str
    data: str
    inputs: int
    outputs: int
    depth: int
    width: int
    seed: int
    measured: float
    error: float  # of ``measured``
    printed: float  # Eq 14 as printed, with sigma_max(Y); in 1a Eq 9 with Eq 13
    least: float | None = None  # lambda_*: Eq 14 with |Y X^T| / (n sigma_x^2), least of a minimum
    samples: int | None = None
    share: float | None = None  # of class 0, as realised
    index: int | None = None  # 1a: from the largest
    norm: float | None = None  # 1b: sigma_max(Y) / sqrt(n)
    epoch: int | None = None
    rate: float | None = None  # at that epoch
    fraction: float | None = None  # 2d: rate lambda_* / 2, 0 for the rate of the other panels
    loss: float | None = None
    floor: float | None = None  # the least-squares optimum


def _uses(config: Config) -> Iterator[tuple[str, Cell]]:
    """Every (figure, cell), in the order of the table."""
    random, contour, edge = config.random, config.contour, config.edge
    for seed in config.seeds(random):
        yield "1a", copy_fields(RandomCell, random, seed=seed)
    for depth in contour.depths:
        yield "1b", ContourCell(depth, contour.norms)
    for figure, panel in config.panels().items():
        recipe = config.recipe(figure, panel.epochs)
        for name in config.data:
            for first in range(0, len(panel.shares), panel.together):
                shares = panel.shares[first : first + panel.together]
                cell = copy_fields(
                    TrainedCell,
                    config,
                    data=name,
                    shares=shares,
                    seeds=config.seeds(panel),
                    recipe=recipe,
                )
                yield figure, cell
    yield (
        "2d",
        EdgeCell(
            Data(edge.data, config.samples, edge.share, edge.seed, config.side),
            config.recipe("2d", edge.epochs[-1]),
            edge.fractions,
            edge.epochs,
            config.rtol,
        ),
    )


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, the most expensive first, so that short ones are left at the end."""
    distinct = dict.fromkeys(cell for _, cell in _uses(config))
    return tuple(sorted(distinct, key=cost, reverse=True))


@singledispatch
def cost(cell: Any) -> float:
    """Roughly the seconds that the cell takes on one core."""
    msg = f"{cell!r} is not a cell of this experiment"
    raise TypeError(msg)


@cost.register
def _(cell: RandomCell) -> float:
    parameters = cell.depth * cell.inputs**2
    return 1.0 + 1e-9 * parameters**3


@cost.register
def _(cell: ContourCell) -> float:
    return 0.5 + 0.02 * len(cell.norms)


@cost.register
def _(cell: TrainedCell) -> float:
    recipe, inputs = cell.recipe, cell.side**2 or 784
    if recipe.activation == "tanh":
        epoch = 0.3 * cell.samples * recipe.width * (inputs + (recipe.depth - 2) * recipe.width)
    elif recipe.initializer == "balanced":
        epoch = 200.0 * (inputs if recipe.inputs == "raw" else 50.0)
    else:
        epoch = 60.0 * recipe.width * (recipe.depth - 1) * recipe.width
    drawing = 3e-4 * cell.samples  # the samples of a run, with their reduction
    return len(cell.runs()) * (drawing + 1e-10 * epoch * recipe.epochs)


@cost.register
def _(cell: EdgeCell) -> float:
    return 0.2 * len(cell.fractions) * len(cell.epochs)


@singledispatch
def measure(cell: Any) -> Measurement:
    """The columns of the cell's rows: a list with a value for each row, or one value for all."""
    msg = f"{cell!r} is not a cell of this experiment"
    raise TypeError(msg)


@measure.register
def _(cell: RandomCell) -> Measurement:
    """The eigenvalues of G by automatic differentiation, beside those of Eq 9 with Eq 13.

    The equations give d^2 non-zero ones. One more is kept, to show that the next is zero.
    """
    rng = np.random.default_rng(cell.seed)
    x = datasets.orthogonalise(rng.standard_normal((cell.samples, cell.inputs)), cell.sigma_x)
    values = rng.uniform(size=cell.inputs)
    widths = (cell.inputs,) * (cell.depth + 1)
    weights = balanced.sample(jax.random.key(cell.seed), widths, values)
    y = x @ np.asarray(linear_descent.product(weights)).T
    layers = balanced.layer_singular_values(x, y, cell.depth, cell.sigma_x, fitted=True)
    predicted = balanced.eigenvalues(layers, cell.depth, cell.sigma_x)
    computed = gnjax.eigenvalues(gnjax.gauss_newton((_linear, weights), x, side="auto"))
    kept = len(predicted) + 1
    return {
        "data": "gaussian, orthogonalised",
        "samples": cell.samples,
        "inputs": cell.inputs,
        "outputs": cell.inputs,
        "depth": cell.depth,
        "width": cell.inputs,
        "seed": cell.seed,
        "index": list(range(1, kept + 1)),
        "measured": computed.values[:kept].tolist(),
        "error": computed.errors[:kept].tolist(),
        "printed": [*predicted.tolist(), 0.0],
    }


def _linear(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    return x @ linear_descent.product(weights).T


@measure.register
def _(cell: ContourCell) -> Measurement:
    """The largest eigenvalue of balanced networks from 4 inputs to 3 outputs, sigma_x = 1."""
    shape = np.array([1.0, 0.7, 0.4])
    widths = (4, *[3] * cell.depth)
    spectra = []
    for norm in cell.norms:
        values = norm ** (1 / cell.depth) * shape
        weights = balanced.sample(jax.random.key(cell.depth), widths, values)
        spectra.append(gnjax.eigenvalues(papers.linear_gauss_newton(weights)))
    return {
        "data": "balanced networks",
        "inputs": widths[0],
        "outputs": widths[-1],
        "depth": cell.depth,
        "width": 3,
        "seed": cell.depth,
        "norm": list(cell.norms),
        "measured": [float(found.values[0]) for found in spectra],
        "error": [float(found.errors[0]) for found in spectra],
        "printed": balanced.sharpness(np.array(cell.norms), cell.depth).tolist(),
    }


@measure.register
def _(cell: TrainedCell) -> Measurement:
    """The sharpness at the end of training, one row for each run."""
    runs = cell.runs()
    problems = [label_training.problem(data, cell.recipe) for data in runs]
    paths = label_training.train(problems, cell.recipe)
    ends = [[w[-1] for w in path.params] for path in paths]
    found = [
        label_training.sharpness(end, problem.data, cell.rtol)
        for end, problem in zip(ends, problems, strict=True)
    ]
    return _common(runs[0], cell.recipe) | {
        "inputs": [problem.inputs for problem in problems],
        "seed": [data.seed for data in runs],
        "epoch": cell.recipe.epochs,
        "share": [problem.share for problem in problems],
        "rate": [float(path.rates[-1]) for path in paths],
        "measured": [one.value for one in found],
        "error": [one.error for one in found],
        "least": [problem.least for problem in problems],
        "printed": [problem.printed for problem in problems],
        "loss": [float(path.losses[-1]) for path in paths],
        "floor": [label_training.floor(problem.data) for problem in problems],
    }


@measure.register
def _(cell: EdgeCell) -> Measurement:
    """The sharpness along training, one row for each rate and epoch with a finite loss."""
    problem = label_training.problem(cell.data, cell.recipe)
    rates = [2 * f / problem.least if f else cell.recipe.rate for f in cell.fractions]
    paths = label_training.at_rates(problem, cell.recipe, rates, cell.epochs)
    points = [
        (path, index, fraction)
        for path, fraction in zip(paths, cell.fractions, strict=True)
        for index in range(len(cell.epochs))
        if np.isfinite(path.losses[index])
    ]
    found = [
        label_training.sharpness([w[index] for w in path.params], problem.data, cell.rtol)
        for path, index, _ in points
    ]
    return _common(cell.data, cell.recipe) | {
        "inputs": problem.inputs,
        "seed": cell.data.seed,
        "share": problem.share,
        "epoch": [cell.epochs[index] for _, index, _ in points],
        "rate": [float(path.rates[index]) for path, index, _ in points],
        "fraction": [fraction for _, _, fraction in points],
        "measured": [one.value for one in found],
        "error": [one.error for one in found],
        "least": problem.least,
        "printed": problem.printed,
        "loss": [float(path.losses[index]) for path, index, _ in points],
        "floor": label_training.floor(problem.data),
    }


def _common(data: Data, recipe: Recipe) -> dict[str, Any]:
    return {
        "data": f"{data.name}, {recipe.inputs}",
        "samples": data.samples,
        "outputs": CLASSES,
        "depth": recipe.depth,
        "width": recipe.width,
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        Row(figure=figure, **at_index(measured[cell], line))
        for figure, cell in _uses(config)
        if cell in measured
        for line in range(len(measured[cell]["measured"]))
    )


def sources(config: Config) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    names = dict.fromkeys((*config.data, config.edge.data))
    size = f", grey, {config.side} x {config.side}" if config.side else ""
    return [
        draw(Data(name, config.samples, config.edge.share, 0, config.side)).source + size
        for name in names
    ]


def _progress(measurement: Measurement) -> str:
    return f"sharpness {max(measurement['measured']):.4g}"


EXPERIMENT = Experiment(
    "label_sharpness",
    cells,
    measure,
    rows,
    cost,
    _progress,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
