"""kappa of networks that were pruned at initialisation, while they train: figures 1, 13 to 17.

python -m experiments.pruning_sweep --config=configs/pruning_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import numpy as np
from flax import nnx

from experiments.claims.pruning_sweep import CLAIMS
from experiments.shared.pruned_kernel import conditioning, pruned_kernel
from experiments.shared.pruned_networks import KERNELS, KINDS, frozen, images
from gnjax.papers.training import minibatch as training
from gnjax.papers.training import pruning
from gnjax.papers.training.recipe import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields
from sweeps.storage.checkpoint import Checkpoint, resumed

PRINTED, SMALLER = "printed", "smaller"  # the step sizes: the paper's, or smaller ones


@dataclass(frozen=True)
class Network:
    """How one network is trained and measured.

    ``depth`` counts layers, and blocks in the transformer. ``width`` is the width of the layers,
    and in a convolutional network the number of filters of the first. ``side`` is the side of the
    images, downsampled or in a black frame, and 0 for images as they are. ``channels`` are those in
    which a single channel is repeated, and 0 for channels as they are. ``rates`` are the shares of
    every layer's weights that are pruned. kappa is measured after the epochs in ``stops``: the
    first is 0 and the last ends the training. ``seeds`` networks are trained. Where ``starts`` is
    larger than ``seeds``, ``starts`` networks are measured at initialisation, the trained ones
    among them.
    """

    depth: int
    width: int
    samples: int
    side: int
    channels: int
    rates: tuple[float, ...]
    seeds: int
    starts: int
    stops: tuple[int, ...]
    method: str  # of the condition number
    recipe: Recipe

    def __post_init__(self) -> None:
        if min(self.width, self.samples, self.seeds) < 1 or not self.rates:
            msg = f"width, samples and seeds must be at least 1, with rates; got {self}"
            raise ValueError(msg)
        if self.starts < 0:
            msg = f"starts={self.starts} cannot be negative; 0 means none"
            raise ValueError(msg)
        _check_stops(self.stops)


def _check_stops(stops: tuple[int, ...]) -> None:
    if stops[:1] != (0,) or any(later <= stop for stop, later in pairwise(stops)):
        msg = f"stops={stops} must begin with 0 and increase: the epochs at which kappa is measured"
        raise ValueError(msg)


@dataclass(frozen=True)
class Smaller:
    """The same networks trained with a constant step ``rate`` that is smaller than the printed one.

    ``networks`` are separated by blanks.
    """

    networks: str
    rates: tuple[float, ...]
    rate: float
    stops: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_stops(self.stops)


@dataclass(frozen=True)
class Config:
    """The settings of figures 1 and 13 to 17.

    ``networks``, separated by blanks, are those that run. Eigenvalues below ``tolerance`` times the
    largest count as zero in the numerical rank; ``tolerance`` 0 stands for k n times the precision
    of float64, as in NumPy and PyTorch.
    """

    paper_ratios: regimes.Rows
    networks: str
    data: str
    data_seed: int
    first_seed: int
    tolerance: float
    vit: Network
    resnet20: Network
    resnet32: Network
    vgg5: Network
    feed_forward: Network
    smaller: Smaller


@dataclass(frozen=True)
class Cell:
    """One network, pruned at one rate, from one initialisation to the end of its training."""

    figure: str
    network: str
    depth: int
    width: int
    data: str
    data_seed: int
    samples: int
    side: int
    channels: int
    pruned: float
    seed: int
    steps: str  # whose step sizes: those that the paper prints, or smaller ones
    stops: tuple[int, ...]
    method: str
    tolerance: float
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """One network after one epoch; where kappa was not ``measured``, its columns are empty.

    ``kappa`` is certified. ``kappa_numerical`` is the pseudo-condition number at the numerical
    rank, which counts the eigenvalues above ``tolerance`` times the largest.
    """

    figure: str
    network: str
    depth: int
    width: int
    pruned: float
    kept: float  # 1 - pruned
    seed: int
    steps: str
    epoch: int
    measured: bool
    samples: int
    inputs: int
    outputs: int
    parameters: int  # those that pruning has left
    data: str
    optimizer: str
    rate: float
    batch: int
    momentum: float
    decay: float
    drop_after: int
    loss: float | None = None  # the mean over the steps of this epoch
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    evidence: str | None = None  # the weakest kind that the interval rests on
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
    """All networks from one initialisation, the most expensive first, then from the next."""
    found = [
        cell
        for name in config.networks.split()
        for cell in _of_network(config, name, getattr(config, name), PRINTED)
    ]
    smaller = config.smaller
    for name in smaller.networks.split():
        printed = getattr(config, name)
        recipe = replace(printed.recipe, rate=smaller.rate, drop_after=0)
        changed = replace(
            printed, rates=smaller.rates, starts=0, stops=smaller.stops, recipe=recipe
        )
        found += _of_network(config, name, changed, SMALLER)
    return tuple(sorted(found, key=lambda cell: (cell.seed, -cost(cell))))


def _of_network(config: Config, name: str, network: Network, steps: str) -> list[Cell]:
    return [
        copy_fields(
            Cell,
            network,
            figure=KINDS[name].figure,
            network=name,
            data=config.data,
            data_seed=config.data_seed,
            pruned=rate,
            seed=config.first_seed + seed,
            steps=steps,
            stops=network.stops if seed < network.seeds else (0,),
            tolerance=config.tolerance,
        )
        for rate in network.rates
        for seed in range(max(network.seeds, network.starts))
    ]


def cost(cell: Cell) -> float:
    """Multiplications: each kappa takes k backward passes and J J^T, each epoch three passes.

    Those of convolutions and attention take about 60 times as long as those of a matrix product.
    """
    kind, size = KINDS[cell.network], 10.0 * cell.samples
    narrower = (cell.width / kind.width) ** 2
    work = kind.work * narrower * ((cell.side or 32) / 32) ** 2
    work *= 1 if cell.network == "feed_forward" else 60
    left = kind.weights * narrower * (1 - cell.pruned)
    kappa = 3 * size * work + size**2 * left / 2 + size**3 / 3
    return len(cell.stops) * kappa + 3.0 * cell.stops[-1] * cell.samples * work


def shape(cell: Cell) -> Hashable:
    """The fields that decide which programs are compiled: pruning rates and seeds share them."""
    images = cell.samples, cell.side, cell.channels
    return cell.network, cell.depth, cell.width, *images, cell.recipe, cell.stops


def measure(cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
    """Prune, train, and measure kappa at every stop."""
    found = images(cell.data, cell.samples, cell.data_seed, cell.side, cell.channels)
    x = found.x.reshape(len(found.x), -1) if cell.network == "feed_forward" else found.x
    key = jax.random.key(cell.seed)
    make = KINDS[cell.network].make
    model = make(cell.depth, cell.width, found.x.shape[1:], found.classes, key)
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), cell.pruned, only=KERNELS)
    problem, start = training.begin(model, x, found.labels, cell.recipe, key, mask=mask)
    tolerance = cell.tolerance or len(x) * found.classes * float(np.finfo(float).eps)

    def step(state: training.State, stop: int) -> tuple[training.State, Measurement]:
        state, losses = training.train(problem, state, stop - int(state.epoch))
        kernel = pruned_kernel(frozen(training.trained(model, state), x), x, mask)
        kappa = conditioning(kernel, cell.method, tolerance, cell.seed)
        return state, {"epoch": stop, "losses": losses.tolist(), **kappa}

    return {
        "data": found.data,
        "inputs": x[0].size,
        "outputs": found.classes,
        "parameters": pruning.remaining(mask),
        "records": resumed(checkpoint, start, cell.stops, step),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    done = [cell for cell in cells(config) if cell in measured]
    done.sort(key=lambda cell: (cell.figure, cell.steps, cell.pruned, cell.seed))
    return tuple(row for cell in done for row in _path(cell, measured[cell]))


def _path(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    """The rows of one cell: epoch 0, then every epoch. kappa is there at the stops alone."""
    recipe = cell.recipe
    shared = copy_fields(
        Row,
        cell,
        data=measurement["data"],
        kept=1 - cell.pruned,
        epoch=0,
        measured=True,
        inputs=measurement["inputs"],
        outputs=measurement["outputs"],
        parameters=measurement["parameters"],
        optimizer=recipe.optimizer,
        rate=recipe.rate,
        batch=recipe.batch,
        momentum=recipe.momentum,
        decay=recipe.decay,
        drop_after=recipe.drop_after,
        method="",  # the method and the tolerance of a row are those of its kappa
        tolerance=None,
    )
    for record in measurement["records"]:
        kappa = {name: value for name, value in record.items() if name not in ("epoch", "losses")}
        losses = record["losses"] or [None]
        for behind, loss in zip(reversed(range(len(losses))), losses, strict=True):
            found = {} if behind else kappa
            epoch = record["epoch"] - behind
            yield replace(shared, epoch=epoch, measured=not behind, loss=loss, **found)


def sources(config: Config) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    sizes = {
        (network.samples, network.side, network.channels)
        for network in (getattr(config, name) for name in config.networks.split())
    }
    described = []
    for samples, side, channels in sorted(sizes):
        found = images(config.data, samples, config.data_seed, side, channels)
        size = " x ".join(map(str, found.x.shape[1:]))
        described.append(f"{found.source}, standardised by channel: n={samples}, {size}")
    return described


EXPERIMENT = Experiment(
    "pruning_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['kappa']:.4g}",
    resumes=True,
    shape=shape,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
