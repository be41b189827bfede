"""How far the layers' diagonal blocks stand for the whole curvature, along training: figure T7.

python -m experiments.block_alignment --config=configs/block_alignment.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.block_alignment import CLAIMS
from experiments.shared import alignment
from experiments.shared.alignment import Interval
from experiments.shared.language import described
from experiments.shared.metric_steps import block_diagonal
from experiments.shared.small_images import IMAGES, gpt_or_classifier
from sweeps import command_line
from sweeps.experiment import Experiment

ERROR, EIGENVECTOR, STEP, DECREASE = "error", "eigenvector", "step", "decrease"
GAUSS_NEWTON, HESSIAN = "G", "H"
SIDE = 4  # of the images
BY_LANCZOS = gnjax.Limits(whole_rows=1)  # not all eigenvectors, of which one is needed
NETWORKS = ("gpt", "mlp")


@dataclass(frozen=True)
class Path:
    """Full-batch Adam at a constant rate; the curvature is taken after ``stops`` steps."""

    rate: float
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """A GPT on pieces of the text or an MLP on images, on samples drawn by the same seed.

    Steps are taken with each of the ``dampings``, which are shares of the mean eigenvalue of G.
    """

    network: str
    samples: int
    outputs: int
    length: int
    width: int
    depth: int
    path: Path
    dampings: tuple[float, ...]
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The GPTs first."""
    for name in NETWORKS:
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {}, {"network": name, **config[name], "seed": seed}


def cost(cell: Cell) -> float:
    """Multiplications in the eigenvectors of H and of its blocks, at every stop."""
    weights = (12.0 if cell.network == "gpt" else 1.0) * cell.width**2 * cell.depth
    return 20.0 * weights**3 * len(cell.path.stops)


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The model at initialisation, its inputs and its labels."""
    return gpt_or_classifier(cell.network, cell, SIDE)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """The comparisons of G and of H with their blocks, at every stop of Adam's run.

    A row compares a curvature A with its layers' diagonal blocks B, in exact arithmetic between
    ``value_low`` and ``value_high``. ``panel`` "error" is ||A - B||_F / ||A||_F; "eigenvector" the
    cosine of the eigenvectors of the largest eigenvalues; "step" the cosine of (A + d)^{-1} g and
    (B + d)^{-1} g with the gradient g; and "decrease" what the best multiple of the second gains of
    the decrease of g^T s - s^T (A + d) s / 2 that the first gains. ``damping`` is d over the mean
    eigenvalue of G, 0 where there is none, and ``step`` how many steps of Adam were taken.
    """
    model, x, y = made(cell)
    apply, params = gnjax.functional(model)
    images = f"{IMAGES}, downsampled and standardised"
    data = "python_topics" if cell.network == "gpt" else images
    rows: list[dict[str, Any]] = []
    for stop, now, loss, gradient in along(apply, params, x, y, cell.path):
        for name, form in ((GAUSS_NEWTON, gnjax.gauss_newton), (HESSIAN, gnjax.hessian)):
            op = form((apply, now), x, y, loss="cross_entropy")
            dampings = cell.dampings if name == GAUSS_NEWTON else ()
            sizes = {"parameters": op.shape[0], "blocks": len(op.places("layer"))}
            shared = {"data": data, "inputs": x[0].size, "matrix": name, "step": stop, "loss": loss}
            rows += [shared | sizes | one for one in comparisons(op, gradient, dampings)]
    return rows


def along(
    apply: Any, params: Any, x: Any, y: Any, path: Path
) -> Iterator[tuple[int, Any, float, NDArray[np.float64]]]:
    """At every stop the number of steps, the parameters, the loss and its gradient (p,)."""
    rule, now, before = optax.adam(path.rate), params, 0
    memory, (value, gradient) = rule.init(params), _slope(params, apply, x, y)
    for stop in path.stops:
        for _ in range(stop - before):
            change, memory = rule.update(gradient, memory)
            now = optax.apply_updates(now, change)
            value, gradient = _slope(now, apply, x, y)
        before = stop
        yield stop, now, float(value), np.asarray(ravel_pytree(gradient)[0])


@jax.jit
@jax.value_and_grad
def _slope(params: Any, apply: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean()


def comparisons(
    op: Any, gradient: NDArray[np.float64], dampings: tuple[float, ...]
) -> list[dict[str, Any]]:
    """One record for each panel and damping, of an operator on the parameters."""
    matrix = np.asarray(op.as_matrix(), np.float64)
    error = op.error(float(np.linalg.norm(matrix)))
    blocks = block_diagonal(matrix, op.places("layer").values())
    tops = [
        gnjax.eigenvalues(alignment.stored(one, error), k=1, vectors=True, limits=BY_LANCZOS)
        for one in (matrix, blocks)
    ]
    evidence = (tops[0].certificate + tops[1].certificate).kind
    apart = alignment.relative_error(matrix, blocks, error.value)
    records = [
        _record(ERROR, 0.0, apart, error.kind),
        _record(EIGENVECTOR, 0.0, alignment.of_top_eigenvectors(*tops), evidence),
    ]
    for damping in dampings:
        added = damping * float(np.trace(matrix)) / len(matrix)
        whole, parts = (
            alignment.step(one, added, gradient, error.value) for one in (matrix, blocks)
        )
        gained = alignment.decrease(matrix, added, gradient, error.value, (whole, parts))
        records += [
            _record(STEP, damping, alignment.of_steps(whole, parts), error.kind),
            _record(DECREASE, damping, gained, error.kind),
        ]
    return records


def _record(panel: str, damping: float, found: Interval, evidence: str) -> dict[str, Any]:
    ends = {"value": found.value, "value_low": found.low, "value_high": found.high}
    return {"panel": panel, "damping": damping, "evidence": evidence} | ends


def sources(config: ConfigDict) -> list[str]:
    gpt, mlp = config.gpt, config.mlp
    images = gnjax.data.load(IMAGES, samples=mlp.samples, seed=config.first_seed).source
    return [
        f"{described(gpt.outputs, gpt.samples, gpt.length)} for each seed",
        f"{images}, for each seed its own, downsampled to {SIDE} x {SIDE}, standardised",
    ]


EXPERIMENT = Experiment(
    "block_alignment",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "network", "matrix", "data", "samples", "inputs", "outputs", "width", "depth"),
        *("parameters", "blocks", "seed", "step", "damping", "loss"),
        *("value", "value_low", "value_high", "evidence"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="value",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
