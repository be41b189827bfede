"""kappa of G in the metrics of optimisers, and the steps that these need: figure T3.

python -m experiments.optimizer_metrics --config=configs/optimizer_metrics.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.optimizer_metrics import CLAIMS
from experiments.shared import metric_steps
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.language import described
from experiments.shared.metric_steps import METRICS, Memory
from experiments.shared.small_images import IMAGES, gpt_or_classifier
from gnjax.operators import NetworkGram
from sweeps import command_line
from sweeps.experiment import Experiment

KAPPA, RACE = "kappa", "race"
WITH_MOMENTUM = ("SGD", "Adam", "Shampoo")  # Gauss-Newton steps have none
SIDE = 4  # of the images
NETWORKS = ("gpt", "mlp", "mlp_many")


@dataclass(frozen=True)
class Race:
    """Full-batch runs to the loss ``target`` log k, from the same start for every metric.

    Each metric is run with all learning ``rates`` and all ``dampings``, which are shares of the
    mean eigenvalue of P. SGD, Adam and Shampoo run without momentum and with it. A run ends after
    ``limit`` steps.
    """

    target: float
    rates: tuple[float, ...]
    dampings: tuple[float, ...]
    momentum: float
    limit: int


@dataclass(frozen=True)
class Path:
    """The run of Adam along which kappa is measured: its rate, and the steps ``stops``.

    It has the race's momentum. P has the damping ``damping``; at the start, all of ``dampings``.
    """

    rate: float
    stops: tuple[int, ...]
    damping: float
    dampings: tuple[float, ...]


@dataclass(frozen=True)
class Cell:
    """A GPT on pieces of the text or an MLP on images, on samples drawn by the same seed."""

    network: str
    samples: int
    outputs: int
    length: int
    width: int
    depth: int
    race: Race
    path: Path
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The GPTs first, then MLPs on few and on many images."""
    for name in NETWORKS:
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {}, {"network": name, **config[name], "seed": seed}


def cost(cell: Cell) -> float:
    """Multiplications in forming G about 100 times, for the steps of the race and the kappas."""
    gpt = cell.network == "gpt"
    weights = (12.0 if gpt else 1.0) * cell.width**2 * cell.depth
    rows = cell.samples * cell.outputs
    return rows * weights * min(rows, weights) * 100


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The model at initialisation, its inputs and its labels."""
    return gpt_or_classifier(cell.network, cell, SIDE)


OF_KAPPA = {"momentum": 0.0, "steps": 0, "reached": True, "rate": None, "at_edge": False}
OF_RACE = {"step": 0, "evidence": "", "resolved": True, "method": "", "rank": 0}
"""What the columns of the other panel have in the rows of one."""


def measure(cell: Cell) -> list[dict[str, Any]]:
    """The certified kappas along Adam's run (``panel`` kappa), and the best rates (race).

    ``metric`` is a name in :data:`experiments.shared.metric_steps.METRICS`, ``damping`` is what is
    added to P over the mean eigenvalue of P, 0 for SGD, whose P is I, and ``share`` is p / (k n).
    kappa is of P^{-1/2} G P^{-1/2}, over its ``rank`` non-zero eigenvalues, at a ``step`` of Adam's
    run. ``target`` is the loss to reach as a share of log k, that of a uniform guess, and ``steps``
    the number that the best ``rate`` takes, of equal ones the largest; the limit where no rate has
    ``reached`` the loss. ``at_edge`` says whether it is the largest or the smallest that was tried.
    """
    model, x, y = made(cell)
    op = gnjax.gauss_newton(gnjax.functional(model), x, y, loss="cross_entropy")
    assert isinstance(op, NetworkGram)
    parameters = op.net.parameters
    images = f"{IMAGES}, downsampled and standardised"
    shared = {
        "data": "python_topics" if cell.network == "gpt" else images,
        "inputs": x[0].size,
        "parameters": parameters,
        "share": parameters / (cell.outputs * cell.samples),
        "target": cell.race.target,
    }
    found = kappas(op, y, cell.path, cell.race.momentum, cell.seed)
    best = races(op, y, cell.race, cell.race.target * math.log(cell.outputs))
    return [
        *({"panel": KAPPA, **shared, **OF_KAPPA, **one} for one in found),
        *({"panel": RACE, **shared, **OF_RACE, **one} for one in best),
    ]


def kappas(op: NetworkGram, y: Any, path: Path, momentum: float, seed: int) -> list[dict[str, Any]]:
    """One record for each stop, metric and damping."""
    state, found = metric_steps.start(op), []
    for stop in path.stops:
        state, loss = metric_steps.steps(
            op, y, state, path.rate, min(path.dampings), momentum, stop, -1.0, metric="Adam"
        )
        here = metric_steps.at(op, state.w)
        memory = metric_steps.next_memory(op, y, state, momentum)
        for name in METRICS:
            for damping in _dampings(name, path.dampings if stop == 0 else (path.damping,)):
                kappa = gnjax.condition_number(in_metric(here, memory, name, damping), seed=seed)
                own = {"metric": name, "damping": damping, "step": stop, "loss": float(loss)}
                found.append(own | certificate(kappa))
    return found


def _dampings(metric: str, dampings: tuple[float, ...]) -> tuple[float, ...]:
    """The dampings to use with a metric: 0 alone for SGD, whose P = I needs none."""
    return (0.0,) if metric == "SGD" else dampings


def in_metric(op: NetworkGram, memory: Memory, name: str, damping: float) -> Any:
    """P^{-1/2} G P^{-1/2} with the damping added to P, as a share of its mean eigenvalue."""
    if name == "SGD":
        return op
    metric = matrix_of(op, memory, name)
    added = float(damping * metric.trace() / len(metric))
    if name in ("Adam", "diagonal"):
        return gnjax.preconditioned(op, gnjax.diagonal(metric.diagonal()), damping=added)
    return gnjax.preconditioned(op, gnjax.dense(metric), damping=added)


def matrix_of(op: NetworkGram, memory: Memory, name: str) -> NDArray[np.float64]:
    """P (p, p) without damping."""
    if name == "SGD":
        return np.eye(op.net.parameters)
    if name == "Adam":
        mean = memory.second / (1 - metric_steps.SECOND_DECAY ** int(memory.steps))
        return np.diag(np.sqrt(mean))
    if name == "K-FAC":
        return gnjax.metrics.kfac(op, damping=0.0).as_matrix()
    if name == "Shampoo":
        factors = list(metric_steps.shampoo_factors(memory))
        return gnjax.metrics.shampoo(op, jax.tree.unflatten(op.net.structure, factors)).as_matrix()
    matrix = np.asarray(op.as_matrix())
    if name == "full":
        return matrix
    parts = op.places("layer").values() if name == "layers" else range(len(matrix))
    return metric_steps.block_diagonal(matrix, parts)


def races(op: NetworkGram, y: Any, race: Race, target: float) -> list[dict[str, Any]]:
    """One record for each metric, damping and momentum: the best rate."""
    return [
        {"metric": name, "damping": damping, "momentum": momentum}
        | best_rate(op, y, race, target, name, damping, momentum)
        for name in METRICS
        for damping in _dampings(name, race.dampings)
        for momentum in ((0.0, race.momentum) if name in WITH_MOMENTUM else (0.0,))
    ]


def best_rate(
    op: NetworkGram,
    y: Any,
    race: Race,
    target: float,
    metric: str,
    damping: float,
    momentum: float,
) -> dict[str, Any]:
    """The learning rate that reaches the target loss in the fewest steps.

    Rates are tried from the largest on. A run ends when it has taken as many steps as the best one,
    and the search ends after two rates in a row that were not better.
    """
    start, best, chosen, behind = metric_steps.start(op), race.limit, math.nan, 0
    for rate in sorted(race.rates, reverse=True):
        state, loss = metric_steps.steps(
            op, y, start, rate, damping, momentum, best, target, metric=metric
        )
        count, reached = int(state.memory.steps), not math.isnan(chosen)
        if float(loss) <= target and (count < best or not reached):
            best, chosen, behind = count, rate, 0
        elif reached:
            behind += 1
        if behind == 2:
            break
    return {
        "steps": best,
        "reached": not math.isnan(chosen),
        "rate": chosen,
        "at_edge": chosen in (min(race.rates), max(race.rates)),
    }


def sources(config: ConfigDict) -> list[str]:
    gpt, many = config.gpt, config.mlp_many
    images = gnjax.data.load(IMAGES, samples=many.samples, seed=config.first_seed).source
    return [
        f"{described(gpt.outputs, gpt.samples, gpt.length)} for each seed",
        f"{images}, or {config.mlp.samples} of them, for each seed its own, downsampled to"
        f" {SIDE} x {SIDE}, standardised",
    ]


EXPERIMENT = Experiment(
    "optimizer_metrics",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "network", "data", "samples", "inputs", "outputs", "width", "depth"),
        *("parameters", "share", "seed", "target", "metric", "damping", "step", "loss"),
        *CERTIFICATE,
        *("momentum", "steps", "reached", "rate", "at_edge"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="steps",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
