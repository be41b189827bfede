"""kappa and the first bound of Lemma 2 while a linear network trains: figure 10.

python -m experiments.training_path --config=configs/training_path.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import jax
import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.claims.training_path import CLAIMS
from experiments.shared.linear_network import kappa_fields
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers.training import linear_descent
from gnjax.papers.training import minibatch as training
from gnjax.papers.training.recipe import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields
from sweeps.storage.checkpoint import Checkpoint, resumed

OUTPUTS = 10
LOSSES = 150  # besides the stops, at most so many epochs have a row, which shows their loss
STARTS: Mapping[str, tuple[str, dict[str, float]]] = {
    "kaiming_2": ("kaiming_normal", {"gain": 2.0}),  # the initialiser of PyTorch, as Appendix I
    "kaiming_1": ("kaiming_normal", {"gain": 1.0}),  # the variance of Appendix G
    "pytorch": ("pytorch_default", {}),
    "xavier": ("xavier_normal", {}),
}
"""How the weights are drawn: an initialiser and its options."""


@dataclass(frozen=True)
class Config:
    """The settings of figure 10; kappa is measured at ``stops`` epochs, closer at the start."""

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    side: int
    depth: int
    width: int
    starts: tuple[str, ...]
    seeds: int
    first_seed: int
    epochs: int
    stops: int
    rtol: float
    dtype: str  # of the training; spectra are always in float64
    recipe: Recipe

    def __post_init__(self) -> None:
        unknown = set(self.starts) - set(STARTS)
        if unknown:
            msg = f"starts are {', '.join(STARTS)}, got {', '.join(sorted(unknown))}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One network that trains."""

    data: str
    samples: int
    data_seed: int
    side: int
    depth: int
    width: int
    start: str
    seed: int
    epochs: int
    stops: int
    rtol: float
    dtype: str
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """One network after one epoch; where kappa was not ``measured``, its columns are empty."""

    start: str
    seed: int
    epoch: int
    measured: bool
    depth: int
    width: int
    inputs: int
    outputs: int
    samples: int
    data: str
    rate: float
    batch: int
    dtype: str  # of the training
    loss: float | None  # the mean over the steps of this epoch
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    evidence: str | None  # the weakest kind that the interval rests on
    failure: float | None
    resolved: bool
    method: str | None
    rank: int | None
    lambda_max: float | None
    lambda_min: float | None
    bound_convex: float | None


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        copy_fields(Cell, config, start=start, seed=seed)
        for start in config.starts
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    )


def cost(cell: Cell) -> float:
    """Multiplications in the epochs, in which the weights are multiplied from the outputs on."""
    steps = cell.epochs * -(-cell.samples // cell.recipe.batch)
    return float(steps * OUTPUTS * cell.width * (3 * cell.width + 3 * cell.side**2))


@cache
def _whitened(data: str, samples: int, seed: int, side: int) -> tuple[NDArray, NDArray, str]:
    """Inputs whitened on these samples, so that Sigma = I, labels, and where they came from."""
    loaded = datasets.load(data, samples=samples, seed=seed)
    small = datasets.downsample(loaded.inputs, loaded.shape, (side, side))
    white = datasets.whiten(small)
    source = (
        f"{loaded.source}, downsampled to {side} x {side}, whitened on these samples: rank "
        f"{white.rank}"
    )
    return white.inputs, loaded.labels, source


def stops(epochs: int, count: int) -> list[int]:
    """0 and, evenly on a logarithmic scale, at most ``count`` epochs from 1 to the last."""
    return [0, *np.unique(np.geomspace(1, epochs, count).round().astype(int)).tolist()]


def measure(cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
    """The loss at some epochs, and at every stop kappa and the bound."""
    inputs, labels, _ = _whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    targets = datasets.one_hot(labels, OUTPUTS)
    model = _apply, initial_weights(cell, inputs.shape[1])
    problem, start = training.begin(
        model, inputs, targets, cell.recipe, jax.random.key(cell.seed), dtype=cell.dtype
    )
    kept = set(stops(cell.epochs, LOSSES)) | set(stops(cell.epochs, cell.stops))

    def step(state: training.State, stop: int) -> tuple[training.State, Measurement]:
        before = int(state.epoch)
        state, losses = training.train(problem, state, stop - before)
        of_epochs = enumerate(losses.tolist(), start=before + 1)
        return state, {
            "epoch": stop,
            "losses": [[epoch, loss] for epoch, loss in of_epochs if epoch in kept],
            **_kappa_and_bound(state.params, cell),
        }

    records = resumed(checkpoint, start, stops(cell.epochs, cell.stops), step)
    return {"inputs": inputs.shape[1], "records": records}


def _apply(weights: linear_descent.Weights, x: jax.Array) -> jax.Array:
    """W_L .. W_1 x. The weights are multiplied first, from W_L on, which has few rows.

    So does the derivative. A step costs a twentieth of what it costs to apply layer after layer.
    """
    return x @ linear_descent.product(weights).T


def initial_weights(cell: Cell, inputs: int) -> list[jax.Array]:
    """W_1 .. W_L."""
    name, options = STARTS[cell.start]
    widths = (inputs, *[cell.width] * (cell.depth - 1), OUTPUTS)
    return gnjax.initializers.chain(jax.random.key(cell.seed), widths, name, **options)


def _kappa_and_bound(weights: linear_descent.Weights, cell: Cell) -> Measurement:
    """kappa and the first bound of Lemma 2; the data are whitened, so that Sigma = I."""
    op = papers.linear_gauss_newton([np.asarray(w, np.float64) for w in weights])
    kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
    return {**kappa_fields(kappa), "bound_convex": papers.bounds.of_operator(op).convex}


_NUMBERS: tuple[str, ...] = ("kappa", "kappa_low", "kappa_high", "evidence", "failure", "resolved")
_NUMBERS += ("method", "rank", "lambda_max", "lambda_min", "bound_convex")
_UNMEASURED: Measurement = dict.fromkeys(_NUMBERS) | {"resolved": False}


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        row
        for cell in cells(config)
        if cell in measured
        for row in _rows_of_cell(cell, measured[cell])
    )


def _rows_of_cell(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    """Epoch 0, then every epoch whose loss was kept. kappa is there at the stops alone."""
    for record in measurement["records"]:
        for epoch, loss in record["losses"] or [[0, None]]:
            stop = epoch == record["epoch"]
            found = {name: record[name] for name in _NUMBERS} if stop else _UNMEASURED
            yield copy_fields(
                Row,
                cell,
                epoch=epoch,
                measured=stop,
                inputs=measurement["inputs"],
                outputs=OUTPUTS,
                data=f"{cell.data}, downsampled and whitened",
                rate=cell.recipe.rate,
                batch=cell.recipe.batch,
                loss=loss,
                **found,
            )


def sources(config: Config) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    return [_whitened(config.data, config.samples, config.data_seed, config.side)[2]]


EXPERIMENT = Experiment(
    "training_path",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['kappa']:.4g}",
    resumes=True,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
