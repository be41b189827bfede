"""kappa of pruned and of narrow networks and of low-rank adapters over p / (k n): figure T6.

python -m experiments.adapter_sweep --config=configs/adapter_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
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

import gnjax
from experiments.claims.adapter_sweep import CLAIMS
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.language import described, of_last_position
from experiments.shared.pruned_kernel import pruned_kernel
from gnjax.papers.training import pruning
from sweeps import command_line
from sweeps.experiment import Experiment

PRUNED, NARROW, START, TRAINED = "pruned", "narrow", "adapters", "adapters, trained"


@dataclass(frozen=True)
class Cell:
    """A GPT on pieces of the text, or an MLP on images, at initialisation.

    ``amount`` is the pruning rate of every matrix, the width, or the rank of the adapters A B, as
    ``family`` says. Adapters that are trained take ``steps`` steps of Adam.
    """

    network: str
    family: str
    amount: float
    width: int
    depth: int
    data: str
    data_seed: int
    outputs: int
    length: int
    samples: int
    steps: int
    adam_rate: float
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if min(config.samples, config.seeds, *config.ranks) < 1 or config.steps < 0:
        msg = f"samples, seeds and ranks must be at least 1, got {config}"
        raise ValueError(msg)
    for name, data in (("gpt", "python_topics"), ("mlp", config.data)):
        for family, amount, width, steps in _members(config, config[name]):
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                member = {"family": family, "amount": amount, "width": width, "steps": steps}
                network = {"network": name, "depth": config[name].depth, "data": data}
                yield {}, {**network, **member, "seed": seed}


def _members(config: ConfigDict, network: ConfigDict) -> list[tuple[str, float, int, int]]:
    """Family, amount, width and steps of every network to measure."""
    width = network.width
    return [
        *((PRUNED, rate, width, 0) for rate in config.rates),
        *((NARROW, narrow, narrow, 0) for narrow in network.widths),
        *((START, rank, width, 0) for rank in config.ranks),
        *((TRAINED, rank, width, config.steps) for rank in config.ranks),
    ]


def cost(cell: Cell) -> float:
    """Multiplications in forming J for all weights and in finding its singular values."""
    gpt = cell.network == "gpt"
    weights = (12.0 if gpt else 1.0) * cell.width**2 * cell.depth
    rows = cell.samples * cell.outputs
    return 3 * rows * weights * (cell.length if gpt else 1) + rows**2 * weights


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The network at initialisation, its inputs and its labels."""
    if cell.network == "gpt":
        return of_last_position(cell, cell.data_seed)
    dataset = gnjax.data.load(cell.data, samples=cell.samples, seed=cell.data_seed)
    rows = (dataset.inputs - dataset.inputs.mean()) / dataset.inputs.std()
    widths = (rows.shape[1], *[cell.width] * (cell.depth - 1), dataset.classes)
    return gnjax.models.MLP(widths, key=jax.random.key(cell.seed)), rows, dataset.labels


def measure(cell: Cell) -> dict[str, Any]:
    """kappa of J J^T for the parameters of this family.

    ``parameters`` counts those on which the outputs depend to first order: where B = 0, those of A
    are not among them. ``share`` is p / (k n).
    """
    model, x, y = made(cell)
    if cell.family in (PRUNED, NARROW):
        net: Any = model
        rate = cell.amount if cell.family == PRUNED else 0.0
        mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), rate)
    else:
        net = adapted(model, int(cell.amount), cell.seed)
        if cell.steps:
            net = net[0], trained(net[0], net[1], x, y, cell)
        # A has no effect as long as B = 0
        mask = {name: {"a": _like(f["a"], cell.steps > 0), "b": _like(f["b"], True)}
                for name, f in net[1].items()}  # fmt: skip
    found = gnjax.condition_number(pruned_kernel(net, x, mask, soon=True), seed=cell.seed)
    parameters, outputs = pruning.remaining(mask), cell.outputs
    return {
        **certificate(found),
        "inputs": x[0].size,
        "parameters": parameters,
        "share": parameters / (outputs * cell.samples),
    }


def _like(leaf: Any, value: bool) -> np.ndarray:
    return np.full(leaf.shape, value)


def adapted(model: nnx.Module, rank: int, seed: int) -> tuple[Partial, dict[str, Any]]:
    """The network with W + A B in place of every matrix W, as a function of all A and B.

    A (in, rank) is N(0, 1 / in) and B (rank, out) is 0: the adapters of arXiv 2106.09685.
    """
    apply, params = gnjax.functional(model)
    paths = jax.tree_util.tree_leaves_with_path(params)
    factors = {}
    for index, (path, leaf) in enumerate(paths):
        if "kernel" not in jax.tree_util.keystr(path):
            continue
        key = jax.random.fold_in(jax.random.key(seed), index)
        drawn = gnjax.initializers.kaiming_normal(key, (rank, leaf.shape[0]), gain=1.0)
        factors[str(index)] = {"a": drawn.T, "b": jnp.zeros((rank, leaf.shape[1]), leaf.dtype)}
    return Partial(_with_adapters, apply, params), factors


def _with_adapters(apply: Any, params: Any, factors: Mapping[str, Any], x: jax.Array) -> jax.Array:
    leaves, structure = jax.tree.flatten(params)
    for index, factor in factors.items():
        change = jnp.matmul(factor["a"], factor["b"], precision="highest")
        leaves[int(index)] = leaves[int(index)] + change
    found: jax.Array = apply(jax.tree.unflatten(structure, leaves), x)
    return found


def trained(apply: Partial, factors: Any, x: Any, y: Any, cell: Cell) -> Any:
    """The adapters after full-batch steps of Adam on the mean cross-entropy."""
    return _descend(
        apply, factors, jnp.asarray(x), jnp.asarray(y), cell.adam_rate, steps=cell.steps
    )


@partial(jax.jit, static_argnames="steps")
def _descend(
    apply: Partial, factors: Any, x: jax.Array, y: jax.Array, rate: float, *, steps: int
) -> Any:
    rule = optax.adam(rate)

    def loss(now: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(apply(now, x), y).mean()

    def step(state: Any, _: None) -> tuple[Any, None]:
        now, memory = state
        moved, memory = rule.update(jax.grad(loss)(now), memory, now)
        return (optax.apply_updates(now, moved), memory), None

    (found, _), _ = lax.scan(step, (factors, rule.init(factors)), None, length=steps)
    return found


def sources(config: ConfigDict) -> list[str]:
    images = gnjax.data.load(config.data, samples=config.samples, seed=config.data_seed).source
    return [
        described(config.outputs, config.samples, config.length),
        f"{images}, standardised",
    ]


EXPERIMENT = Experiment(
    "adapter_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("network", "family", "amount", "data", "samples", "inputs", "outputs", "parameters"),
        *("share", "depth", "width", "steps", "seed", *CERTIFICATE),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
