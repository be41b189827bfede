"""Blocks of G by class and by token, over their frequencies, as models train: figure T4.

python -m experiments.class_blocks --config=configs/class_blocks.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.tree_util import Partial
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.class_blocks import CLAIMS
from sweeps import command_line
from sweeps.experiment import Experiment

OPTIMIZERS = {"gradient descent": optax.sgd, "Adam": optax.adam}
START = "start"
CLASS, TOKEN = "class", "token"


@dataclass(frozen=True)
class Training:
    """``steps`` full-batch steps with the constant rates of gradient descent and of Adam."""

    steps: int
    descent_rate: float
    adam_rate: float


@dataclass(frozen=True)
class Cell:
    """A softmax-linear model of the next character from the last, or a GPT.

    The text has ``outputs`` different characters, and pieces of ``length`` of them, which the seed
    of the initialisation draws.
    """

    network: str
    outputs: int
    length: int
    samples: int
    width: int
    depth: int
    training: Training
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The GPTs first."""
    if min(config.samples, config.seeds, config.linear.steps, config.gpt.steps) < 1:
        msg = f"samples, seeds and steps must be at least 1, got {config}"
        raise ValueError(msg)
    for name in ("gpt", "linear"):
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {}, {"network": name, "training": config[name], "seed": seed}


def cost(cell: Cell) -> float:
    """Multiplications in training, and in J of the output layer and of the embeddings' table."""
    weights = 12.0 * cell.width**2 * cell.depth if cell.network == "gpt" else cell.outputs**2
    tokens = cell.samples * cell.length
    return 6.0 * tokens * weights * cell.training.steps + (cell.outputs * cell.width) ** 2 * tokens


def made(cell: Cell) -> tuple[nnx.Module, NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """The model at initialisation, its inputs, their characters and the targets."""
    text = gnjax.data.load_text(vocabulary=cell.outputs)
    tokens, y = gnjax.data.sequences(text, cell.samples, cell.length, seed=cell.seed)
    key = jax.random.key(cell.seed)
    if cell.network == "gpt":
        model: nnx.Module = gnjax.models.GPT(
            cell.outputs,
            length=cell.length,
            width=cell.width,
            depth=cell.depth,
            heads=2,
            tied=False,
            key=key,
        )
        return model, tokens, tokens, y
    tokens, y = tokens.ravel(), y.ravel()
    linear = gnjax.models.MLP((cell.outputs, cell.outputs), bias=False, key=key)
    zeros = jax.tree.map(jnp.zeros_like, nnx.state(linear, nnx.Param))
    nnx.update(linear, zeros)  # p = 1/k to begin with
    return linear, gnjax.data.one_hot(tokens, cell.outputs), tokens, y


def measure(cell: Cell) -> list[dict[str, Any]]:
    """A row for each diagonal block of G of the cross-entropy, at the start and after optimisers.

    ``part`` "class" is the weights of one character in the output layer, "token" its row in the
    table of embeddings. ``rank`` is the number of the character; 0 is the most frequent of the
    text. ``frequency`` is its share of the targets (class) or of the inputs (token) that are
    trained on, and ``share`` that of the whole text. ``loss`` is the mean loss over the targets of
    a class. Characters that do not occur are left out.
    """
    model, x, tokens, y = made(cell)
    apply, params = gnjax.functional(model)
    rates = {"gradient descent": cell.training.descent_rate, "Adam": cell.training.adam_rate}
    stages = {START: (params, 0.0)}
    for name, rate in rates.items():
        end = trained(params, apply, x, y, rate, optimizer=name, steps=cell.training.steps)
        stages[name] = end, rate
    counts = gnjax.data.load_text(vocabulary=cell.outputs).counts
    shares = counts / counts.sum()
    frequency = {CLASS: _frequencies(y, cell.outputs), TOKEN: _frequencies(tokens, cell.outputs)}
    return [
        {
            "stage": stage,
            "data": "python_topics",
            "inputs": x[0].size,
            "steps": cell.training.steps if stage != START else 0,
            "rate": rate,
            "frequency": frequency[row["part"]][row["rank"]],
            "share": shares[row["rank"]],
            **row,
        }
        for stage, (now, rate) in stages.items()
        for row in blocks(cell, apply, now, x, y)
        if frequency[row["part"]][row["rank"]]
    ]


def _frequencies(tokens: NDArray[np.int64], outputs: int) -> list[float]:
    counts = np.bincount(tokens.ravel(), minlength=outputs)
    return [float(count) for count in counts / counts.sum()]


@partial(jax.jit, static_argnames=("optimizer", "steps"))
def trained(
    params: Any, apply: Partial, x: Any, y: Any, rate: Any, *, optimizer: str, steps: int
) -> Any:
    """The parameters after full-batch steps on the mean cross-entropy."""
    rule = OPTIMIZERS[optimizer](rate)

    def step(state: Any, _: None) -> tuple[Any, None]:
        now, memory = state
        moved, memory = rule.update(jax.grad(_loss)(now, apply, x, y), memory, now)
        return (optax.apply_updates(now, moved), memory), None

    (end, _), _ = lax.scan(step, (params, rule.init(params)), None, length=steps)
    return end


def _loss(params: Any, apply: Partial, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean()


def blocks(cell: Cell, apply: Any, params: Any, x: Any, y: Any) -> Iterator[dict[str, Any]]:
    """Trace and largest eigenvalue of every block of G, and the loss of every class."""
    layers = {CLASS: ("head/*", 1), TOKEN: ("tokens", 0)}
    if cell.network == "linear":  # inputs are unit vectors, so that W is the table as well
        layers = {CLASS: ("dense1/*", 1)}
    logs = jax.nn.log_softmax(apply(params, jnp.asarray(x)))
    losses = -np.take_along_axis(np.asarray(logs), y[..., None], axis=-1)[..., 0]
    for part, (only, axis) in layers.items():
        op = gnjax.gauss_newton((apply, params), x, y=y, loss="cross_entropy", only=only)
        found = diagonal_blocks(np.asarray(op.as_matrix()), cell.outputs, axis)
        for rank, (trace, largest) in enumerate(found):
            loss = losses[y == rank].mean() if part == CLASS and (y == rank).any() else None
            yield {"part": part, "rank": rank, "trace": trace, "largest": largest, "loss": loss}


def diagonal_blocks(matrix: NDArray[np.float64], count: int, axis: int) -> list[list[float]]:
    """[trace, largest eigenvalue] of each of the ``count`` diagonal blocks of ``matrix``.

    The parameters are an array (a, b). A block belongs to one of its rows where ``axis`` is 0, and
    to one of its columns where it is 1.
    """
    other = len(matrix) // count
    shape = (count, other) if axis == 0 else (other, count)
    whole = np.moveaxis(matrix.reshape(*shape, *shape), (axis, 2 + axis), (0, 1))
    each = [whole[k, k] for k in range(count)]
    return [[float(np.trace(b)), float(np.linalg.eigvalsh(b)[-1])] for b in each]


def sources(config: ConfigDict) -> list[str]:
    text = gnjax.data.load_text(vocabulary=config.outputs).source
    return [f"{text}: {config.samples} pieces of {config.length} characters for each seed"]


EXPERIMENT = Experiment(
    "class_blocks",
    settings,
    measure,
    cost,
    columns=(
        *("network", "stage", "part", "data", "samples", "inputs", "outputs", "width", "depth"),
        *("steps", "rate", "seed", "rank", "frequency", "share", "trace", "largest", "loss"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="largest",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
