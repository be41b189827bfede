"""kappa of linear networks over depth: figures 2a, 2b and 3.

python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import gnjax
from experiments.shared.linear_network import Cell, bound_fields, initial_weights, kappa_fields
from experiments.shared.whitened import describe, whitened
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import Claim, Verdict, not_testable, printed, verdict
from sweeps.effects import bound_holds
from sweeps.grid import Experiment, Measurement
from sweeps.rows import (
    exponential_fit,
    growth_exponent,
    length,
    means,
    polynomial_fit,
    r_squared,
    where,
)
from sweeps.table import Columns


@dataclass(frozen=True)
class Panel:
    """Depths and seeds, and either widths m or multipliers c of m = c L.

    ``side`` is the side of the downsampled image, 0 for the image as it is.
    """

    depths: tuple[int, ...]
    seeds: int
    side: int
    widths: tuple[int, ...] = ()
    multipliers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"a panel needs depths and seeds of at least 1, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """What figures 2a, 2b and 3 are made of; a panel's name is its figure in the table."""

    paper_ratios: regimes.Rows
    data: str
    samples: int  # 0: all of them
    data_seed: int
    outputs: int
    gain: float
    initializer: str
    rtol: float
    fixed_width: Panel  # 2a
    slow_growth: Panel  # 2b, left
    slow_reference: Panel  # a fixed width at the size of slow_growth, to compare exponents with
    fast_growth: Panel  # 2b, right
    many_seeds: Panel  # 3

    def panels(self) -> dict[str, Panel]:
        return {
            "2a": self.fixed_width,
            "2b-left": self.slow_growth,
            "2b-fixed": self.slow_reference,
            "2b-right": self.fast_growth,
            "3": self.many_seeds,
        }


@dataclass(frozen=True)
class Row:
    """One use of a cell in a figure."""

    figure: str
    depth: int
    width: int
    multiplier: int | None
    seed: int
    inputs: int
    outputs: int
    samples: int
    data: str
    gain: float
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


def _widths(panel: Panel, depth: int) -> list[tuple[int, int | None]]:
    fixed: list[tuple[int, int | None]] = [(width, None) for width in panel.widths]
    return fixed + [(c * depth, c) for c in panel.multipliers]


def _uses(config: Config) -> list[tuple[str, int | None, Cell]]:
    """Every (figure, multiplier, cell), in the order of the table."""
    return [
        (
            figure,
            multiplier,
            Cell(
                config.data,
                config.samples,
                config.data_seed,
                panel.side,
                config.outputs,
                config.gain,
                config.initializer,
                config.rtol,
                depth,
                width,
                seed,
            ),
        )
        for figure, panel in config.panels().items()
        for depth in panel.depths
        for width, multiplier in _widths(panel, depth)
        for seed in range(panel.seeds)
    ]


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, cheapest last so that the time left is not a surprise."""
    distinct = dict.fromkeys(cell for _, _, cell in _uses(config))
    return tuple(sorted(distinct, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the partial products and in the Krylov spaces."""
    inputs = cell.side**2 or 784
    chain = cell.depth * cell.width * inputs * (cell.width + 2 * inputs)
    return chain + 400.0 * cell.depth * cell.outputs * inputs**2


def measure(cell: Cell) -> Measurement:
    """kappa and the bounds of Lemma 2; whitened data, so Sigma is the identity of its rank."""
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    op = gnjax.linear_gauss_newton(initial_weights(white.rank, cell))
    kappa = gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)
    return {
        "inputs": white.rank,
        "samples": white.samples,
        **kappa_fields(kappa),
        **bound_fields(gnjax.bounds.of_operator(op)),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            figure=figure,
            depth=cell.depth,
            width=cell.width,
            multiplier=multiplier,
            seed=cell.seed,
            outputs=cell.outputs,
            data=f"{cell.data}, whitened",
            gain=cell.gain,
            **known[cell],
        )
        for figure, multiplier, cell in _uses(config)
        if cell in known
    )


def sources(config: Config) -> list[str]:
    """What each data set really is; loading it here fails before any cell is computed."""
    sides = dict.fromkeys(panel.side for panel in config.panels().values())
    return [describe(config.data, config.samples, config.data_seed, side) for side in sides]


def _by_width(table: Columns, figure: str) -> dict[int, Columns]:
    rows_ = where(table, figure=figure)
    return {int(m): where(rows_, width=m) for m in np.unique(rows_["width"])}


def _bounded(table: Columns, figure: str) -> Columns:
    return where(table, figure=figure, bound_applicable=True)


def _bound_tight(figure: str, limit: float) -> Any:
    def check(table: Columns) -> Verdict:
        bounded = _bounded(table, figure)
        if not length(bounded):
            return not_testable("no cell where Lemma 2 applies")
        ratios = bounded["bound_convex"] / bounded["kappa"]
        loose = ratios > limit
        text = f"largest bound / kappa {ratios.max():.3f}"
        if loose.any():
            first = bounded["depth"][loose].min()
            widest = bounded["width"][loose].max()
            text += f"; above {limit:g} from L={first}, at widths up to {widest}"
        return verdict(not loose.any(), ratios.max(), text)

    return check


def _quadratic(table: Columns) -> Verdict:
    found = []
    for width, rows_ in _by_width(table, "2a").items():
        depths, kappa = means(rows_, "depth", "kappa")
        if len(depths) < 4:
            return not_testable(f"{len(depths)} depths; a quadratic needs at least 4")
        quadratic = r_squared(kappa, polynomial_fit(depths, kappa, 2))
        exponential = r_squared(kappa, exponential_fit(depths, kappa))
        found.append((quadratic, exponential, width))
    if not found:
        return not_testable("no rows of figure 2a")
    worst = min(found)
    holds = all(q >= 0.98 and q > e for q, e, _ in found)
    text = f"R^2 {worst[0]:.4f} (exponential {worst[1]:.4f}) at the worst width, m={worst[2]}"
    losing = [str(m) for q, e, m in found if q <= e]
    text += f"; the exponential fits better at m={', '.join(losing)}" if losing else ""
    return verdict(holds, worst[0], text)


def _wider_is_better(table: Columns) -> Verdict:
    by_width = _by_width(table, "2a")
    if len(by_width) < 2:
        return not_testable("one width")
    curves = [means(rows_, "depth", "kappa")[1] for _, rows_ in sorted(by_width.items())]
    ratio = max(float((wide / narrow).max()) for narrow, wide in pairwise(curves))
    return verdict(ratio < 1, ratio, f"largest kappa(wider) / kappa(narrower) {ratio:.3f}")


def _slower_growth(table: Columns) -> Verdict:
    """Log-log slopes of kappa over depth, at m = c L and at fixed m, same data."""
    left, fixed = where(table, figure="2b-left"), where(table, figure="2b-fixed")
    if len(np.unique(left["depth"])) < 3 or len(np.unique(fixed["depth"])) < 3:
        return not_testable("fewer than 3 depths")
    reference = growth_exponent(*means(fixed, "depth", "kappa"))
    slopes = {
        int(c): growth_exponent(*means(where(left, multiplier=c), "depth", "kappa"))
        for c in np.unique(left["multiplier"])
    }
    steepest = max(slopes.values())
    listed = ", ".join(f"{slope:.2f} at c={c}" for c, slope in slopes.items())
    width = int(fixed["width"][0])
    text = f"exponents {listed}; {reference:.2f} at m={width}"
    return verdict(steepest < reference, steepest, text)


def _improves_with_depth(table: Columns) -> Verdict:
    right = where(table, figure="2b-right")
    gains = {}
    for c in np.unique(right["multiplier"]):
        depths, kappa = means(where(right, multiplier=c), "depth", "kappa")
        shallower = kappa[:-1][depths[:-1] >= 3]
        if not shallower.size:
            return not_testable("no shallower depth of at least 3")
        gains[int(c)] = float(kappa[-1] / shallower.max())
    if not gains:
        return not_testable("no rows")
    worst = max(gains.values())
    listed = ", ".join(f"{gain:.3f} at c={c}" for c, gain in gains.items())
    return verdict(worst < 1, worst, f"kappa(deepest) / worst shallower kappa: {listed}")


def _maximum_loosens(table: Columns) -> Verdict:
    bounded = _bounded(table, "3")
    ratio = bounded["bound_maximum"] / bounded["kappa"] if length(bounded) else np.array([])
    depths, loose = means({**bounded, "ratio": ratio}, "depth", "ratio")
    if len(depths) < 2:
        return not_testable("fewer than 2 depths where Lemma 2 applies")
    step = float((loose[1:] / loose[:-1]).min())
    text = f"maximum / kappa from {loose[0]:.3g} to {loose[-1]:.3g}, smallest step x{step:.3f}"
    return verdict(step > 1, step, text)


CLAIMS = (
    Claim("2a", "kappa <= convex bound in every cell", printed(""), bound_holds(figure="2a")),
    Claim("2a", "convex bound / kappa <= 2", printed(""), _bound_tight("2a", 2.0)),
    Claim(
        "2a",
        "quadratic in L at fixed m (R^2 >= 0.98), better than exponential",
        printed(""),
        _quadratic,
    ),
    Claim("2a", "wider is better at every L", printed(""), _wider_is_better),
    Claim("2b", "m = c L, small c: slower growth than at fixed m", printed(""), _slower_growth),
    Claim("2b", "m = c L, large c: improves with depth", printed(""), _improves_with_depth),
    Claim("3", "kappa <= convex <= maximum", printed(""), bound_holds(figure="3")),
    Claim("3", "maximum / kappa grows with L", printed(""), _maximum_loosens),
    Claim("3", "convex / kappa < 2", printed(""), _bound_tight("3", 2.0)),
)

EXPERIMENT = Experiment(
    "depth_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa']:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
