"""Why trained networks have a valley of kappa over the pruning rate: one cause after the other.

python -m experiments.pruning_causes --config=configs/pruning_causes.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import gnjax
from experiments.claims.pruning_causes import CLAIMS
from experiments.shared.pruned_kernel import conditioning, pruned_kernel
from experiments.shared.pruned_networks import KERNELS, KINDS, frozen, images
from gnjax.networks.losses import sample_loss
from gnjax.papers.training import minibatch as training
from gnjax.papers.training import pruning
from gnjax.papers.training.recipe import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

EPSILON = float(np.finfo(float).eps)  # k n of it make a numerical rank, as in NumPy and PyTorch
CHANGES: Mapping[str, Callable[[Recipe], Recipe]] = {
    "no_drop": lambda recipe: replace(recipe, drop_after=0),
    "no_decay": lambda recipe: replace(recipe, decay=0.0),
    "no_momentum": lambda recipe: replace(recipe, momentum=0.0),
    "long_steps": lambda recipe: replace(
        recipe, momentum=0.0, rate=recipe.rate / (1 - recipe.momentum)
    ),
    "short_steps": lambda recipe: replace(recipe, rate=recipe.rate * (1 - recipe.momentum)),
}
"""What a variant changes in the printed recipe. Its steps become rate / (1 - momentum) long.

``long_steps`` are as long as the printed ones, without momentum; ``short_steps`` are as short as
those of ``no_momentum``, with momentum.
"""

VARIANTS = (
    "printed",
    *CHANGES,
    "alike",  # each network is as near to instability as the unpruned one with the printed rate
    "batch_statistics",  # J goes through BatchNorm's statistics of all samples
    "first_norms",  # J of the trained network with the filters' norms of the start
)


@dataclass(frozen=True)
class Config:
    """The settings of figure C4. ``recipe`` is the printed one of figure 16."""

    paper_ratios: regimes.Rows
    variants: str
    data: str
    data_seed: int
    samples: int
    side: int
    depth: int
    width: int
    rates: tuple[float, ...]
    seeds: int
    first_seed: int
    epochs: int
    recipe: Recipe

    def __post_init__(self) -> None:
        unknown = set(self.variants.split()) - set(VARIANTS)
        if unknown or "printed" not in self.variants.split():
            msg = f"variants={self.variants!r}: name printed and others of {', '.join(VARIANTS)}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One network, pruned at one rate, from one initialisation to the end of its training."""

    variant: str
    data: str
    data_seed: int
    samples: int
    side: int
    depth: int
    width: int
    pruned: float
    seed: int
    epochs: int
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """One network after its training, or before it.

    ``instability`` is the step over the largest one that is stable at the start, 2 (1 + momentum) /
    lambda_max of the Hessian of the cross-entropy of all samples.
    """

    variant: str
    pruned: float
    seed: int
    epoch: int
    depth: int
    width: int
    samples: int
    inputs: int
    outputs: int
    parameters: int
    data: str
    rate: float
    momentum: float
    decay: float
    drop_after: int
    batch: int
    instability: float
    loss: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    evidence: str | None = None
    failure: float | None = None
    resolved: bool = False
    method: str = ""
    rank: int | None = None
    lambda_max: float | None = None
    lambda_min: float | None = None
    kappa_numerical: float | None = None
    kappa_numerical_low: float | None = None
    kappa_numerical_high: float | None = None
    rank_numerical: int | None = None
    tolerance: float | None = None


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        copy_fields(Cell, config, variant=variant, pruned=rate, seed=config.first_seed + seed)
        for variant in config.variants.split()
        for rate in config.rates
        for seed in range(config.seeds)
    )


def cost(cell: Cell) -> float:
    """About the same for all; J through batch statistics takes more."""
    return (5.0 if cell.variant == "batch_statistics" else 1.0) * cell.samples * cell.width**2


def shape(cell: Cell) -> Hashable:
    return cell.variant, cell.samples, cell.side, cell.width, cell.depth


@dataclass(frozen=True)
class _Start:
    """A pruned network before training."""

    net: nnx.Module
    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    mask: Any


def begun(cell: Cell, rate: float) -> _Start:
    """The network of a cell's seed with this share of every layer's weights set to zero."""
    found = images(cell.data, cell.samples, cell.data_seed, cell.side)
    make, key = KINDS["vgg5"].make, jax.random.key(cell.seed)
    net = make(cell.depth, cell.width, found.x.shape[1:], found.classes, key)
    params = nnx.state(net, nnx.Param)
    mask = pruning.magnitude_mask(params, rate, only=KERNELS)
    nnx.update(net, jax.tree.map(jnp.multiply, params, mask))
    return _Start(net, found.x, found.labels, found.classes, mask)


def _mean_loss(params: Any, forward: Any, statistics: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    outputs, _ = forward(params, statistics, x)
    return jax.vmap(sample_loss("cross_entropy"))(outputs, y).mean()


def sharpness(start: _Start) -> float:
    """The largest eigenvalue of the Hessian of the loss of all samples, which trains BatchNorm."""
    forward, params, statistics = training.trainable(start.net)
    x, y = jnp.asarray(start.x), jnp.asarray(start.labels)
    hessian = gnjax.hessian_of(_mean_loss, params, forward, statistics, x, y, mask=start.mask)
    return float(gnjax.eigenvalues(hessian, k=1, rtol=1e-3).values[0])


def _recipe(cell: Cell, own: float) -> Recipe:
    """The recipe of a variant; ``own`` is the sharpness of the pruned network at its start.

    Steps that depend on it are rounded to powers of the square root of 2, which share programs.
    """
    recipe = CHANGES.get(cell.variant, lambda printed: printed)(cell.recipe)
    if cell.variant == "alike":
        unpruned = sharpness(begun(cell, 0.0))
        return replace(recipe, rate=_rounded(recipe.rate * unpruned / own))
    return recipe


def _rounded(rate: float) -> float:
    return 2.0 ** (round(2 * math.log2(rate)) / 2)


def measure(cell: Cell) -> Measurement:
    """Prune, train, and measure kappa after the last epoch; of ``printed`` at the start as well."""
    start = begun(cell, cell.pruned)
    own = sharpness(start)
    recipe = _recipe(cell, own)
    key = jax.random.key(cell.seed)
    problem, state = training.begin(start.net, start.x, start.labels, recipe, key, mask=start.mask)
    records = []
    for stop in (0, cell.epochs) if cell.variant == "printed" else (cell.epochs,):
        state, losses = training.train(problem, state, stop - int(state.epoch))
        kernel = _kernel(cell, start, state)
        found = conditioning(kernel, "inverse", kernel.shape[0] * EPSILON, cell.seed)
        records.append({"epoch": stop, "loss": losses[-1] if len(losses) else None, **found})
    return {
        "inputs": start.x[0].size,
        "outputs": start.classes,
        "parameters": pruning.remaining(start.mask),
        "rate": recipe.rate,
        "instability": recipe.rate * own / (2 * (1 + recipe.momentum)),
        "records": records,
    }


def _kernel(cell: Cell, start: _Start, state: training.State) -> gnjax.Operator:
    """J J^T as the variant measures it, for the weights that pruning has left."""
    net = training.trained(start.net, state)
    if cell.variant == "batch_statistics":
        net.train()
        return gnjax.ntk(net, start.x, mask=start.mask, coupled=True)
    if cell.variant == "first_norms":
        rescale(net, start.net)
    return pruned_kernel(frozen(net, start.x), start.x, start.mask)


def rescale(net: nnx.Module, start: nnx.Module) -> None:
    """Give every filter of a convolution in front of BatchNorm the norm that it has in ``start``.

    BatchNorm divides by the norm again: with its statistics taken anew the outputs are the same.
    """
    for (_, conv), (_, first) in zip(nnx.iter_graph(net), nnx.iter_graph(start), strict=True):
        if isinstance(conv, nnx.Conv):
            now, then = (
                jnp.sqrt((each.kernel[...] ** 2).sum(axis=(0, 1, 2), keepdims=True))
                for each in (conv, first)
            )
            conv.kernel[...] = conv.kernel[...] * jnp.where(now > 0, then / now, 1.0)


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        row for cell in cells(config) if cell in measured for row in _path(cell, measured[cell])
    )


def _path(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    recipe = CHANGES.get(cell.variant, lambda printed: printed)(cell.recipe)
    shared = {name: value for name, value in measurement.items() if name != "records"}
    for record in measurement["records"]:
        yield copy_fields(
            Row,
            cell,
            momentum=recipe.momentum,
            decay=recipe.decay,
            drop_after=recipe.drop_after,
            batch=recipe.batch,
            **shared,
            **record,
        )


def sources(config: Config) -> list[str]:
    found = images(config.data, config.samples, config.data_seed, config.side)
    size = " x ".join(map(str, found.x.shape[1:]))
    return [f"{found.source}, standardised by channel: n={config.samples}, {size}"]


EXPERIMENT = Experiment(
    "pruning_causes",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['kappa']:.4g}",
    shape=shape,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
