"""kappa and the first bound of Lemma 2 while a linear network trains: figure 10.

python -m experiments.training_path --config=configs/training_path.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import jax
import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_network import interval_fields
from experiments.shared.whitened import describe
from gnjax import data as datasets
from gnjax.models import LinearNet, linear
from gnjax.training import minibatch as training
from gnjax.training.minibatch import Recipe
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import Claim, Verdict, not_testable, printed, verdict
from sweeps.grid import Experiment, Measurement
from sweeps.rows import where
from sweeps.storage.checkpoint import Checkpoint, resumed
from sweeps.table import Columns

Check = Callable[[Columns], Verdict]

KAIMING, XAVIER = "kaiming_normal", "xavier_normal"
TITLES = {KAIMING: "Kaiming", XAVIER: "Xavier"}
OUTPUTS = 10
PAPER_RANGE = (6.0, 12.0)  # Appendix D
FEWEST_EPOCHS = 100
_SETTLED = 10


@dataclass(frozen=True)
class Config:
    """What figure 10 is made of; kappa is measured at ``stops`` epochs, closer at the start."""

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    side: int
    depth: int
    width: int
    initializers: tuple[str, ...]
    gain: float
    seeds: int
    epochs: int
    stops: int
    rtol: float
    dtype: str  # of the training; spectra are always in float64
    recipe: Recipe


@dataclass(frozen=True)
class Cell:
    """Networks of one initialisation, one for each seed, that train side by side."""

    data: str
    samples: int
    data_seed: int
    side: int
    depth: int
    width: int
    initializer: str
    gain: float
    seeds: int
    epochs: int
    stops: int
    rtol: float
    dtype: str
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """One network after one epoch; where kappa was not ``measured``, its columns are empty."""

    initializer: str
    seed: int
    epoch: int
    measured: bool
    depth: int
    width: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    rate: float
    batch: int
    dtype: str  # of the training
    loss: float | None  # the mean over the steps of this epoch
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    evidence: str | None  # the weakest that the interval rests on
    failure: float | None
    resolved: bool
    rank: int | None
    bound_convex: float | None


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            config.data,
            config.samples,
            config.data_seed,
            config.side,
            config.depth,
            config.width,
            initializer,
            config.gain,
            config.seeds,
            config.epochs,
            config.stops,
            config.rtol,
            config.dtype,
            config.recipe,
        )
        for initializer in config.initializers
    )


def cost(cell: Cell) -> float:
    """Multiplications of the epochs."""
    inputs = 3 * cell.side**2
    return float(cell.seeds * cell.epochs * cell.samples * cell.width * (inputs + cell.width))


@cache
def _whitened(data: str, samples: int, seed: int, side: int) -> tuple[NDArray, NDArray]:
    """Inputs whitened on these samples, so that Sigma = I, and labels."""
    loaded = datasets.load(data, samples=samples, seed=seed)
    small = datasets.downsample(loaded.inputs, loaded.shape, (side, side))
    return datasets.whiten(small).inputs, loaded.labels


def stops(epochs: int, count: int) -> list[int]:
    """0 and, evenly on a logarithmic scale, at most ``count`` epochs from 1 to the last."""
    return [0, *np.unique(np.geomspace(1, epochs, count).round().astype(int)).tolist()]


def measure(cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
    """Losses of every epoch, and kappa and the bound at every stop, for every seed."""
    inputs, labels = _whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    models = [_model(cell, inputs.shape[1], seed) for seed in range(cell.seeds)]
    begun = [
        training.begin(model, inputs, labels, cell.recipe, jax.random.key(seed), dtype=cell.dtype)
        for seed, model in enumerate(models)
    ]
    problem = begun[0][0]

    def step(state: training.State, stop: int) -> tuple[training.State, Measurement]:
        state, losses = training.train(problem, state, stop - int(state.epoch[0]))
        nets = [training.trained(m, training.member(state, i)) for i, m in enumerate(models)]
        seeds = [_kappa_and_bound(net, cell.rtol, seed) for seed, net in enumerate(nets)]
        return state, {"epoch": stop, "losses": losses.tolist(), "seeds": seeds}

    start = training.stack([state for _, state in begun])
    records = resumed(checkpoint, start, stops(cell.epochs, cell.stops), step)
    return {"inputs": inputs.shape[1], "records": records}


def _model(cell: Cell, inputs: int, seed: int) -> LinearNet:
    options = {"gain": cell.gain} if cell.initializer.startswith("kaiming") else {}
    return LinearNet(
        inputs,
        OUTPUTS,
        depth=cell.depth,
        width=cell.width,
        initializer=cell.initializer,
        key=jax.random.key(seed),
        **options,
    )


def _kappa_and_bound(net: LinearNet, rtol: float, seed: int) -> Measurement:
    """Whitened data, so the covariance is the identity."""
    op = gnjax.linear_gauss_newton(linear.weights(net))
    kappa = gnjax.condition_number(op, rtol=rtol, seed=seed)
    return {**interval_fields(kappa), "bound_convex": gnjax.bounds.of_operator(op).convex}


_UNMEASURED: Measurement = dict.fromkeys(
    ("kappa", "kappa_low", "kappa_high", "evidence", "failure", "rank", "bound_convex")
) | {"resolved": False}


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        row
        for cell in cells(config)
        if cell in known
        for seed in range(cell.seeds)
        for row in _rows_of_seed(cell, known[cell], seed)
    )


def _rows_of_seed(cell: Cell, measurement: Measurement, seed: int) -> Iterator[Row]:
    """Epoch 0, then every epoch; those before a stop are not measured."""
    for record in measurement["records"]:
        losses = [of_seeds[seed] for of_seeds in record["losses"]] or [None]
        for behind, loss in zip(reversed(range(len(losses))), losses, strict=True):
            found = _UNMEASURED if behind else record["seeds"][seed]
            yield Row(
                initializer=cell.initializer,
                seed=seed,
                epoch=record["epoch"] - behind,
                measured=behind == 0,
                depth=cell.depth,
                width=cell.width,
                inputs=measurement["inputs"],
                outputs=OUTPUTS,
                samples=cell.samples,
                data=f"{cell.data}, downsampled and whitened",
                gain=cell.gain,
                rate=cell.recipe.rate,
                batch=cell.recipe.batch,
                dtype=cell.dtype,
                loss=loss,
                **found,
            )


def sources(config: Config) -> list[str]:
    """What the data set really is; loading it here fails before any cell is computed."""
    return [describe(config.data, config.samples, config.data_seed, config.side)]


def _paths(table: Columns, initializer: str) -> list[Columns]:
    """One for each seed, the measured epochs in their order."""
    shown = where(table, initializer=initializer, measured=True)
    return [where(shown, seed=seed) for seed in np.unique(shown["seed"])]


def _last_epoch(paths: Sequence[Columns]) -> int:
    return max((int(path["epoch"].max()) for path in paths), default=0)


def _stays_near(initializer: str) -> Check:
    def check(table: Columns) -> Verdict:
        paths = _paths(table, initializer)
        last = _last_epoch(paths)
        if last < FEWEST_EPOCHS:
            return not_testable(f"{last} epochs; the paper has 5000")
        if not all(path["resolved"].all() for path in paths):
            return not_testable("a kappa is not resolved")
        spread = max(float(path["kappa"].max() / path["kappa"].min()) for path in paths)
        since = max(float(_later(path).max() / _later(path).min()) for path in paths)
        start = np.mean([path["kappa"][0] for path in paths])
        text = f"largest max / min {spread:.2f} over {last} epochs, from kappa {start:.1f}"
        text += f"; {since:.2f} from epoch {_SETTLED} on"
        text += "" if spread <= 2 else f"; holds up to epoch {min(map(_near_until, paths))}"
        return verdict(spread <= 2, spread, text)

    return check


def _near_until(path: Columns) -> int:
    """The last measured epoch up to which max / min is at most 2."""
    kappa = path["kappa"]
    near = np.maximum.accumulate(kappa) <= 2 * np.minimum.accumulate(kappa)
    return int(path["epoch"][near][-1])


def _later(path: Columns) -> NDArray:
    """kappa once the first steps, which have the largest gradients, are over."""
    return path["kappa"][path["epoch"] >= _SETTLED]


def _stays_tight(initializer: str) -> Check:
    def check(table: Columns) -> Verdict:
        paths = _paths(table, initializer)
        last = _last_epoch(paths)
        if last < FEWEST_EPOCHS:
            return not_testable(f"{last} epochs; the paper has 5000")
        bounded = [where(path, resolved=True) for path in paths]
        ratios = [path["bound_convex"] / path["kappa"] for path in bounded]
        finite = np.concatenate([*ratios, [np.nan]])
        finite = finite[np.isfinite(finite)]
        if not finite.size:
            return not_testable("no epoch where Lemma 2 applies")
        least, largest = finite.min(), finite.max()
        text = f"bound / kappa from {least:.3f} to {largest:.3f} over {last} epochs"
        return verdict(bool(least >= 1 and largest <= 1.6), largest, text)

    return check


def _in_range(initializer: str) -> Check:
    def check(table: Columns) -> Verdict:
        paths = _paths(table, initializer)
        last = _last_epoch(paths)
        if last < FEWEST_EPOCHS:
            return not_testable(f"{last} epochs; the paper has 5000")
        known = [where(path, resolved=True) for path in paths]
        kappa = np.concatenate([path["kappa"] for path in known])
        epochs = np.concatenate([path["epoch"] for path in known])
        inside = (kappa >= PAPER_RANGE[0]) & (kappa <= PAPER_RANGE[1])
        text = f"kappa from {kappa.min():.2f} to {kappa.max():.2f} over {last} epochs"
        if not inside.all():
            text += f", first outside at epoch {epochs[~inside].min()}"
            text += f"; {inside.mean():.0%} of the measurements inside"
        return verdict(bool(inside.all()), kappa.max(), text)

    return check


def _claims(initializer: str) -> tuple[Claim, ...]:
    name = TITLES[initializer]
    low, high = PAPER_RANGE
    return (
        Claim(
            "10",
            f"{name}: max / min of kappa over training <= 2",
            printed(""),
            _stays_near(initializer),
        ),
        Claim(
            "10",
            f"{name}: 1 <= bound / kappa <= 1.6 throughout",
            printed(""),
            _stays_tight(initializer),
        ),
        Claim(
            "10",
            f"{name}: kappa within the paper's {low:g} to {high:g}",
            printed(""),
            _in_range(initializer),
        ),
    )


CLAIMS = (*_claims(KAIMING), *_claims(XAVIER))

EXPERIMENT = Experiment(
    "training_path",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['records'][-1]['seeds'][0]['kappa']:.4g}",
    resumes=True,
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
