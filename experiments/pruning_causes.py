"""Why trained networks have a valley of kappa over the pruning rate: one cause after the other.

python -m experiments.pruning_causes --config=configs/pruning_causes.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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

READINGS = (  # of the network that was trained with the printed recipe
    "batch_statistics",  # J goes through BatchNorm's statistics of all samples
    "first_norms",  # J of the network with the filters' norms of the start
)
VARIANTS = (
    "printed",
    *CHANGES,
    "alike",  # each network is as near to instability as the unpruned one with the printed rate
    *READINGS,
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
    """One network, pruned at one rate, from one initialisation to the end of every training."""

    variants: tuple[str, ...]
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
    variants = tuple(config.variants.split())
    return tuple(
        copy_fields(Cell, config, variants=variants, pruned=rate, seed=config.first_seed + seed)
        for rate in config.rates
        for seed in range(config.seeds)
    )


def cost(cell: Cell) -> float:
    return 1.0 * len(cell.variants) * cell.samples * cell.width**2


def shape(cell: Cell) -> Hashable:
    return cell.variants, cell.samples, cell.side, cell.width, cell.depth


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


def _mean_loss(
    params: Any, mask: Any, forward: Any, statistics: Any, x: jax.Array, y: jax.Array
) -> jax.Array:
    outputs, _ = forward(jax.tree.map(jnp.multiply, params, mask), statistics, x)
    return jax.vmap(sample_loss("cross_entropy"))(outputs, y).mean()


def sharpness(start: _Start) -> float:
    """The largest eigenvalue of the Hessian of the loss of all samples, which trains BatchNorm.

    The loss masks the weights: a pruned one has a row of zeros, and one program serves every mask.
    """
    forward, params, statistics = training.trainable(start.net)
    x, y = jnp.asarray(start.x), jnp.asarray(start.labels)
    mask = jax.tree.map(jnp.asarray, start.mask)
    hessian = gnjax.hessian_of(_mean_loss, params, mask, forward, statistics, x, y)
    return float(gnjax.eigenvalues(hessian, k=1, rtol=1e-3).values[0])


@lru_cache(maxsize=16)
def _unpruned_sharpness(cell: Cell) -> float:
    """That of the unpruned network, with which cells of every rate compare theirs."""
    return sharpness(begun(cell, 0.0))


def _recipe(variant: str, printed: Recipe, sharper: float) -> Recipe:
    """The recipe of a variant; ``sharper`` is the sharpness over that of the unpruned network.

    Steps that depend on it are rounded to powers of the square root of 2, which share programs.
    """
    recipe = CHANGES.get(variant, lambda recipe: recipe)(printed)
    return replace(recipe, rate=_rounded(recipe.rate / sharper)) if variant == "alike" else recipe


def _rounded(rate: float) -> float:
    return 2.0 ** (round(2 * math.log2(rate)) / 2)


def measure(cell: Cell) -> Measurement:
    """Prune, train with each recipe, and measure kappa after the last epoch.

    That of ``printed`` is measured at the start as well, and after its training in each of the
    ways of ``READINGS``.
    """
    start = begun(cell, cell.pruned)
    unpruned = _unpruned_sharpness(replace(cell, pruned=0.0))
    own = sharpness(start) if cell.pruned else unpruned
    records: list[Measurement] = []
    for variant in cell.variants:
        if variant in READINGS:
            continue
        recipe = _recipe(variant, cell.recipe, own / unpruned)
        steps = {
            "rate": recipe.rate,
            "instability": recipe.rate * own / (2 * (1 + recipe.momentum)),
        }
        records += [{**steps, **found} for found in _records(cell, start, variant, recipe)]
    return {
        "inputs": start.x[0].size,
        "outputs": start.classes,
        "parameters": pruning.remaining(start.mask),
        "records": records,
    }


def _records(cell: Cell, start: _Start, variant: str, recipe: Recipe) -> Iterator[Measurement]:
    """Train with one recipe; yield kappa at its end, and what else the variant is read as."""
    key = jax.random.key(cell.seed)
    problem, state = training.begin(start.net, start.x, start.labels, recipe, key, mask=start.mask)
    printed = variant == "printed"
    for stop in (0, cell.epochs) if printed else (cell.epochs,):
        state, losses = training.train(problem, state, stop - int(state.epoch))
        others = [name for name in cell.variants if name in READINGS] if printed and stop else []
        for name in (variant, *others):
            kernel = _kernel(name, start, state)
            found = conditioning(kernel, "inverse", kernel.shape[0] * EPSILON, cell.seed)
            loss = losses[-1] if len(losses) else None
            yield {"variant": name, "epoch": stop, "loss": loss, **found}


def _kernel(variant: str, start: _Start, state: training.State) -> gnjax.Operator:
    """J J^T as the variant measures it, for the weights that pruning has left."""
    net = training.trained(start.net, state)
    if variant == "batch_statistics":
        net.train()
        return gnjax.ntk(net, start.x, mask=start.mask, coupled=True)
    if variant == "first_norms":
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
    """The table by variant, of the cells that have a measurement."""
    found = [
        row for cell in cells(config) if cell in measured for row in _rows(cell, measured[cell])
    ]
    return tuple(sorted(found, key=lambda row: config.variants.split().index(row.variant)))


def _rows(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    shared = {name: value for name, value in measurement.items() if name != "records"}
    for record in measurement["records"]:
        recipe = _recipe(record["variant"], cell.recipe, 1.0)
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
    lambda measurement: f"kappa {measurement['records'][1]['kappa']:.4g}",
    shape=shape,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
