"""Partial products of linear networks over the layer: figures 11 and 12.

python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import gnjax
from experiments.shared.linear_network import Start, initial_weights, picked
from experiments.shared.whitened import describe, whitened
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import Claim, Verdict, not_testable, printed, verdict
from sweeps.grid import Experiment, Measurement
from sweeps.rows import length, means, polynomial_fit, r_squared, where
from sweeps.table import Columns


@dataclass(frozen=True)
class Config:
    paper_ratios: regimes.Rows
    data: str
    samples: int  # 0: all of them
    data_seed: int
    side: int  # of the downsampled image, 0 for the image as it is
    outputs: int
    gain: float
    initializer: str
    depths: tuple[int, ...]
    width: int
    seeds: int


@dataclass(frozen=True)
class Cell(Start):
    """One network at initialisation on one whitened data set."""

    depth: int
    width: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One layer l of one network; left is W^{L:l+1}, right is W^{1:l-1}."""

    depth: int
    layer: int
    width: int
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    left_kappa2: float
    left_smallest2: float
    right_kappa2: float
    right_smallest2: float
    weight: float  # gamma_l
    term: float  # left_kappa2 right_kappa2


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            config.data,
            config.samples,
            config.data_seed,
            config.side,
            config.outputs,
            config.gain,
            config.initializer,
            depth,
            config.width,
            seed,
        )
        for depth in config.depths
        for seed in range(config.seeds)
    )


def cost(cell: Cell) -> float:
    inputs = cell.side**2 or 784
    return float(cell.depth * cell.width * inputs * (cell.width + 2 * inputs))


def measure(cell: Cell) -> Measurement:
    """The layer spectra behind Lemma 2, by layer."""
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    bound = gnjax.bounds.linear(initial_weights(white.rank, cell))
    if not bound.applicable:
        raise ValueError(bound.reason)
    return {
        "inputs": white.rank,
        "samples": white.samples,
        "left_kappa2": list((bound.left_largest / bound.left_smallest) ** 2),
        "left_smallest2": list(bound.left_smallest**2),
        "right_kappa2": list((bound.right_largest / bound.right_smallest) ** 2),
        "right_smallest2": list(bound.right_smallest**2),
        "weight": list(bound.weights),
        "term": list(bound.terms),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            depth=cell.depth,
            layer=layer + 1,
            width=cell.width,
            seed=cell.seed,
            outputs=cell.outputs,
            data=f"{cell.data}, whitened",
            gain=cell.gain,
            **picked(known[cell], layer),
        )
        for cell in cells(config)
        if cell in known
        for layer in range(cell.depth)
    )


def sources(config: Config) -> list[str]:
    return [describe(config.data, config.samples, config.data_seed, config.side)]


def _exponential(column: str, growing: bool) -> Callable[[Columns], Verdict]:
    """Mean over seeds of log(column) is linear in l at the deepest L, with the expected sign.

    The verdict is over all layers; the fit without the two ends (the identity, and the product
    that stops at a width of k or d) stands beside it.
    """

    def check(table: Columns) -> Verdict:
        deepest = where(table, depth=table["depth"].max())
        layers, logs = means({**deepest, "log": np.log(deepest[column])}, "layer", "log")
        if len(layers) < 4:
            return not_testable(f"{len(layers)} layers; a fit needs at least 4")
        slope = float(np.polyfit(layers, logs, 1)[0])
        fit = r_squared(logs, polynomial_fit(layers, logs, 1))
        inner = slice(1, -1)
        inside = r_squared(logs[inner], polynomial_fit(layers[inner], logs[inner], 1))
        text = (
            f"R^2 {fit:.4f}, factor {np.exp(slope):.3f} a layer at L={layers[-1]} "
            f"(without both ends R^2 {inside:.4f})"
        )
        gain = float(deepest["gain"][0])
        if column.endswith("smallest2") and gain != 1:
            factor = np.exp(slope) * gain ** (-1 if column.startswith("right") else 1)
            text += f"; factor {factor:.3f} with the gain {gain:g} of every layer divided out"
        return verdict(fit >= 0.95 and (slope > 0) == growing, fit, text)

    return check


def _self_balancing(table: Columns) -> Verdict:
    """max / min over l of Lemma 2's terms without and with gamma_l, mean of logs over networks."""
    deepest = where(table, depth=table["depth"].max())
    if not length(deepest):
        return not_testable("no rows")
    plain, weighted = [], []
    for seed in np.unique(deepest["seed"]):
        one = where(deepest, seed=seed)
        plain.append(np.ptp(np.log(one["term"])))
        weighted.append(np.ptp(np.log(one["term"] * one["weight"])))
    spread, balanced = np.exp(np.mean(plain)), np.exp(np.mean(weighted))
    text = (
        f"max/min over l {spread:.1f} without gamma, {balanced:.1f} with: "
        f"{spread / balanced:.2f} times less at L={deepest['depth'][0]}"
    )
    return verdict(spread / balanced > 2, spread / balanced, text)


CLAIMS = (
    Claim(
        "11",
        "kappa^2(W^{1:l-1}) grows exponentially in l",
        printed(""),
        _exponential("right_kappa2", True),
    ),
    Claim(
        "11",
        "sigma_min^2(W^{1:l-1}) decays exponentially in l",
        printed(""),
        _exponential("right_smallest2", False),
    ),
    Claim("11", "kappa^2(W^{L:l+1}) mirrors it", printed(""), _exponential("left_kappa2", False)),
    Claim(
        "11", "sigma_min^2(W^{L:l+1}) mirrors it", printed(""), _exponential("left_smallest2", True)
    ),
    Claim("12", "weighted terms spread far less (more than 2 times)", printed(""), _self_balancing),
)

EXPERIMENT = Experiment(
    "layer_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"largest term {max(measurement['term']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
