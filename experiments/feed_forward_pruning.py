"""kappa of a feed-forward network that was pruned at initialisation, while it trains: figure 17.

python -m experiments.feed_forward_pruning --config=configs/feed_forward_pruning.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import jax
from flax import nnx
from ml_collections import ConfigDict

import gnjax
from experiments.claims.feed_forward_pruning import CLAIMS
from experiments.shared import published_data
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.pruned_networks import check_run
from experiments.shared.relu_networks import relu_network
from gnjax import data as datasets
from gnjax.papers.training import Recipe, pruning
from gnjax.papers.training import minibatch as training
from sweeps import command_line
from sweeps.experiment import Experiment

Scaling = Literal["unit", "published", "standardised"]
SCALINGS = {
    "unit": lambda images: images,
    "published": published_data.over_channel_deviations,
    "standardised": published_data.standardised,
}


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of every run the losses of each network, and then kappa: one cell for each stop.

    ``columns`` are the columns of J, those of all parameters or those that pruning has left. They
    are the same where nothing is pruned. Of the first ``seeds`` networks kappa is measured in
    training, of the first ``losses`` the losses alone, and of ``starts`` kappa before training.
    """
    for name in config.runs.split():
        run = config[name]
        _check(name, run)
        shared = {key: run[key] for key in ("scaling", "initializer", "biases", "recipe")}
        for pruned in run.rates:
            for index in range(max(run.seeds, run.losses, run.starts)):
                network = {**shared, "pruned": pruned, "seed": config.first_seed + index}
                labels = {"run": name, "of": None}
                if index < max(run.seeds, run.losses):
                    yield labels, {**network, "columns": "none", "epochs": run.stops[-1]}
                stops = run.stops if index < run.seeds else (0,) if index < run.starts else ()
                for columns in run.columns.split():
                    same = columns == "left" and not pruned
                    for stop in stops:
                        kernel = {"columns": "all" if same else columns, "epochs": stop}
                        yield {**labels, "of": columns}, {**network, **kernel}


def _check(name: str, run: ConfigDict) -> None:
    check_run(name, run)
    unknown = set(run.columns.split()) - {"all", "left"}
    if unknown:
        msg = f"columns of {name} are 'all' or 'left', got {', '.join(sorted(unknown))}"
        raise ValueError(msg)


def measure(
    data: str,
    samples: int,
    step: int,
    hidden: tuple[int, ...],
    scaling: Scaling,
    initializer: str,
    biases: str,
    pruned: float,
    seed: int,
    recipe: Recipe,
    columns: Literal["none", "all", "left"],
    epochs: int,
) -> list[dict[str, Any]]:
    """Prune every tensor by magnitude, train, and measure the losses, or kappa at the end.

    Every epoch takes the samples in their order, in float64. With ``columns`` "none" there is a row
    for every epoch, with the mean loss of its steps and the share of all samples that are
    classified rightly after it. Else there is one row with kappa of J J^T, for J of ``columns``.
    """
    images = _images(data, samples, step, scaling)
    x, labels = images.inputs, images.labels
    model = relu_network((x.shape[1], *hidden, images.classes), initializer, biases, seed)
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), pruned, vectors=True, count=int)
    problem, state = training.begin(model, x, labels, recipe, None, mask=mask, dtype="float64")
    columns_of_all = {
        "data": data,
        "inputs": x.shape[1],
        "outputs": images.classes,
        "depth": len(hidden) + 1,
        "width": hidden[0],
        "parameters": pruning.remaining(mask),
        "training_loss": recipe.loss,
        "loss": None,  # the table has the keywords too, and in a recipe ``loss`` is a name
        "accuracy": None,
        **dict.fromkeys(CERTIFICATE),
        "resolved": False,
    }
    if columns == "none":
        return [{**columns_of_all, **row} for row in _fits(problem, state, epochs)]
    state, _ = training.train(problem, state, epochs)
    net = training.trained(model, state)
    kept = mask if columns == "left" else None
    kappa = gnjax.condition_number(gnjax.ntk(net, x, mask=kept), method="inverse")
    return [{**columns_of_all, "epoch": epochs, "measured": True, **certificate(kappa)}]


@cache
def _images(data: str, samples: int, step: int, scaling: str) -> datasets.Dataset:
    """The first images of the file, at this scaling."""
    return SCALINGS[scaling](published_data.first_images(data, samples, step))


def _fits(
    problem: training.TrainingProblem, state: training.State, epochs: int
) -> Iterator[dict[str, Any]]:
    """The loss and the accuracy at the start and after every epoch."""
    yield {"epoch": 0, "measured": False, "accuracy": float(_accuracy(problem, state))}
    for epoch in range(1, epochs + 1):
        state, losses = training.train(problem, state, 1)
        accuracy = float(_accuracy(problem, state))
        yield {"epoch": epoch, "measured": False, "loss": float(losses[0]), "accuracy": accuracy}


@jax.jit
def _accuracy(problem: training.TrainingProblem, state: training.State) -> jax.Array:
    """The share of all samples whose largest output is that of their label."""
    outputs, _ = problem.forward(state.params, state.statistics, problem.x)
    labels = problem.y if problem.y.ndim == 1 else problem.y.argmax(1)
    return (outputs.argmax(1) == labels).mean(dtype=outputs.dtype)


def cost(samples: int, step: int, hidden: tuple[int, ...], columns: str, epochs: int) -> float:
    """Multiplications: three passes for each epoch, and the kernel with its two factorisations."""
    width = max(hidden)
    passes = 3.0 * epochs * samples * width * (3072 / step**2 + len(hidden) * width)
    rows = 10.0 * samples
    kernel = rows**2 * (rows / 3 + 20 * width)
    return passes + (kernel if columns != "none" else 0.0)


def shape(samples: int, step: int, hidden: tuple[int, ...], recipe: Recipe) -> tuple[Any, ...]:
    return samples, step, hidden, recipe


def sources(config: ConfigDict) -> list[str]:
    scalings = dict.fromkeys(config[name].scaling for name in config.runs.split())
    found = [_images(config.data, config.samples, config.step, scaling) for scaling in scalings]
    return [f"{images.source}: n={config.samples}, d={images.inputs.shape[1]}" for images in found]


EXPERIMENT = Experiment(
    "feed_forward_pruning",
    settings,
    measure,
    cost,
    columns=(
        *("run", "of", "pruned", "seed", "epoch", "measured", "loss", "accuracy"),
        *CERTIFICATE,
        *("samples", "inputs", "outputs", "depth", "width", "parameters", "data", "scaling"),
        *("initializer", "biases", "training_loss", "rate", "batch"),
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
