"""kappa of networks that were pruned at initialisation, while they train: figures 1, 13 to 17.

python -m experiments.pruning_sweep --config=configs/pruning_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_network import kappa_fields
from gnjax import data as datasets
from gnjax import initializers
from gnjax.models import MLP, VGG, ResNet, ViT, freeze_statistics
from gnjax.models.vgg import VGG5
from gnjax.numerics.limits import LIMITS
from gnjax.operators.facts import factorisation_of
from gnjax.training import minibatch as training
from gnjax.training import pruning
from gnjax.training.minibatch import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import Claim, Verdict, not_testable, printed, verdict
from sweeps.grid import Experiment, Measurement
from sweeps.rows import length, means, where
from sweeps.storage.checkpoint import Checkpoint, resumed
from sweeps.table import Columns

KERNELS = "*kernel*"  # what is pruned: the weights of linear and convolution layers
FEWEST_EPOCHS = 20
WIDTH = 100  # of the feed-forward network


@dataclass(frozen=True)
class Kind:
    """A network: its figure, how it is made, and about how large it is at the paper's size.

    ``make`` takes the depth, the shape (side, side, channels) of an image, k and a key.
    """

    figure: str
    make: Callable[[int, tuple[int, ...], int, jax.Array], nnx.Module]
    weights: float
    work: float  # multiplications of a forward pass of a 32 x 32 image


def _vit(depth: int, shape: tuple[int, ...], outputs: int, key: jax.Array) -> ViT:
    return ViT(shape[0], outputs, depth=depth, channels=shape[2], key=key)


def _resnet(depth: int, shape: tuple[int, ...], outputs: int, key: jax.Array) -> ResNet:
    return ResNet(depth, outputs, channels=shape[2], key=key)


def _vgg(depth: int, shape: tuple[int, ...], outputs: int, key: jax.Array) -> VGG:
    return VGG(shape[0], outputs, filters=VGG5[: depth - 1], channels=shape[2], key=key)


def _feed_forward(depth: int, shape: tuple[int, ...], outputs: int, key: jax.Array) -> MLP:
    """Hidden layers of width 100, and PyTorch's biases."""
    model = MLP((int(np.prod(shape)), *[WIDTH] * (depth - 1), outputs), key=key)
    initializers.start_as_pytorch(model, key)
    return model


KINDS: Mapping[str, Kind] = {
    "vit": Kind("13", _vit, 1.2e5, 8e6),
    "resnet20": Kind("14", _resnet, 2.7e5, 4.1e7),
    "resnet32": Kind("15", _resnet, 4.7e5, 7e7),
    "vgg5": Kind("16", _vgg, 2.4e5, 1.3e7),
    "feed_forward": Kind("17", _feed_forward, 3.2e5, 3.2e5),
}


@dataclass(frozen=True)
class Network:
    """How one network is trained and looked at.

    ``depth`` counts layers, of the transformer its blocks. ``side`` is the side of the downsampled
    images, 0 for images as they are; ``rates`` are the shares of every layer's weights that are
    pruned, and kappa is measured ``every`` so many epochs.
    """

    depth: int
    samples: int
    side: int
    rates: tuple[float, ...]
    seeds: int
    epochs: int
    every: int
    recipe: Recipe

    def __post_init__(self) -> None:
        if min(self.samples, self.seeds, self.epochs, self.every) < 1 or not self.rates:
            msg = f"samples, seeds, epochs and every must be at least 1, with rates; got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """What figures 1 and 13 to 17 are made of."""

    paper_ratios: regimes.Rows
    data: str
    data_seed: int
    method: str  # of the condition number
    vit: Network
    resnet20: Network
    resnet32: Network
    vgg5: Network
    feed_forward: Network


@dataclass(frozen=True)
class Cell:
    """One network, pruned at one rate, from one initialisation to the end of its training."""

    figure: str
    network: str
    depth: int
    data: str
    data_seed: int
    samples: int
    side: int
    pruned: float
    seed: int
    epochs: int
    every: int
    method: str
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """One network after one epoch; where kappa was not ``measured``, it is empty."""

    figure: str
    network: str
    depth: int
    pruned: float
    seed: int
    epoch: int
    measured: bool
    samples: int
    inputs: int
    outputs: int
    parameters: int  # that are left
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
    evidence: str | None = None  # the weakest that the interval rests on
    failure: float | None = None
    resolved: bool = False
    method: str = ""
    rank: int | None = None
    lambda_max: float | None = None
    lambda_min: float | None = None


def cells(config: Config) -> tuple[Cell, ...]:
    """The most expensive first."""
    found = [
        Cell(
            kind.figure,
            name,
            network.depth,
            config.data,
            config.data_seed,
            network.samples,
            network.side,
            rate,
            seed,
            network.epochs,
            network.every,
            config.method,
            network.recipe,
        )
        for name, kind in KINDS.items()
        for network in [getattr(config, name)]
        for rate in network.rates
        for seed in range(network.seeds)
    ]
    return tuple(sorted(found, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications: k backward passes and a product J J^T a kappa, three passes an epoch."""
    kind, size = KINDS[cell.network], 10.0 * cell.samples
    work = kind.work * ((cell.side or 32) / 32) ** 2
    left = kind.weights * (1 - cell.pruned)
    stops = 1 + cell.epochs / cell.every
    kappa = 3 * size * work + size**2 * left + size**3 / 3
    return stops * kappa + 3.0 * cell.epochs * cell.samples * work


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, side, side, channels) with mean 0 and variance 1 of every channel."""

    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: int
    source: str


@cache
def images(data: str, samples: int, seed: int, side: int) -> Images:
    """Load, and downsample to ``side`` (0: not at all)."""
    dataset = datasets.load(data, samples=samples, seed=seed)
    inputs, shape = dataset.inputs, dataset.shape
    if side:
        inputs = datasets.downsample(inputs, shape, (side, side))
        shape = (side, side, *shape[2:])
    x = inputs.reshape(samples, *shape[:2], -1)
    x = (x - x.mean(axis=(0, 1, 2))) / x.std(axis=(0, 1, 2))
    return Images(x, dataset.labels, dataset.classes, dataset.source)


def measure(cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
    """Prune, train, and measure kappa at every stop."""
    found = images(cell.data, cell.samples, cell.data_seed, cell.side)
    x = found.x.reshape(len(found.x), -1) if cell.network == "feed_forward" else found.x
    key = jax.random.key(cell.seed)
    model = KINDS[cell.network].make(cell.depth, found.x.shape[1:], found.classes, key)
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), cell.pruned, only=KERNELS)
    problem, start = training.begin(model, x, found.labels, cell.recipe, key, mask=mask)

    def step(state: training.State, stop: int) -> tuple[training.State, Measurement]:
        state, losses = training.train(problem, state, stop - int(state.epoch))
        net = frozen(training.trained(model, state), x)
        kappa = _kappa(gnjax.ntk(net, x, mask=mask), cell)
        return state, {"epoch": stop, "losses": losses.tolist(), **kappa_fields(kappa)}

    stops = [*range(0, cell.epochs, cell.every), cell.epochs]
    return {
        "inputs": x[0].size,
        "outputs": found.classes,
        "parameters": pruning.remaining(mask),
        "records": resumed(checkpoint, start, stops, step),
    }


def _kappa(kernel: gnjax.Operator, cell: Cell) -> gnjax.ConditionNumber:
    """By the cell's method; unresolved, by the singular values of J where J fits."""
    found = gnjax.condition_number(kernel, method=cell.method, seed=cell.seed)
    factor = factorisation_of(kernel)
    if found.bounded or factor is None or factor.size_in_bytes > LIMITS.factor_bytes:
        return found
    return gnjax.condition_number(kernel, method="factored")


def frozen(net: nnx.Module, x: NDArray[np.float64]) -> nnx.Module:
    """With the statistics of these samples where there is BatchNorm."""
    norms = [node for _, node in nnx.iter_graph(net) if isinstance(node, nnx.BatchNorm)]
    return freeze_statistics(net, jax.numpy.asarray(x)) if norms else net


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    done = [cell for cell in cells(config) if cell in known]
    done.sort(key=lambda cell: (cell.figure, cell.pruned, cell.seed))
    return tuple(row for cell in done for row in _path(cell, known[cell]))


def _path(cell: Cell, measurement: Measurement) -> Iterator[Row]:
    """Epoch 0, then every epoch; those before a stop are not measured."""
    shared = Row(
        figure=cell.figure,
        network=cell.network,
        depth=cell.depth,
        pruned=cell.pruned,
        seed=cell.seed,
        epoch=0,
        measured=True,
        samples=cell.samples,
        inputs=measurement["inputs"],
        outputs=measurement["outputs"],
        parameters=measurement["parameters"],
        data=cell.data,
        optimizer=cell.recipe.optimizer,
        rate=cell.recipe.rate,
        batch=cell.recipe.batch,
        momentum=cell.recipe.momentum,
        decay=cell.recipe.decay,
        drop_after=cell.recipe.drop_after,
    )
    for record in measurement["records"]:
        kappa = {name: value for name, value in record.items() if name not in ("epoch", "losses")}
        losses = record["losses"] or [None]
        for behind, loss in zip(reversed(range(len(losses))), losses, strict=True):
            found = {} if behind else kappa
            epoch = record["epoch"] - behind
            yield replace(shared, epoch=epoch, measured=not behind, loss=loss, **found)


def sources(config: Config) -> list[str]:
    """What each data set really is; loading it here fails before any cell is computed."""
    sizes = {
        (network.samples, network.side) for network in (getattr(config, name) for name in KINDS)
    }
    described = []
    for samples, side in sorted(sizes):
        found = images(config.data, samples, config.data_seed, side)
        size = " x ".join(map(str, found.x.shape[1:]))
        described.append(f"{found.source}, standardised by channel: n={samples}, {size}")
    return described


def _by_rate(table: Columns, network: str) -> dict[float, Columns]:
    shown = where(table, network=network)
    return {float(rate): where(shown, pruned=rate) for rate in np.unique(shown["pruned"])}


def _too_small(rates: Mapping[float, Columns]) -> Verdict | None:
    if len(rates) < 2:
        return not_testable("fewer than 2 pruning rates")
    last = min(int(path["epoch"].max()) for path in rates.values())
    return not_testable(f"{last} epochs of training") if last < FEWEST_EPOCHS else None


def _kappa_grows(network: str) -> Callable[[Columns], Verdict]:
    """Whether the mean of kappa over epochs and seeds grows at every step of the rate."""

    def check(table: Columns) -> Verdict:
        rates = _by_rate(table, network)
        small = _too_small(rates)
        if small is not None:
            return small
        measured = {rate: where(path, measured=True) for rate, path in rates.items()}
        found = {rate: float(path["kappa"].mean()) for rate, path in measured.items()}
        unresolved = {rate: length(where(path, resolved=False)) for rate, path in measured.items()}
        regime = f"{_epochs_of_growth(measured)}; {_left(measured)}"
        return _growing(found, "mean kappa", regime, unresolved)

    return check


def _epochs_of_growth(measured: Mapping[float, Columns]) -> str:
    """At how many of the epochs kappa grows at every step of the rate."""
    curves = [means(path, "epoch", "kappa") for path in measured.values()]
    rising = np.all([high[1] > low[1] for low, high in pairwise(curves)], axis=0)
    epochs = [str(epoch) for epoch in curves[0][0][rising]]
    listed = f" ({', '.join(epochs)})" if epochs else ""
    return f"it grows at {rising.sum()} of {len(rising)} epochs{listed}"


def _left(measured: Mapping[float, Columns]) -> str:
    """Of p parameters for k n outputs, how many for each: pruning bends J J^T once they are few.

    A ResNet20 of the paper has 27, and 2.7 when nine in ten are pruned.
    """
    shares = [
        float((path["parameters"] / (path["samples"] * path["outputs"])).min())
        for path in measured.values()
    ]
    low, high = min(measured), max(measured)
    return f"{shares[0]:.3g} parameters an output at {low:g}, {shares[-1]:.3g} at {high:g}"


def _loss_grows(network: str) -> Callable[[Columns], Verdict]:
    """Whether the loss of the last epoch, averaged over seeds, grows at every step of the rate."""

    def check(table: Columns) -> Verdict:
        rates = _by_rate(table, network)
        small = _too_small(rates)
        if small is not None:
            return small
        found = {
            rate: float(where(path, epoch=path["epoch"].max())["loss"].mean())
            for rate, path in rates.items()
        }
        return _growing(found, "final loss", _epochs_behind(rates))

    return check


def _epochs_behind(rates: Mapping[float, Columns]) -> str:
    """The same for the mean over all epochs, which says how slow training was."""
    averaged = [np.nanmean(path["loss"]) for path in rates.values()]
    grows = all(high > low for low, high in pairwise(averaged))
    listed = ", ".join(f"{value:.3g}" for value in averaged)
    return f"averaged over epochs it {'grows' if grows else 'does not'}: {listed}"


def _growing(
    found: Mapping[float, float],
    name: str,
    regime: str,
    unresolved: Mapping[float, int] | None = None,
) -> Verdict:
    """Every step of the rate upwards; the number is the smallest ratio of a step.

    Where values are unresolved, the mean is a lower bound: it can show that a step goes up to it,
    and nothing else.
    """
    open_ended = {rate: count for rate, count in (unresolved or {}).items() if count}
    steps = {
        (a, b): found[b] / found[a]
        for a, b in pairwise(found)
        if a not in open_ended and (b not in open_ended or found[b] > found[a])
    }
    falling = [f"{a:g} to {b:g}" for (a, b), ratio in steps.items() if not ratio > 1]
    text = f"{name}: {', '.join(f'{value:.3g} at {rate:g}' for rate, value in found.items())}"
    text += f"; falls from {', '.join(falling)}" if falling else ""
    counts = ", ".join(f"{count} at {rate:g}" for rate, count in open_ended.items())
    text += f"; lower bounds, as kappas are unresolved: {counts}" if counts else ""
    if not falling and len(steps) < len(found) - 1:
        return not_testable(text)
    return verdict(not falling, min(steps.values()), f"{text}; {regime}")


CLAIMS = tuple(
    Claim("1, 14" if name == "resnet20" else kind.figure, statement, printed(""), check(name))
    for name, kind in KINDS.items()
    for statement, check in (
        ("averaged over epochs, kappa grows with the pruning rate", _kappa_grows),
        ("the final loss grows with the pruning rate", _loss_grows),
    )
)

EXPERIMENT = Experiment(
    "pruning_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['kappa']:.4g}",
    resumes=True,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
