"""kappa of linear networks over depth on raw and on whitened data: figure 19.

python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import gnjax
from experiments.shared.linear_network import (
    Cell,
    bound_fields,
    initial_weights,
    kappa_fields,
    listed,
    picked,
)
from experiments.shared.whitened import describe, whitened
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import Claim, Verdict, not_testable, printed, verdict
from sweeps.effects import bound_holds
from sweeps.grid import Experiment, Measurement
from sweeps.rows import means, where
from sweeps.table import Columns

INPUTS = ("whitened", "raw")
ABOUT = 10.0  # an order of magnitude, on the figure's logarithmic axis


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
    rtol: float
    width: int
    depths: tuple[int, ...]
    seeds: int

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"depths and seeds must be at least 1, got {self.depths} and {self.seeds}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Row:
    """One network on whitened or on raw inputs."""

    depth: int
    width: int
    whitening: str
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    covariance_condition: float  # kappa(Sigma) of these inputs
    kappa: float
    kappa_low: float
    kappa_high: float
    evidence: str  # the weakest that the interval rests on
    failure: float
    resolved: bool
    method: str
    rank: int
    lambda_max: float
    lambda_min: float
    bound_convex: float | None
    bound_maximum: float | None
    bound_applicable: bool


def cells(config: Config) -> tuple[Cell, ...]:
    """The cells, cheapest last so that the time left is not a surprise."""
    found = [
        Cell(
            config.data,
            config.samples,
            config.data_seed,
            config.side,
            config.outputs,
            config.gain,
            config.initializer,
            config.rtol,
            depth,
            config.width,
            seed,
        )
        for depth in config.depths
        for seed in range(config.seeds)
    ]
    return tuple(sorted(found, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the partial products, for as many inputs as hidden units."""
    return float(cell.depth * cell.width**3)


def measure(cell: Cell) -> Measurement:
    """kappa and the bounds of Lemma 2 for the same weights, with Sigma = I and as it is.

    A rotation of the inputs leaves kappa as it is, so that the weights are drawn in the principal
    axes of the data: Sigma is diagonal there, and whitening is a division by its roots.
    """
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    weights = initial_weights(white.rank, cell)
    found = []
    for sigma in (None, np.diag(white.variances)):
        op = gnjax.linear_gauss_newton(weights, sigma)
        bound = gnjax.bounds.linear(weights, sigma)
        found.append(
            {
                "covariance_condition": bound.covariance_condition,
                **kappa_fields(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
                **bound_fields(bound),
            }
        )
    return {"inputs": white.rank, "samples": white.samples, **listed(found)}


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            depth=cell.depth,
            width=cell.width,
            whitening=whitening,
            seed=cell.seed,
            outputs=cell.outputs,
            data=cell.data,
            gain=cell.gain,
            **picked(known[cell], index),
        )
        for cell in cells(config)
        if cell in known
        for index, whitening in enumerate(INPUTS)
    )


def sources(config: Config) -> list[str]:
    return [describe(config.data, config.samples, config.data_seed, config.side)]


def _lowers(table: Columns) -> Verdict:
    """kappa_high(whitened) < kappa_low(raw) in every network."""
    white, raw = (where(table, whitening=kind) for kind in INPUTS)
    if not len(white["depth"]):
        return not_testable("no rows")
    ratios = raw["kappa_low"] / white["kappa_high"]
    text = f"smallest kappa(raw) / kappa(whitened) {ratios.min():.4g} over {ratios.size} networks"
    return verdict(bool(ratios.min() > 1), ratios.min(), text)


def _by_kappa_of_sigma(table: Columns) -> Verdict:
    """kappa(raw) / kappa(whitened) / kappa(Sigma) is 1 to an order of magnitude at every L."""
    white, raw = (where(table, whitening=kind) for kind in INPUTS)
    if not (len(white["depth"]) and white["resolved"].all() and raw["resolved"].all()):
        return not_testable("no rows, or a kappa that is not resolved")
    ratio = raw["kappa"] / white["kappa"] / raw["covariance_condition"]
    depths, logs = means({**raw, "log": np.log(ratio)}, "depth", "log")
    shares = np.exp(logs)
    near = np.abs(logs) <= np.log(ABOUT)
    text = (
        f"kappa(raw) / kappa(whitened) is {shares[0]:.3g} kappa(Sigma) at L={depths[0]}, "
        f"{shares[-1]:.3g} at L={depths[-1]}; kappa(Sigma) {raw['covariance_condition'][0]:.3g}"
    )
    if not near.all():
        within = ", ".join(str(depth) for depth in depths[near])
        text += f"; within a factor of {ABOUT:g} at {f'L={within}' if within else 'no L'}"
    return verdict(bool(near.all()), shares[np.abs(logs).argmax()], text)


CLAIMS = (
    Claim("19", "whitening lowers kappa at every L", printed(""), _lowers),
    Claim("19", "whitening lowers kappa by about kappa(Sigma)", printed(""), _by_kappa_of_sigma),
    Claim("19", "kappa <= first bound in every cell", printed(""), bound_holds()),
)

EXPERIMENT = Experiment(
    "whitening_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa'][0]:.4g}, raw {measurement['kappa'][1]:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
