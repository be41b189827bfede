"""kappa and the first bound of Lemma 2 while a linear network trains: figure 10.

python -m experiments.training_path --config=configs/training_path.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.training_path import CLAIMS
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.published_data import first_images, orthonormal, without_channel_means
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers.training import Recipe, linear_descent
from gnjax.papers.training import minibatch as training
from sweeps import command_line
from sweeps.experiment import Experiment
from sweeps.storage.checkpoint import Checkpoint, resumed

OUTPUTS = 10
LOSSES = 150  # besides the stops, at most so many epochs have a row, which shows their loss


@dataclass(frozen=True)
class Reading:
    """How the weights are drawn, how large the whitened inputs are, and in which order they come.

    Attributes:
      start: the initialiser of the weights.
      gain: its gain, where it has one.
      unit: whether X^T X = I, as U V^T has it; else Sigma = X^T X / n is the identity.
      centred: whether the mean of each colour is subtracted before whitening.
      ordered: whether mini-batches are the samples as they stand; else they are drawn.
    """

    start: str
    gain: float | None = None
    unit: bool = True
    centred: bool = False
    ordered: bool = True


READINGS = {
    "published": Reading("xavier_normal", centred=True),
    "published_raw": Reading("xavier_normal"),
    "sigma_xavier": Reading("xavier_normal", unit=False, ordered=False),
    "sigma_kaiming": Reading("kaiming_normal", gain=2.0, unit=False, ordered=False),
}
"""The settings of the published code of paper A, with colours less their means and as they are; and
with n times larger X^T X, where the network has to shrink, from two starts."""


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    unknown = set(config.readings) - set(READINGS)
    if unknown:
        msg = f"readings are {', '.join(READINGS)}, got {', '.join(sorted(unknown))}"
        raise ValueError(msg)
    kept = sorted({*stops(config.epochs, config.stops), *config.printed_stops})
    for name, seeds in config.readings.items():
        for seed in range(config.first_seed, config.first_seed + seeds):
            yield {"reading": name}, dict(reading=READINGS[name], seed=seed, stops=tuple(kept))


def stops(epochs: int, count: int) -> list[int]:
    """0 and, evenly on a logarithmic scale, at most ``count`` epochs from 1 to the last."""
    return [0, *np.unique(np.geomspace(1, epochs, count).round().astype(int)).tolist()]


def measure(
    data: str,
    samples: int,  # the first of the file
    step: int,  # every so many-th pixel
    depth: int,
    width: int,
    reading: Reading,
    seed: int,
    stops: tuple[int, ...],  # the epochs at which kappa is measured; the last ends the training
    rtol: float,
    dtype: str,  # of the training; spectra are always in float64
    recipe: Recipe,
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """A row with the loss at some epochs; at every stop it has kappa and the bound, too."""
    inputs, labels, _ = whitened(data, samples, step, reading.centred, reading.unit)
    weights = initial_weights(reading, (inputs.shape[1], *[width] * (depth - 1), OUTPUTS), seed)
    order = None if reading.ordered else jax.random.key(seed)
    targets = datasets.one_hot(labels, OUTPUTS)
    problem, start = training.begin((_apply, weights), inputs, targets, recipe, order, dtype=dtype)
    kept = set(stops) | set(_kept_losses(stops[-1]))

    def step_to(state: training.State, stop: int) -> tuple[training.State, dict[str, Any]]:
        before = int(state.epoch)
        state, losses = training.train(problem, state, stop - before)
        of_epochs = [(e, loss) for e, loss in enumerate(losses.tolist(), before + 1) if e in kept]
        last = {"epoch": stop, "loss": losses[-1].item() if len(losses) else None}
        between = [{"epoch": e, "loss": loss} for e, loss in of_epochs if e != stop]
        return state, {"rows": [*between, {**last, **kappa_and_bound(state.params, rtol, seed)}]}

    records = resumed(checkpoint, start, stops, step_to)
    size = "X^T X = I" if reading.unit else "Sigma = I"
    of_all = {
        "data": f"{data}, whitened to {size}",
        "inputs": inputs.shape[1],
        "outputs": OUTPUTS,
    }
    return [{**UNMEASURED, **of_all, **row} for record in records for row in record["rows"]]


def _kept_losses(epochs: int) -> list[int]:
    return stops(epochs, LOSSES)


@cache
def whitened(
    data: str, samples: int, step: int, centred: bool, unit: bool
) -> tuple[NDArray[np.float64], NDArray, str]:
    """The first images, strided and whitened to U V^T, times sqrt(n) for Sigma = I; their labels;
    and where they came from."""
    images = first_images(data, samples, step)
    if centred:
        images = without_channel_means(images)
    inputs = orthonormal(images.inputs)
    scale = 1.0 if unit else math.sqrt(len(inputs))
    size = "X^T X = I" if unit else "Sigma = I"
    return scale * inputs, images.labels, f"{images.source}, whitened to {size}"


def _apply(weights: linear_descent.Weights, x: jax.Array) -> jax.Array:
    """W_L .. W_1 x. The weights are multiplied first, from W_L on, which has few rows.

    So does the derivative. A step costs a twentieth of what it costs to apply layer after layer.
    """
    return x @ linear_descent.end_to_end(weights).T


def initial_weights(reading: Reading, widths: tuple[int, ...], seed: int) -> list[jax.Array]:
    """W_1 .. W_L."""
    options = {} if reading.gain is None else {"gain": reading.gain}
    return gnjax.initializers.chain(jax.random.key(seed), widths, reading.start, **options)


def kappa_and_bound(weights: linear_descent.Weights, rtol: float, seed: int) -> dict[str, Any]:
    """kappa and both bounds of Lemma 2; Sigma is a multiple of I, on which none of them depends."""
    op = papers.linear_gauss_newton([np.asarray(w, np.float64) for w in weights])
    bounds = papers.bounds.of_operator(op)
    return {
        "measured": True,
        **certificate(gnjax.condition_number(op, rtol=rtol, seed=seed)),
        "bound_convex": bounds.convex,
        "bound_maximum": bounds.maximum,
    }


UNMEASURED: dict[str, Any] = dict.fromkeys((*CERTIFICATE, "bound_convex", "bound_maximum"))
UNMEASURED |= {"measured": False, "resolved": False}


def cost(samples: int, width: int, stops: tuple[int, ...], recipe: Recipe) -> float:
    """Multiplications in the epochs, in which the weights are multiplied from the outputs on."""
    return float(stops[-1] * -(-samples // recipe.batch) * OUTPUTS * 3 * width**2)


def sources(config: ConfigDict) -> list[str]:
    kinds = dict.fromkeys((READINGS[n].centred, READINGS[n].unit) for n in config.readings)
    return [whitened(config.data, config.samples, config.step, *kind)[2] for kind in kinds]


EXPERIMENT = Experiment(
    "training_path",
    settings,
    measure,
    cost,
    columns=(
        *("reading", "start", "seed", "epoch", "measured", "depth", "width", "inputs", "outputs"),
        *("samples", "data", "rate", "batch", "dtype", "loss"),
        *CERTIFICATE,
        *("bound_convex", "bound_maximum"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
