"""The sharpness of linear networks over the number of samples, and its peak: figure C5.

python -m experiments.data_sharpness --config=configs/data_sharpness.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.claims.data_sharpness import CLAIMS, FITTED
from experiments.shared import label_training
from experiments.shared.label_training import Recipe
from experiments.shared.linear_training import Data, Drawn, draw, draws
from gnjax import data as datasets
from sweeps import command_line
from sweeps.experiment import Experiment

PANELS = {"a": "over_samples", "b": "along_training"}


@dataclass(frozen=True)
class Cell:
    """Runs that are trained together: every share of class 0 with every seed.

    The sharpness is measured after each of ``epochs``.
    """

    panel: str
    data: str
    samples: int
    side: int  # of the grey, downsampled image, 0 for the image as it is
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    epochs: tuple[int, ...]
    rtol: float

    def runs(self) -> list[Data]:
        return draws(self.data, self.samples, self.shares, self.seeds, self.side)


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Balanced networks over n (panel a), and sharpness along training over the share (b).

    There are runs on all data and numbers of samples, from every initialiser.
    """
    size = {name: config[name] for name in ("depth", "width", "sigma_x", "start", "rate")}
    for panel, name in PANELS.items():
        chosen = config[name]
        seeds = tuple(range(config.first_seed, config.first_seed + chosen.seeds))
        shared = {key: chosen[key] for key in ("side", "shares", "epochs")}
        for data in chosen.data:
            for initializer in chosen.initializers:
                recipe = Recipe(
                    inputs="orthogonalised",
                    initializer=initializer,
                    activation="linear",
                    epochs=chosen.epochs[-1],
                    **size,
                )
                for samples in chosen.samples:
                    own = {"data": data, "samples": samples, "seeds": seeds, "recipe": recipe}
                    yield {}, {"panel": panel, **shared, **own}


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


def measure(cell: Cell) -> list[dict[str, Any]]:
    """The largest eigenvalue of the Hessian of every run at every epoch."""
    runs = cell.runs()
    problems = [label_training.problem_on(drawn(data), cell.recipe, data.seed) for data in runs]
    paths = label_training.train(problems, cell.recipe, cell.epochs)
    return [
        {**label_training.row(problem, path, index, data, cell.recipe, cell.rtol), "epoch": epoch}
        for data, problem, path in zip(runs, problems, paths, strict=True)
        for index, epoch in enumerate(cell.epochs)
    ]


def sources(config: ConfigDict) -> list[str]:
    found = []
    for panel in (config[name] for name in PANELS.values()):
        for name in panel.data:
            data = Data(name, panel.samples[-1], panel.shares[0], 0, panel.side)
            size = f"{panel.side} x {panel.side}" if panel.side else "full size"
            found.append(f"{drawn(data).source}, {size}")
    return list(dict.fromkeys(found))


EXPERIMENT = Experiment(
    "data_sharpness",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "data", "inputs", "outputs", "depth", "width", "initializer", "samples", "seed"),
        *("share", "epoch", "measured", "error", "printed", "least", "loss", "floor"),
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
    watch="measured",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
