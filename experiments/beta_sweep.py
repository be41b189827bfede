"""kappa of residual networks over depth and skip strength: figures 5, 20, 21 and 22.

python -m experiments.beta_sweep --config=configs/beta_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.beta_sweep import CLAIMS
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.linear_network import Cell, bound_fields, initial_weights
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from gnjax.papers import linear_gauss_newtons
from sweeps import command_line
from sweeps.experiment import Experiment

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
class Residual(Cell):
    """One network at initialisation on one data set, to be measured at each of these betas."""

    betas: tuple[str, ...]


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Figures that draw other betas or fewer seeds of a panel share its cells."""
    pair = (LINEAR, RESIDUAL)
    for figure, name, betas, seeds in (
        ("5-left", "grey", pair, min(config.pair_seeds, config.grey.seeds)),
        ("5-right", "colour", pair, config.colour.seeds),
        ("20", "grey", config.grey.betas, config.grey.seeds),
        ("21", "colour", pair, config.colour.seeds),
        ("22", "colour", config.colour.betas, config.colour.seeds),
    ):
        panel = config[name]
        _check(panel)
        sizes = {key: panel[key] for key in Residual.__dataclass_fields__ if key in panel}
        for depth in panel.depths:
            for seed in range(config.first_seed, config.first_seed + seeds):
                for beta in betas:
                    labels = {"figure": figure, "beta": beta}
                    yield labels, {**sizes, "depth": depth, "seed": seed}


def _check(panel: ConfigDict) -> None:
    unknown = set(panel.betas) - set(BETAS)
    if unknown or not {LINEAR, RESIDUAL} <= set(panel.betas):
        msg = f"betas are of {', '.join(BETAS)}, 0 and 1 among them, got {panel.betas}"
        raise ValueError(msg)
    if not panel.depths or min(panel.depths) < 1 or panel.seeds < 1:
        msg = f"a panel needs depths and seeds of at least 1, got {panel}"
        raise ValueError(msg)


def cost(cell: Residual) -> float:
    """Multiplications in the partial products, as if there were as many inputs as hidden units."""
    return float(len(cell.betas) * cell.depth * cell.width**3)


def measure(cell: Residual) -> list[dict[str, Any]]:
    """kappa and the bounds of Eq 7 at every beta, for the same weights and whitened data.

    ``worst_term`` is the largest quotient over the layers of a term of Eq 7's sum,
    kappa^2(W_beta^{L:l+1}) kappa^2(W_beta^{1:l-1}), and the same term at the next smaller beta.
    """
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    skips = [BETAS[beta](cell.depth) for beta in cell.betas]
    shared = {"data": f"{cell.data}, whitened", "inputs": white.rank, "samples": white.samples}
    ops = linear_gauss_newtons(initial_weights(white.rank, cell), skips)  # one at a time is there
    rows, terms = [], []
    for beta, skip, op in zip(cell.betas, skips, ops, strict=True):
        kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
        bound = papers.bounds.of_operator(op)
        own = {"beta": beta, "skip": skip, **certificate(kappa), **bound_fields(bound)}
        rows.append({**shared, **own})
        terms.append(bound.terms)
    worst = worst_terms(skips, terms)
    return [{**row, "worst_term": term} for row, term in zip(rows, worst, strict=True)]


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


def sources(config: ConfigDict) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    panels = (config.grey, config.colour)
    return [describe(p.data, p.samples, config.data_seed, p.side) for p in panels]


EXPERIMENT = Experiment(
    "beta_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "depth", "width", "beta", "skip", "seed", "inputs", "outputs", "samples"),
        *("data", "gain", *CERTIFICATE),
        *("bound_convex", "bound_maximum", "bound_applicable", "worst_term"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
