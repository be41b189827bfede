"""Blocks of G by class and by token, over their frequencies, as models train: figure T4.

python -m experiments.class_blocks --config=configs/class_blocks.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
from numpy.typing import NDArray

import gnjax
from experiments.claims.class_blocks import CLAIMS
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

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
class Config:
    """A softmax-linear model of the next character from the last, and a GPT.

    The text has ``outputs`` different characters, and pieces of ``length`` of them.
    """

    paper_ratios: regimes.Rows
    outputs: int
    length: int
    samples: int
    width: int
    depth: int
    linear: Training
    gpt: Training
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if min(self.samples, self.seeds, self.linear.steps, self.gpt.steps) < 1:
            msg = f"samples, seeds and steps must be at least 1, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One network from one initialisation on pieces drawn by the same seed."""

    network: str
    outputs: int
    length: int
    samples: int
    width: int
    depth: int
    training: Training
    seed: int


@dataclass(frozen=True)
class Row:
    """One diagonal block of G of the cross-entropy.

    Attributes:
      stage: "start", or the optimiser that has trained the network.
      part: "class", the weights of one character in the output layer, or "token", its row in the
        table of embeddings.
      rank: the number of the character; 0 is the most frequent of the text.
      frequency: its share of the targets (class) or of the inputs (token) that are trained on.
      share: its share of the whole text.
      trace, largest: the trace of the block, and its largest eigenvalue.
      loss: the mean loss over the targets of this class, for part "class".
    """

    network: str
    stage: str
    part: str
    data: str
    samples: int
    inputs: int
    outputs: int
    width: int
    depth: int
    steps: int
    rate: float
    seed: int
    rank: int
    frequency: float
    share: float
    trace: float
    largest: float
    loss: float | None


def cells(config: Config) -> tuple[Cell, ...]:
    """The GPTs first."""
    return tuple(
        copy_fields(Cell, config, network=name, training=getattr(config, name), seed=seed)
        for name in ("gpt", "linear")
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    )


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


def measure(cell: Cell) -> Measurement:
    """The blocks at the start and after each optimiser."""
    model, x, tokens, y = made(cell)
    apply, params = gnjax.functional(model)
    rates = {"gradient descent": cell.training.descent_rate, "Adam": cell.training.adam_rate}
    stages = {START: (params, 0.0)}
    for name, rate in rates.items():
        end = trained(params, apply, x, y, rate, optimizer=name, steps=cell.training.steps)
        stages[name] = end, rate
    counts = gnjax.data.load_text(vocabulary=cell.outputs).counts
    return {
        "inputs": x[0].size,
        "share": (counts / counts.sum()).tolist(),
        "frequency": {
            CLASS: _frequencies(y, cell.outputs),
            TOKEN: _frequencies(tokens, cell.outputs),
        },
        "stages": {
            name: {"rate": rate, **blocks(cell, apply, now, x, y)}
            for name, (now, rate) in stages.items()
        },
    }


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


def blocks(cell: Cell, apply: Any, params: Any, x: Any, y: Any) -> Measurement:
    """Trace and largest eigenvalue of every block of G, and the loss of every class."""
    layers = {CLASS: ("head/*", 1), TOKEN: ("tokens", 0)}
    if cell.network == "linear":  # inputs are unit vectors, so that W is the table as well
        layers = {CLASS: ("dense1/*", 1)}
    found: dict[str, Any] = {}
    for part, (only, axis) in layers.items():
        op = gnjax.gauss_newton((apply, params), x, y=y, loss="cross_entropy", only=only)
        found[part] = diagonal_blocks(np.asarray(op.as_matrix()), cell.outputs, axis)
    logs = jax.nn.log_softmax(apply(params, jnp.asarray(x)))
    losses = -np.take_along_axis(np.asarray(logs), y[..., None], axis=-1)[..., 0]
    found["loss"] = [
        float(losses[y == k].mean()) if (y == k).any() else None for k in range(cell.outputs)
    ]
    return found


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


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """One row for each block that was trained on: characters that do not occur are left out."""
    table = []
    for cell in cells(config):
        if cell not in measured:
            continue
        found = measured[cell]
        for stage, values in found["stages"].items():
            for part in (CLASS, TOKEN):
                for rank, (trace, largest) in enumerate(values.get(part, ())):
                    frequency = found["frequency"][part][rank]
                    if not frequency:
                        continue
                    row = copy_fields(
                        Row,
                        cell,
                        stage=stage,
                        part=part,
                        data="python_topics",
                        inputs=found["inputs"],
                        steps=cell.training.steps if stage != START else 0,
                        rate=values["rate"],
                        rank=rank,
                        frequency=frequency,
                        share=found["share"][rank],
                        trace=trace,
                        largest=largest,
                        loss=values["loss"][rank] if part == CLASS else None,
                    )
                    table.append(row)
    return tuple(table)


def sources(config: Config) -> list[str]:
    text = gnjax.data.load_text(vocabulary=config.outputs).source
    return [f"{text}: {config.samples} pieces of {config.length} characters for each seed"]


EXPERIMENT = Experiment(
    "class_blocks",
    cells,
    measure,
    rows,
    cost,
    lambda found: f"{len(found['stages'])} stages",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
