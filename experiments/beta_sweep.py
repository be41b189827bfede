"""kappa of residual networks over depth and skip strength: figures 5, 20, 21 and 22.

python -m experiments.beta_sweep --config=configs/beta_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.claims.beta_sweep import CLAIMS
from experiments.shared.linear_network import (
    Cell,
    as_lists,
    at_index,
    bound_fields,
    initial_weights,
    kappa_fields,
)
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from gnjax.papers.closed_form.linear import linear_gauss_newtons
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

BETAS: Mapping[str, Callable[[int], float]] = {
    "0": lambda depth: 0.0,
    "1/L": lambda depth: 1 / depth,
    "1/H": lambda depth: 1 / hidden_layers(depth),
    "1/sqrt(L)": lambda depth: depth**-0.5,
    "1/sqrt(H)": lambda depth: hidden_layers(depth) ** -0.5,
    "1": lambda depth: 1.0,
    "2": lambda depth: 2.0,
}
"""Each strength of the skip at L matrices. H = L - 1 hidden layers is what the published code of
paper A divides by; the paper's L counts matrices."""
LINEAR, RESIDUAL = "0", "1"


def hidden_layers(depth: int) -> int:
    """H of L matrices. One matrix alone has none, and its kappa does not depend on beta."""
    return max(depth - 1, 1)


@dataclass(frozen=True)
class Panel:
    """One data set, the width of its networks, and the betas, depths and seeds to draw.

    ``side`` is the side of the downsampled image, 0 for the image as it is.
    """

    data: str
    samples: int  # 0: all of them
    side: int
    outputs: int
    width: int
    betas: tuple[str, ...]
    depths: tuple[int, ...]
    seeds: int

    def __post_init__(self) -> None:
        unknown = set(self.betas) - set(BETAS)
        if unknown or not {LINEAR, RESIDUAL} <= set(self.betas):
            msg = f"betas are of {', '.join(BETAS)}, 0 and 1 among them, got {self.betas}"
            raise ValueError(msg)
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"a panel needs depths and seeds of at least 1, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """The settings of figures 5, 20, 21 and 22."""

    paper_ratios: regimes.Rows
    data_seed: int
    gain: float
    initializer: str
    rtol: float
    first_seed: int
    pair_seeds: int  # of figure 5 (left), whose networks are among those of figure 20
    grey: Panel  # of figures 5 (left) and 20: whitened MNIST in the paper
    colour: Panel  # of figures 5 (right), 21 and 22: whitened CIFAR-10 in the paper


@dataclass(frozen=True)
class Residual(Cell):
    """One network at initialisation on one data set, to be measured at each of these betas."""

    betas: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One beta of one cell in a figure.

    ``worst_term`` is the largest quotient over the layers of a term of Eq 7's sum,
    kappa^2(W_beta^{L:l+1}) kappa^2(W_beta^{1:l-1}), and the same term at the next smaller beta.
    """

    figure: str
    depth: int
    width: int
    beta: str
    skip: float
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
    kappa: float
    kappa_low: float
    kappa_high: float
    evidence: str  # the weakest kind that the interval rests on
    failure: float
    resolved: bool
    method: str
    rank: int
    lambda_max: float
    lambda_min: float
    bound_convex: float | None
    bound_maximum: float | None
    bound_applicable: bool
    worst_term: float | None


def _panel_cells(config: Config, panel: Panel, seeds: int) -> list[Residual]:
    return [
        copy_fields(
            Residual,
            panel,
            data_seed=config.data_seed,
            gain=config.gain,
            initializer=config.initializer,
            rtol=config.rtol,
            depth=depth,
            seed=seed,
        )
        for depth in panel.depths
        for seed in range(config.first_seed, config.first_seed + seeds)
    ]


def _uses(config: Config) -> list[tuple[str, tuple[str, ...], list[Residual]]]:
    """Every figure with the betas that it draws and its cells, in the order of the table."""
    pair = (LINEAR, RESIDUAL)
    few = min(config.pair_seeds, config.grey.seeds)
    grey = _panel_cells(config, config.grey, config.grey.seeds)
    colour = _panel_cells(config, config.colour, config.colour.seeds)
    return [
        ("5-left", pair, _panel_cells(config, config.grey, few)),
        ("5-right", pair, colour),
        ("20", config.grey.betas, grey),
        ("21", pair, colour),
        ("22", config.colour.betas, colour),
    ]


def cells(config: Config) -> tuple[Residual, ...]:
    """The distinct cells, the most expensive first, so that short ones are left at the end."""
    distinct = dict.fromkeys(cell for _, _, used in _uses(config) for cell in used)
    return tuple(sorted(distinct, key=cost, reverse=True))


def cost(cell: Residual) -> float:
    """Multiplications in the partial products, as if there were as many inputs as hidden units."""
    return float(len(cell.betas) * cell.depth * cell.width**3)


def measure(cell: Residual) -> Measurement:
    """kappa and the bounds of Eq 7 at every beta, for the same weights and whitened data."""
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    skips = [BETAS[beta](cell.depth) for beta in cell.betas]
    ops = linear_gauss_newtons(initial_weights(white.rank, cell), skips)
    found, terms = [], []
    for skip, op in zip(skips, ops, strict=True):
        kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
        bound = papers.bounds.of_operator(op)
        found.append({"skip": skip, **kappa_fields(kappa), **bound_fields(bound)})
        terms.append(bound.terms)
    worst = worst_terms(skips, terms)
    found = [{**one, "worst_term": term} for one, term in zip(found, worst, strict=True)]
    return {"inputs": white.rank, "samples": white.samples, **as_lists(found)}


def worst_terms(skips: Sequence[float], terms: Sequence[NDArray]) -> list[float | None]:
    """For each skip the largest quotient over the layers of its terms and those of the next below.

    None at the smallest skip, where the next smaller one is the same, and where a product of
    matrices is rank deficient, so that its term is infinite.
    """
    order = sorted(range(len(skips)), key=lambda index: skips[index])
    found: list[float | None] = [None] * len(skips)
    for below, index in pairwise(order):
        finite = np.isfinite(terms[index]).all() and np.isfinite(terms[below]).all()
        if finite and skips[below] < skips[index]:
            found[index] = float((terms[index] / terms[below]).max())
    return found


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            figure=figure,
            beta=beta,
            data=f"{cell.data}, whitened",
            **at_index(measured[cell], cell.betas.index(beta)),
        )
        for figure, betas, used in _uses(config)
        for cell in used
        if cell in measured
        for beta in betas
    )


def sources(config: Config) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    panels = (config.grey, config.colour)
    return [describe(p.data, p.samples, config.data_seed, p.side) for p in panels]


EXPERIMENT = Experiment(
    "beta_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {min(measurement['kappa']):.4g} to {max(measurement['kappa']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
