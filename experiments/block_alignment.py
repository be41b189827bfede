"""How far the layers' diagonal blocks stand for the whole curvature, along training: figure T7.

python -m experiments.block_alignment --config=configs/block_alignment.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

import gnjax
from experiments.claims.block_alignment import CLAIMS
from experiments.shared import alignment
from experiments.shared.alignment import Interval
from experiments.shared.language import described
from experiments.shared.metric_steps import block_diagonal, layer_places
from experiments.shared.small_images import IMAGES, Network, gpt_or_classifier
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

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
class Config:
    """A GPT on pieces of the text, and an MLP on images.

    Steps are taken with each of the ``dampings``, which are shares of the mean eigenvalue of G.
    """

    paper_ratios: regimes.Rows
    gpt: Network
    mlp: Network
    path: Path
    dampings: tuple[float, ...]
    first_seed: int
    seeds: int


@dataclass(frozen=True)
class Cell:
    """One network from one initialisation, on samples drawn by the same seed."""

    network: str
    samples: int
    outputs: int
    length: int
    width: int
    depth: int
    path: Path
    dampings: tuple[float, ...]
    seed: int


@dataclass(frozen=True)
class Row:
    """One comparison of a curvature A with its layers' diagonal blocks B, in exact arithmetic
    between ``value_low`` and ``value_high``.

    Attributes:
      panel: "error", ||A - B||_F / ||A||_F; "eigenvector", the cosine of the eigenvectors of the
        largest eigenvalues; "step", the cosine of (A + d)^{-1} g and (B + d)^{-1} g with the
        gradient g; or "decrease", what the best multiple of the second gains of the decrease of
        g^T s - s^T (A + d) s / 2 that the first gains.
      matrix: "G", the Gauss-Newton matrix of the cross-entropy, or "H", its Hessian.
      step: how many steps of Adam the parameters have behind them.
      damping: d over the mean eigenvalue of G; 0 where there is none.
      loss: the cross-entropy there.
      evidence: what the interval rests on.
    """

    panel: str
    network: str
    matrix: str
    data: str
    samples: int
    inputs: int
    outputs: int
    width: int
    depth: int
    parameters: int
    blocks: int
    seed: int
    step: int
    damping: float
    loss: float
    value: float
    value_low: float
    value_high: float
    evidence: str


def cells(config: Config) -> tuple[Cell, ...]:
    """The GPTs first."""
    return tuple(
        copy_fields(
            Cell,
            getattr(config, name),
            network=name,
            path=config.path,
            dampings=config.dampings,
            seed=seed,
        )
        for name in NETWORKS
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    )


def cost(cell: Cell) -> float:
    """Multiplications in the eigenvectors of H and of its blocks, at every stop."""
    weights = (12.0 if cell.network == "gpt" else 1.0) * cell.width**2 * cell.depth
    return 20.0 * weights**3 * len(cell.path.stops)


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The model at initialisation, its inputs and its labels."""
    return gpt_or_classifier(cell.network, cell, SIDE)


def measure(cell: Cell) -> Measurement:
    """The comparisons of G and of H with their blocks, at every stop of Adam's run."""
    model, x, y = made(cell)
    apply, params = gnjax.functional(model)
    records: list[dict[str, Any]] = []
    sizes: dict[str, int] = {}
    for stop, now, loss, gradient in along(apply, params, x, y, cell.path):
        for name, form in ((GAUSS_NEWTON, gnjax.gauss_newton), (HESSIAN, gnjax.hessian)):
            op = form((apply, now), x, y, loss="cross_entropy")
            dampings = cell.dampings if name == GAUSS_NEWTON else ()
            shared = {"matrix": name, "step": stop, "loss": loss}
            sizes = {"parameters": op.shape[0], "blocks": len(layer_places(op.net))}
            records += [shared | one for one in comparisons(op, gradient, dampings)]
    return {"inputs": x[0].size, **sizes, "records": records}


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
    blocks = block_diagonal(matrix, layer_places(op.net))
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


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    table = []
    for cell in cells(config):
        if cell not in measured:
            continue
        found = measured[cell]
        images = f"{IMAGES}, downsampled and standardised"
        shared = {
            "data": "python_topics" if cell.network == "gpt" else images,
            **{name: found[name] for name in ("inputs", "parameters", "blocks")},
        }
        table += [copy_fields(Row, cell, **shared, **record) for record in found["records"]]
    return tuple(table)


def sources(config: Config) -> list[str]:
    gpt, mlp = config.gpt, config.mlp
    images = gnjax.data.load(IMAGES, samples=mlp.samples, seed=config.first_seed).source
    return [
        f"{described(gpt.outputs, gpt.samples, gpt.length)} for each seed",
        f"{images}, for each seed its own, downsampled to {SIDE} x {SIDE}, standardised",
    ]


EXPERIMENT = Experiment(
    "block_alignment",
    cells,
    measure,
    rows,
    cost,
    lambda found: f"{len(found['records'])} comparisons",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
