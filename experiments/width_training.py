"""kappa of one-hidden ReLU networks of growing width while they train: figures 9 and 18.

python -m experiments.width_training --config=configs/width_training.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import gnjax
from experiments.claims.width_training import CLAIMS, FEWER
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.rank_rules import DEFAULT, kappa_at, ranks
from experiments.shared.relu_networks import relu_network
from gnjax import data as datasets
from gnjax.models import MLP
from gnjax.papers.training import Recipe
from gnjax.papers.training import minibatch as training
from sweeps import command_line
from sweeps.experiment import Experiment
from sweeps.storage.checkpoint import Checkpoint, resumed

POINTS = 300  # of a spectrum that the table keeps, beside the ranks of the rules
LIMITS = gnjax.Limits(factor_bytes=1e9)  # singular values of a larger J take five times as long


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Figure 18: every width, seed and reading. Figure 9: one width, before training and after."""
    for reading in config.readings.split():
        chosen = config[reading]
        for width in config.widths:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                yield (
                    {"figure": "18", "reading": reading},
                    {**_network(config, chosen, width), "seed": seed, "every": config.every},
                )
        for seed in range(config.first_seed, config.first_seed + config.spectrum_seeds):
            yield (
                {"figure": "9", "reading": reading},
                {**_network(config, chosen, config.spectrum_width), "seed": seed, "every": 0},
            )


def _network(config: ConfigDict, reading: ConfigDict, width: int) -> dict[str, Any]:
    """The settings of a network: its learning rate is by its width, its loss by the reading."""
    rate = config.narrow_rate if width in config.narrow_widths else config.rate
    recipe = Recipe("sgd", rate, config.batch, reading.loss, scale=reading.scale)
    chosen = {name: reading[name] for name in ("biases", "shuffled", "data_seed", "dtype")}
    return {**chosen, "width": width, "recipe": recipe}


def measure(
    data: str,
    samples: int,
    data_seed: int,  # -1: the first ones of the file
    width: int,
    initializer: str,
    biases: str,
    seed: int,
    recipe: Recipe,
    shuffled: bool,
    dtype: str,  # of the training; spectra are always in float64
    epochs: int,
    every: int,  # epochs between two kappas; 0: spectra, before training and after, in their place
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """The loss of every epoch with kappa at every stop, or two spectra, of J J^T / n."""
    images = _images(data, samples, data_seed)
    x, labels = images.inputs, images.labels
    model = relu_network((x.shape[1], width, images.classes), initializer, biases, seed)
    order = jax.random.key(seed) if shuffled else None
    problem, start = training.begin(model, x, labels, recipe, order, dtype=dtype)
    shared = {
        "inputs": x.shape[1],
        "outputs": images.classes,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(start.params)),
        "training_loss": recipe.loss,
        "loss": None,  # the table has the keywords too, and in a recipe ``loss`` is a name
        **dict.fromkeys((*CERTIFICATE, *SPECTRAL)),
        "resolved": False,
    }

    def step(state: training.State, stop: int) -> tuple[training.State, dict[str, Any]]:
        state, losses = training.train(problem, state, stop - int(state.epoch))
        net = training.trained(model, state)
        if not every:
            return state, {"rows": [{"epoch": stop, **row} for row in _spectrum(net, x)]}
        return state, {"rows": _path(losses, stop, _kappa(net, x, seed))}

    found = resumed(checkpoint, start, stops(epochs, every or epochs), step)
    return [{**shared, "measured": True, **row} for record in found for row in record["rows"]]


@cache
def _images(name: str, samples: int, seed: int) -> datasets.Dataset:
    """Pixels between 0 and 1, not whitened."""
    if seed < 0:
        return datasets.load(name, first=samples)
    return datasets.load(name, samples=samples, seed=seed)


def stops(epochs: int, every: int) -> list[int]:
    """The epochs at which kappa is measured: 0, every, 2 every .. and the last."""
    return [*range(0, epochs, every), epochs]


def _path(losses: np.ndarray, stop: int, kappa: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each epoch up to a stop; the last one has kappa, and epoch 0 no loss."""
    begun = stop - len(losses)
    rows: list[dict[str, Any]] = [
        {"epoch": begun + at, "loss": float(loss), "measured": False}
        for at, loss in enumerate(losses, start=1)
    ]
    return [*rows[:-1], {**(rows[-1] if rows else {"epoch": stop}), "measured": True, **kappa}]


def _kappa(net: MLP, x: np.ndarray, seed: int) -> dict[str, Any]:
    """kappa of the smaller of J J^T / n and J^T J / n, which have the same non-zero eigenvalues.

    J^T J is singular whatever the data are (scale the weights into a ReLU unit and those out of it
    inversely, and f stays), and singular values tell its rank where their squares would hide it.
    ``kappa_numerical`` is kappa at the rank that matrix_rank counts in float64. Where kappa is
    known and far below 1 / tolerance that is kappa itself; else all eigenvalues tell it.
    """
    op = gnjax.gauss_newton(net, x, side="auto")
    assert isinstance(op, gnjax.operators.NetworkGram)
    method = "factored" if op.side == "parameters" else "inverse"
    kappa = gnjax.condition_number(op, method=method, seed=seed)
    rows = len(x) * net.widths[-1]
    if kappa.bounded and kappa.at_rank[1] * rows * np.finfo(np.float64).eps < 1:
        rank, ends = kappa.rank, (kappa.value, *kappa.at_rank)
    else:
        spectrum = gnjax.eigenvalues(op, limits=LIMITS)
        rank = ranks(_padded(spectrum.values, rows))[DEFAULT]
        ends = kappa_at(spectrum, rank)
    named = dict(zip(NUMERICAL, (*ends, rank), strict=True))
    return {**certificate(kappa), **named}


NUMERICAL = ("kappa_numerical", "kappa_numerical_low", "kappa_numerical_high", "rank_numerical")
SPECTRAL = (*NUMERICAL, "assumed_rank", "rule", "eigenvalue", "eigenvalue_error")


def _padded(values: np.ndarray, rows: int) -> np.ndarray:
    """The eigenvalues of J J^T / n, which are those of J^T J / n and zeros, the largest first."""
    return np.append(values, np.zeros(max(rows - len(values), 0)))


def _spectrum(net: MLP, x: np.ndarray) -> list[dict[str, Any]]:
    """Eigenvalues of J J^T / n with the kappa that each would give as the last one that counts.

    Those at the ranks of the rules and at a tenth fewer, and some at equal distances.
    """
    op = gnjax.gauss_newton(net, x, side="outputs")
    spectrum = gnjax.eigenvalues(op, limits=LIMITS)
    by_rule = ranks(spectrum.values)
    near = [max(int(FEWER * rank), 1) for rank in by_rule.values()]
    spaced = np.linspace(1, len(spectrum.values), min(POINTS, len(spectrum.values)))
    kept = sorted({*spaced.astype(int).tolist(), *by_rule.values(), *near})
    return [
        {
            "assumed_rank": rank,
            "rule": ", ".join(name for name, found in by_rule.items() if found == rank) or None,
            "eigenvalue": spectrum.values[rank - 1],
            "eigenvalue_error": spectrum.errors[rank - 1],
            **dict(zip(CERTIFICATE, kappa_at(spectrum, rank), strict=False)),
            "evidence": spectrum.certificate.kind,
            "failure": spectrum.certificate.failure,
            "resolved": bool(spectrum.values[rank - 1] > spectrum.errors[rank - 1]),
            "rank": int((spectrum.values > spectrum.errors).sum()),
        }
        for rank in kept
    ]


def cost(samples: int, width: int, epochs: int, every: int) -> float:
    """Multiplications in forming and factorising the kernel, or in all its eigenvalues, by stop."""
    size = 10.0 * samples
    work = size**3 / 3 + size**2 * width
    return 40 * work if not every else (epochs / every + 1) * work


def shape(samples: int, width: int, biases: str, recipe: Recipe, shuffled: bool) -> tuple[Any, ...]:
    return samples, width, biases, recipe, shuffled


def sources(config: ConfigDict) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    seeds = dict.fromkeys(config[reading].data_seed for reading in config.readings.split())
    found = [_images(config.data, config.samples, seed) for seed in seeds]
    return [
        f"{images.source}, not whitened: n={config.samples}, d={images.inputs.shape[1]}"
        for images in found
    ]


EXPERIMENT = Experiment(
    "width_training",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "reading", "width", "seed", "epoch", "measured"),
        *("samples", "inputs", "outputs", "parameters", "data"),
        *("training_loss", "rate", "batch", "biases", "shuffled", "dtype", "loss"),
        *CERTIFICATE,
        *SPECTRAL,
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
