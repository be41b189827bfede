"""The top of the Hessian's spectrum beside Eq 15 while a two-layer linear network trains: B4.

python -m experiments.shallow_eigenvalues --config=configs/shallow_eigenvalues.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import gnjax
from experiments.shared.linear_network import picked
from experiments.shared.linear_training import (
    Data,
    Orthogonal,
    Point,
    Training,
    describe,
    hessian,
    orthogonal,
    train,
)
from gnjax import balanced
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, printed, verdict
from sweeps.grid import Experiment, Measurement
from sweeps.rows import means, where
from sweeps.table import Columns

LONG = 10_000  # epochs that the paper trains for
PRODUCTS = 500.0  # with the Hessian, at one epoch


@dataclass(frozen=True)
class Config:
    """Three data sets, one a panel."""

    paper_ratios: regimes.Rows
    a: Data
    b: Data
    c: Data
    sigma_x: float
    training: Training
    count: int  # eigenvalues, from the largest
    rtol: float  # of their residuals, relative to the norm
    seeds: int

    def __post_init__(self) -> None:
        if self.training.depth != 2 or self.count < 1 or self.seeds < 1:
            msg = f"Eq 15 is about 2 layers; count and seeds are at least 1, got {self}"
            raise ValueError(msg)

    def panels(self) -> dict[str, Data]:
        return {"a": self.a, "b": self.b, "c": self.c}


@dataclass(frozen=True)
class Cell:
    """One network, trained on one data set."""

    data: Data
    sigma_x: float
    training: Training
    count: int
    rtol: float
    seed: int


@dataclass(frozen=True)
class Row:
    """The ``index``-th largest eigenvalue after some epochs."""

    panel: str
    data: str
    epoch: int
    index: int
    seed: int
    depth: int
    width: int
    inputs: int
    outputs: int
    samples: int
    largest_share: float
    excess: float  # of the loss over its floor
    measured: float  # of the full Hessian
    error: float  # of ``measured``: an eigenvalue lies this close, proved by the residual
    predicted: float  # Eq 15
    bound: float  # |H - G|_2, which |measured - predicted| cannot exceed (Weyl)


def _uses(config: Config) -> Iterator[tuple[str, Cell]]:
    """Every (panel, cell), in the order of the table."""
    for panel, data in config.panels().items():
        for seed in range(config.seeds):
            yield (
                panel,
                Cell(data, config.sigma_x, config.training, config.count, config.rtol, seed),
            )


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(cell for _, cell in _uses(config)))


def cost(cell: Cell) -> float:
    """Multiplications of the epochs, and of the products with the Hessian."""
    inputs, outputs = cell.data.side**2 or 784, 10
    epoch = 6.0 * cell.training.width * inputs * outputs
    product = 6.0 * inputs * cell.training.width * (inputs + outputs)
    return max(cell.training.epochs) * epoch + len(cell.training.epochs) * PRODUCTS * product


def measure(cell: Cell) -> Measurement:
    """Lists over the epochs and, within each, over the eigenvalues."""
    found = orthogonal(cell.data, cell.sigma_x)
    lists: dict[str, list[float]] = {}
    for point in train(found, cell.training, cell.seed):
        for name, values in _spectrum(point, found, cell).items():
            lists.setdefault(name, []).extend(values)
    return {
        "inputs": found.inputs,
        "outputs": found.outputs,
        "samples": found.samples,
        "largest_share": found.largest_share,
        **lists,
    }


def _spectrum(point: Point, found: Orthogonal, cell: Cell) -> dict[str, list[float]]:
    """The largest eigenvalues of the Hessian, Eq 15, and how far apart they can be."""
    measured = gnjax.eigenvalues(
        hessian(point.weights, found.moments), k=cell.count, which="largest", rtol=cell.rtol
    )
    w1, w2 = point.weights
    predicted = balanced.shallow(w1, w2, cell.sigma_x).values[: cell.count]
    gap = balanced.shallow_gap(w1, w2, found.moments.covariance, found.moments.cross)
    return {
        "epoch": [point.epoch] * cell.count,
        "index": list(range(1, cell.count + 1)),
        "excess": [point.loss - found.floor] * cell.count,
        "measured": measured.values.tolist(),
        "error": measured.errors.tolist(),
        "predicted": predicted.tolist(),
        "bound": [gap] * cell.count,
    }


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            panel=panel,
            data=f"{cell.data.name}, orthogonalised",
            seed=cell.seed,
            depth=cell.training.depth,
            width=cell.training.width,
            **picked(known[cell], line),
        )
        for panel, cell in _uses(config)
        if cell in known
        for line in range(len(known[cell]["epoch"]))
    )


def sources(config: Config) -> list[str]:
    return [describe(data, config.sigma_x) for data in dict.fromkeys(config.panels().values())]


def percentage(table: Columns) -> np.ndarray:
    """By how many per cent of itself each eigenvalue is missed."""
    return 100 * np.abs(table["predicted"] - table["measured"]) / table["measured"]


def _curves(table: Columns) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Epochs, and the error averaged over eigenvalues and seeds, by panel."""
    with_error = {**table, "per cent": percentage(table)}
    return {
        str(panel): means(where(with_error, panel=panel), "epoch", "per cent")
        for panel in np.unique(table["panel"])
    }


def _falling(table: Columns) -> Verdict:
    curves = _curves(table)
    if min(len(epochs) for epochs, _ in curves.values()) < 3:
        return not_testable("fewer than 3 checkpoints")
    steps = {panel: float((e[1:] / e[:-1]).max()) for panel, (_, e) in curves.items()}
    worst = max(steps.values())
    listed = ", ".join(f"{step:.3f} ({panel})" for panel, step in steps.items())
    return verdict(worst < 1, worst, f"largest error(checkpoint) / error(the one before) {listed}")


def _final(table: Columns) -> Verdict:
    curves = _curves(table)
    last = int(table["epoch"].max())
    finals = {panel: float(errors[-1]) for panel, (_, errors) in curves.items()}
    worst = max(finals.values())
    listed = ", ".join(f"{final:.2g}% ({panel})" for panel, final in finals.items())
    text = f"after {last} epochs {listed}; at first "
    text += ", ".join(f"{errors[0]:.2g}% ({panel})" for panel, (_, errors) in curves.items())
    if last < LONG:
        return not_testable(f"{text}; the claim is about {LONG} epochs")
    return verdict(worst < 0.1, worst, text)


def _proved(table: Columns) -> Verdict:
    """Where the deviation from Eq 15 itself is smaller than the error, it would be unknown."""
    error = float((table["error"] / table["measured"]).max())
    share = float((table["error"] / np.abs(table["measured"] - table["predicted"])).max())
    text = f"an eigenvalue lies within {error:.1e} (relative) of each value"
    text += f", at most {share:.1e} of its distance from Eq 15"
    return verdict(error < 1e-6 and share < 0.01, error, text)


def _bounded(table: Columns) -> Verdict:
    apart = np.abs(table["measured"] - table["predicted"]) - table["error"]
    ratio = float((apart / table["bound"]).max())
    return verdict(ratio <= 1, ratio, f"largest |lambda - Eq 15| / |H - G| {ratio:.3f}")


CLAIMS = (
    Claim("B4", "Eq 15 becomes more precise from checkpoint to checkpoint", printed(""), _falling),
    Claim("B4", "final error of the top eigenvalues < 0.1%", printed(""), _final),
    Claim("B4", "the Hessian's eigenvalues are proved by residuals", printed(""), _proved),
    Claim("B4", "no eigenvalue is further from Eq 15 than |H - G|", BEYOND, _bounded),
)

EXPERIMENT = Experiment(
    "shallow_eigenvalues",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"loss {measurement['excess'][-1]:.2g} above its floor",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
