"""kappa of one-hidden ReLU networks of growing width while they train: figures 9 and 18.

python -m experiments.width_training --config=configs/width_training.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import jax
import numpy as np

import gnjax
from experiments.claims.width_training import CLAIMS
from experiments.shared.linear_network import interval_fields
from gnjax import data as datasets
from gnjax import papers
from gnjax.models import MLP
from gnjax.papers.training import minibatch as training
from gnjax.papers.training.recipe import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields
from sweeps.storage.checkpoint import Checkpoint, resumed

SINGLE = float(np.finfo(np.float32).eps)  # of the numbers in which PyTorch computes


@dataclass(frozen=True)
class Config:
    """The settings of figures 9 and 18; the paper is silent about the loss.

    ``narrow_rate`` is the learning rate of ``narrow_widths``, ``recipe.rate`` that of the others.
    kappa is measured once in ``every`` epochs. The whole spectrum is measured for
    ``spectrum_width`` alone, at epoch 0 and after the last.
    """

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    widths: tuple[int, ...]
    spectrum_width: int
    narrow_widths: tuple[int, ...]
    narrow_rate: float
    initializer: str
    bias: bool
    first_seed: int
    seeds: int
    epochs: int
    every: int
    dtype: str  # of the training; spectra are always in float64
    recipe: Recipe


@dataclass(frozen=True)
class Cell:
    """Networks of one width, one for each seed, that train side by side."""

    data: str
    samples: int
    data_seed: int
    width: int
    spectrum: bool
    initializer: str
    bias: bool
    first_seed: int
    seeds: int
    epochs: int
    every: int
    dtype: str
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """Figure 18: one network after one epoch; where kappa was not ``measured``, it is empty.
    Figure 9: one eigenvalue, and kappa if it were the smallest, with ``assumed_rank`` the rank.
    """

    figure: int
    width: int
    seed: int
    epoch: int
    measured: bool
    samples: int
    inputs: int
    outputs: int
    parameters: int
    data: str
    training_loss: str
    rate: float
    batch: int
    dtype: str  # of the training
    loss: float | None = None  # the mean over the steps of this epoch
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    evidence: str | None = None  # the weakest kind that the interval rests on
    failure: float | None = None
    resolved: bool = False
    rank: int | None = None  # the number of non-zero eigenvalues, as measured
    rank_source: str = ""
    assumed_rank: int | None = None
    counted: bool = False  # among those that the numerical rank of single precision counts
    eigenvalue: float | None = None
    eigenvalue_error: float | None = None


def cells(config: Config) -> tuple[Cell, ...]:
    """The widest first."""
    found = [
        copy_fields(
            Cell,
            config,
            width=width,
            spectrum=width == config.spectrum_width,
            recipe=_recipe(config, width),
        )
        for width in config.widths
    ]
    return tuple(sorted(found, key=cost, reverse=True))


def _recipe(config: Config, width: int) -> Recipe:
    narrow = width in config.narrow_widths
    return replace(config.recipe, rate=config.narrow_rate) if narrow else config.recipe


def cost(cell: Cell) -> float:
    """Multiplications in forming and factorising the kernel, once for every kappa."""
    size = 10.0 * cell.samples
    measured = cell.seeds * (cell.epochs / cell.every + 1 + 20 * cell.spectrum)
    return measured * (size**3 / 3 + size**2 * cell.width)


@cache
def _data(name: str, samples: int, seed: int) -> datasets.Dataset:
    """Pixels between 0 and 1, not whitened."""
    return datasets.load(name, samples=samples, seed=seed)


def measure(cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
    """Losses of every epoch, kappa at every stop, and spectra at the first and the last."""
    data = _data(cell.data, cell.samples, cell.data_seed)
    seeds = range(cell.first_seed, cell.first_seed + cell.seeds)
    models = [_model(cell, data, seed) for seed in seeds]
    begun = [
        training.begin(
            model, data.inputs, data.labels, cell.recipe, jax.random.key(seed), dtype=cell.dtype
        )
        for seed, model in zip(seeds, models, strict=True)
    ]
    problem = begun[0][0]

    def step(state: training.State, stop: int) -> tuple[training.State, Measurement]:
        state, losses = training.train(problem, state, stop - int(state.epoch[0]))
        nets = [training.trained(m, training.member(state, i)) for i, m in enumerate(models)]
        record = {
            "epoch": stop,
            "losses": losses.tolist(),
            "seeds": [_kappa(net, data, seed) for seed, net in zip(seeds, nets, strict=True)],
        }
        if cell.spectrum and stop in (0, cell.epochs):
            record["spectra"] = [_spectrum(net, data) for net in nets]
        return state, record

    start = training.stack([state for _, state in begun])
    records = resumed(checkpoint, start, stops(cell.epochs, cell.every), step)
    return {"inputs": data.inputs.shape[1], "outputs": data.classes, "records": records}


def stops(epochs: int, every: int) -> list[int]:
    """The epochs at which kappa is measured: 0, every, 2 every .. and the last."""
    return [*range(0, epochs, every), epochs]


def _model(cell: Cell, data: datasets.Dataset, seed: int) -> MLP:
    widths = (data.inputs.shape[1], cell.width, data.classes)
    key = jax.random.key(seed)
    return MLP(widths, bias=cell.bias, initializer=cell.initializer, key=key)


def _kappa(net: MLP, data: datasets.Dataset, seed: int) -> Measurement:
    """kappa of the smaller of J J^T / n and J^T J / n, which have the same non-zero eigenvalues.

    J^T J is singular whatever the data are (scale the weights into a ReLU unit and those out of it
    inversely, and f stays), and singular values tell its rank where their squares would hide it.
    """
    op = gnjax.gauss_newton(net, data.inputs, side="auto")
    assert isinstance(op, gnjax.operators.NetworkGram)
    method = "factored" if op.side == "parameters" else "inverse"
    kappa = gnjax.condition_number(op, method=method, seed=seed)
    return {**interval_fields(kappa), "rank_source": kappa.rank_source}


def _spectrum(net: MLP, data: datasets.Dataset) -> Measurement:
    """Every eigenvalue, by singular values of J, and kappa at every rank one might assume."""
    spectrum = gnjax.eigenvalues(gnjax.gauss_newton(net, data.inputs, side="auto"))
    found = papers.rank_sensitivity(spectrum)
    return {
        "rank": found.floor_rank,
        "eigenvalue": found.values.tolist(),
        "eigenvalue_error": found.errors.tolist(),
        "evidence": spectrum.certificate.kind,
        "failure": spectrum.certificate.failure,
        "kappa": found.kappa.tolist(),
        "kappa_low": found.low.tolist(),
        "kappa_high": found.high.tolist(),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    done = sorted((cell for cell in cells(config) if cell in measured), key=lambda cell: cell.width)
    paths = [row for cell in done for row in _paths(cell, measured[cell])]
    spectra = [row for cell in done for row in _eigenvalues(cell, measured[cell])]
    return (*paths, *spectra)


def _row(cell: Cell, measurement: Measurement, figure: int, seed: int) -> Row:
    """A row with the columns that all rows of a network share."""
    return copy_fields(
        Row,
        cell,
        figure=figure,
        seed=seed,
        epoch=0,
        measured=True,
        inputs=measurement["inputs"],
        outputs=measurement["outputs"],
        parameters=_parameters(cell, measurement["inputs"], measurement["outputs"]),
        training_loss=str(cell.recipe.loss),
        rate=cell.recipe.rate,
        batch=cell.recipe.batch,
    )


def _parameters(cell: Cell, inputs: int, outputs: int) -> int:
    return cell.width * (inputs + outputs) + cell.bias * (cell.width + outputs)


def _paths(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    """The rows of figure 18: epoch 0, then every epoch. kappa is there at the stops alone."""
    for index in range(cell.seeds):
        shared = _row(cell, measurement, 18, cell.first_seed + index)
        for record in measurement["records"]:
            losses = [of_seeds[index] for of_seeds in record["losses"]] or [None]
            for behind, loss in zip(reversed(range(len(losses))), losses, strict=True):
                found = {} if behind else record["seeds"][index]
                epoch = record["epoch"] - behind
                yield replace(shared, epoch=epoch, measured=not behind, loss=loss, **found)


def _eigenvalues(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    """The rows of figure 9: one for each eigenvalue of each network."""
    for record in measurement["records"]:
        for index, found in enumerate(record.get("spectra", [])):
            shared = _row(cell, measurement, 9, cell.first_seed + index)
            numerical_rank = _numerical_rank(found["kappa"])
            for at in range(len(found["eigenvalue"])):
                yield replace(
                    shared,
                    epoch=record["epoch"],
                    rank=found["rank"],
                    assumed_rank=at + 1,
                    counted=at < numerical_rank,
                    resolved=at < found["rank"],
                    eigenvalue=found["eigenvalue"][at],
                    eigenvalue_error=found["eigenvalue_error"][at],
                    kappa=found["kappa"][at],
                    kappa_low=found["kappa_low"][at],
                    kappa_high=found["kappa_high"][at],
                    evidence=found["evidence"],
                    failure=found["failure"],
                )


def _numerical_rank(kappa: Sequence[float]) -> int:
    """The rank that ``matrix_rank`` of PyTorch and NumPy gives in single precision.

    It counts the eigenvalues above N times the precision times the largest, of N eigenvalues; the
    entries of ``kappa`` are the largest eigenvalue over each.
    """
    least = 1 / (len(kappa) * SINGLE)
    return max(sum(each < least for each in kappa), 2)


def sources(config: Config) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    found = _data(config.data, config.samples, config.data_seed)
    return [f"{found.source}, not whitened: n={config.samples}, d={found.inputs.shape[1]}"]


EXPERIMENT = Experiment(
    "width_training",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['seeds'][0]['kappa']:.4g}",
    resumes=True,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
