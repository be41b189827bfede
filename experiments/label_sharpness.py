"""What the labels do to the sharpness of a minimum: figures B1 and B2.

python -m experiments.label_sharpness --config=configs/label_sharpness.py:laptop

A row is one eigenvalue: any of the spectrum in panel 1a, the largest of a Hessian in the others.
``printed`` is Eq 14 as printed, with sigma_max(Y), and in 1a Eq 9 with Eq 13. ``least`` is
lambda_*, Eq 14 with |Y X^T| / (n sigma_x^2), the least of a minimum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import gnjax
from experiments.claims.label_sharpness import CLAIMS
from experiments.shared import label_training
from experiments.shared.label_training import Recipe
from experiments.shared.linear_training import Data, draw, draws
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers import balanced
from gnjax.papers.training import linear_descent
from sweeps import command_line
from sweeps.experiment import Experiment

RECIPES = {  # of each trained panel: its field of the config, inputs, initialiser, activation
    "1c": ("trained", "orthogonalised", "balanced", "linear"),
    "2a": ("raw", "raw", "balanced", "linear"),
    "2b": ("unbalanced", "orthogonalised", "pytorch_default", "linear"),
    "2c": ("tanh", "orthogonalised", "balanced", "tanh"),
    "2d": ("edge", "orthogonalised", "pytorch_default", "linear"),
}

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Random:
    """1a: one random balanced square network whose own outputs are the labels."""

    samples: int
    inputs: int
    depth: int
    sigma_x: float
    seed: int

    def cost(self) -> float:
        return 1.0 + 1e-9 * (self.depth * self.inputs**2) ** 3

    def rows(self) -> Rows:
        """The eigenvalues of G by automatic differentiation, beside those of Eq 9 with Eq 13.

        The equations give d^2 non-zero ones. One more is kept, to show that the next is zero.
        """
        rng = np.random.default_rng(self.seed)
        x = datasets.orthogonalise(rng.standard_normal((self.samples, self.inputs)), self.sigma_x)
        values = rng.uniform(size=self.inputs)
        widths = (self.inputs,) * (self.depth + 1)
        weights = balanced.sample(jax.random.key(self.seed), widths, values)
        y = x @ np.asarray(linear_descent.end_to_end(weights)).T
        layers = balanced.layer_singular_values(x, y, self.depth, self.sigma_x, fitted=True)
        predicted = [*balanced.eigenvalues(layers, self.depth, self.sigma_x), 0.0]
        computed = gnjax.eigenvalues(gnjax.gauss_newton((_linear, weights), x, side="auto"))
        shared = {
            "data": "gaussian, orthogonalised",
            "samples": self.samples,
            "outputs": self.inputs,
            "width": self.inputs,
        }
        found = zip(predicted, computed.values, computed.errors, strict=False)
        return [
            {**shared, "index": index, "measured": value, "error": error, "printed": printed}
            for index, (printed, value, error) in enumerate(found, start=1)
        ]


def _linear(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    return x @ linear_descent.end_to_end(weights).T


@dataclass(frozen=True)
class Contour:
    """1b: all balanced networks of one depth, at the values of sigma_max(Y) / sqrt(n)."""

    depth: int
    norms: tuple[float, ...]

    def cost(self) -> float:
        return 0.5 + 0.02 * len(self.norms)

    def rows(self) -> Rows:
        """The largest eigenvalue of balanced networks from 4 inputs to 3 outputs, sigma_x = 1."""
        shape = np.array([1.0, 0.7, 0.4])
        widths = (4, *[3] * self.depth)
        shared = {"data": "balanced networks", "inputs": 4, "outputs": 3, "width": 3}
        printed = balanced.sharpness(np.array(self.norms), self.depth)
        found = []
        for norm, predicted in zip(self.norms, printed, strict=True):
            values = norm ** (1 / self.depth) * shape
            weights = balanced.sample(jax.random.key(self.depth), widths, values)
            spectrum = gnjax.eigenvalues(papers.linear_gauss_newton(weights))
            ends = {"measured": spectrum.values[0], "error": spectrum.errors[0]}
            found.append({**shared, "seed": self.depth, "norm": norm, **ends, "printed": predicted})
        return found


@dataclass(frozen=True)
class Trained:
    """1c to 2c: runs that are trained together, every share of class 0 with every seed."""

    data: str
    samples: int
    side: int  # of the grey, downsampled image, 0 for the image as it is
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    rtol: float  # of the residual of the largest eigenvalue

    def cost(self) -> float:
        recipe, inputs = self.recipe, self.side**2 or 784
        if recipe.activation == "tanh":
            epoch = 0.3 * self.samples * recipe.width * (inputs + (recipe.depth - 2) * recipe.width)
        elif recipe.initializer == "balanced":
            epoch = 200.0 * (inputs if recipe.inputs == "raw" else 50.0)
        else:
            epoch = 60.0 * recipe.width * (recipe.depth - 1) * recipe.width
        drawing = 3e-4 * self.samples  # the samples of a run, with their reduction
        return len(self.shares) * len(self.seeds) * (drawing + 1e-10 * epoch * recipe.epochs)

    def rows(self) -> Rows:
        """The sharpness at the end of training, one row for each run."""
        runs = draws(self.data, self.samples, self.shares, self.seeds, self.side)
        problems = [label_training.problem(data, self.recipe) for data in runs]
        paths = label_training.train(problems, self.recipe)
        return [
            {
                **label_training.row(problem, path, -1, data, self.recipe, self.rtol),
                "epoch": self.recipe.epochs,
            }
            for data, problem, path in zip(runs, problems, paths, strict=True)
        ]


@dataclass(frozen=True)
class Edge:
    """2d: one start, trained at several constant rates.

    A fraction f stands for the rate 2 f / lambda_*, at which minima flatter than lambda_* / f are
    stable; 0 for the rate of the other panels.
    """

    data: Data
    recipe: Recipe
    fractions: tuple[float, ...]
    epochs: tuple[int, ...]
    rtol: float

    def cost(self) -> float:
        return 0.2 * len(self.fractions) * len(self.epochs)

    def rows(self) -> Rows:
        """The sharpness along training, one row for each rate and epoch with a finite loss."""
        problem = label_training.problem(self.data, self.recipe)
        rates = [2 * f / problem.least if f else self.recipe.rate for f in self.fractions]
        paths = label_training.at_rates(problem, self.recipe, rates, self.epochs)
        return [
            {
                **label_training.row(problem, path, index, self.data, self.recipe, self.rtol),
                "epoch": epoch,
                "fraction": fraction,
            }
            for path, fraction in zip(paths, self.fractions, strict=True)
            for index, epoch in enumerate(self.epochs)
            if np.isfinite(path.losses[index])
        ]


def measure(run: Random | Contour | Trained | Edge) -> Rows:
    return run.rows()


def cost(run: Random | Contour | Trained | Edge) -> float:
    """Roughly the seconds that the run takes on one core."""
    return run.cost()


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A cell trains the runs of ``together`` proportions. A panel with no seeds is left out."""
    random = config.random
    for seed in _seeds(config, random):
        one = Random(random.samples, random.inputs, random.depth, random.sigma_x, seed)
        yield {"figure": "1a"}, {"run": one}
    for depth in config.contour.depths:
        yield {"figure": "1b"}, {"run": Contour(depth, config.contour.norms)}
    for figure in ("1c", "2a", "2b", "2c"):
        for run in _trained(config, figure):
            yield {"figure": figure}, {"run": run}
    edge = config.edge
    data = Data(edge.data, config.samples, edge.share, edge.seed, config.side)
    recipe = _recipe(config, "2d", edge.epochs[-1])
    yield (
        {"figure": "2d"},
        {"run": Edge(data, recipe, edge.fractions, edge.epochs, config.rtol)},
    )


def _trained(config: ConfigDict, figure: str) -> Iterator[Trained]:
    panel, seeds = config[RECIPES[figure][0]], _seeds(config, config[RECIPES[figure][0]])
    if not panel.shares or min(panel.epochs, panel.together) < 1 or panel.seeds < 0:
        msg = f"{RECIPES[figure][0]} needs shares, epochs and together from 1 on, seeds from 0 on"
        raise ValueError(msg)
    recipe = _recipe(config, figure, panel.epochs)
    for name in config.data if seeds else ():
        for first in range(0, len(panel.shares), panel.together):
            shares = panel.shares[first : first + panel.together]
            yield Trained(name, config.samples, config.side, shares, seeds, recipe, config.rtol)


def _seeds(config: ConfigDict, panel: ConfigDict) -> tuple[int, ...]:
    return tuple(range(config.first_seed, config.first_seed + panel.seeds))


def _recipe(config: ConfigDict, figure: str, epochs: int) -> Recipe:
    size = config.depth, config.width, config.sigma_x, config.start, config.rate
    return Recipe(*RECIPES[figure][1:], *size, epochs)


def sources(config: ConfigDict) -> list[str]:
    names = dict.fromkeys((*config.data, config.edge.data))
    size = f", grey, {config.side} x {config.side}" if config.side else ""
    return [
        draw(Data(name, config.samples, config.edge.share, 0, config.side)).source + size
        for name in names
    ]


EXPERIMENT = Experiment(
    "label_sharpness",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "data", "inputs", "outputs", "depth", "width", "seed"),
        *("measured", "error", "printed", "least", "samples", "share", "index", "norm"),
        *("epoch", "rate", "fraction", "loss", "floor"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="measured",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
