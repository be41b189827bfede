"""kappa of linear CNNs over kernel size and number of filters: figure 8.

python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_cnn import (
    WHITENED_ON,
    WHITENINGS,
    gauss_newton,
    images,
    initial_weights,
)
from experiments.shared.linear_network import kappa_fields
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, printed, verdict
from sweeps.grid import Experiment, Measurement
from sweeps.rows import growth_exponent, means, where
from sweeps.table import Columns


@dataclass(frozen=True)
class Panel:
    """Kernel sizes times numbers of filters of networks of one depth, on one kind of data.

    ``depth`` counts the head. ``side`` is the side of the downsampled image, 0 for the image as it
    is. ZCA gives a whitened image, PCA its principal coordinates; the convolution runs over these.
    """

    depth: int
    kernels: tuple[int, ...]
    filters: tuple[int, ...]
    seeds: int
    side: int
    whitening: str = "zca"
    whitened_on: str = "drawn"

    def __post_init__(self) -> None:
        sizes = (*self.kernels, *self.filters)
        if not (self.kernels and self.filters) or min(sizes) < 1 or self.seeds < 1:
            msg = f"a panel needs kernels, filters and seeds of at least 1, got {self}"
            raise ValueError(msg)
        if self.depth < 2:
            msg = f"a CNN has a convolution and a head, so depth is at least 2, got {self.depth}"
            raise ValueError(msg)
        if self.whitening not in WHITENINGS or self.whitened_on not in WHITENED_ON:
            msg = (
                f"whitening is one of {', '.join(WHITENINGS)} and whitened_on one of "
                f"{', '.join(WHITENED_ON)}, got {self.whitening} and {self.whitened_on}"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Config:
    """What figure 8 is made of; a panel's name is its figure in the table."""

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    outputs: int
    gain: float
    initializer: str
    rtol: float
    two_layers: Panel
    three_layers: Panel  # beyond the paper
    pca: Panel  # two layers, the other ways to whiten
    all_whitened: Panel

    def panels(self) -> dict[str, Panel]:
        return {
            "8": self.two_layers,
            "8-depth-3": self.three_layers,
            "8-pca": self.pca,
            "8-all": self.all_whitened,
        }


@dataclass(frozen=True)
class Cell:
    """One network at initialisation on one whitened data set."""

    data: str
    samples: int
    data_seed: int
    side: int
    whitening: str
    whitened_on: str
    outputs: int
    gain: float
    initializer: str
    rtol: float
    depth: int
    kernel: int
    filters: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One use of a cell in a figure; ``data_rank`` is the rank of Sigma, ``size`` k times it."""

    figure: str
    depth: int
    kernel: int
    filters: int
    seed: int
    inputs: int
    data_rank: int
    outputs: int
    samples: int
    data: str
    whitening: str
    whitened_on: str
    gain: float
    parameters: int
    size: int
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


def _uses(config: Config) -> list[tuple[str, Cell]]:
    """Every (figure, cell), in the order of the table."""
    return [
        (
            figure,
            Cell(
                config.data,
                config.samples,
                config.data_seed,
                panel.side,
                panel.whitening,
                panel.whitened_on,
                config.outputs,
                config.gain,
                config.initializer,
                config.rtol,
                panel.depth,
                kernel,
                filters,
                seed,
            ),
        )
        for figure, panel in config.panels().items()
        for kernel in panel.kernels
        for filters in panel.filters
        for seed in range(panel.seeds)
    ]


def cells(config: Config) -> tuple[Cell, ...]:
    """The distinct cells, cheapest last so that the time left is not a surprise."""
    return tuple(sorted(dict.fromkeys(cell for _, cell in _uses(config)), key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the singular values of J, (k d, k d + shared weights)."""
    side = cell.outputs * (cell.side**2 or 784)
    shared = cell.kernel * cell.filters * (1 + (cell.depth - 2) * cell.filters)
    return float(side**2 * (side + shared))


def measure(cell: Cell) -> Measurement:
    """kappa from the singular values of the Jacobian by kernels and head."""
    seen = images(
        cell.data, cell.samples, cell.data_seed, cell.side, cell.whitening, cell.whitened_on
    )
    inputs, rank = seen.root.shape
    options = {"gain": cell.gain} if cell.initializer.startswith("kaiming") else {}
    kernels, head = initial_weights(
        inputs,
        cell.outputs,
        cell.kernel,
        [cell.filters] * (cell.depth - 1),
        cell.initializer,
        cell.seed,
        **options,
    )
    op = gauss_newton(kernels, head, seen.root)
    return {
        "inputs": inputs,
        "data_rank": rank,
        "samples": seen.samples,
        "parameters": sum(w.size for w in kernels) + head.size,
        "size": op.shape[0],
        **kappa_fields(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            figure=figure,
            depth=cell.depth,
            kernel=cell.kernel,
            filters=cell.filters,
            seed=cell.seed,
            outputs=cell.outputs,
            data=f"{cell.data}, whitened",
            whitening=cell.whitening,
            whitened_on=cell.whitened_on,
            gain=cell.gain,
            **known[cell],
        )
        for figure, cell in _uses(config)
        if cell in known
    )


def sources(config: Config) -> list[str]:
    """What each data set really is; loading it here fails before any cell is computed."""
    kinds = dict.fromkeys((p.side, p.whitening, p.whitened_on) for p in config.panels().values())
    return [images(config.data, config.samples, config.data_seed, *kind).source for kind in kinds]


_Curve = tuple[NDArray, NDArray]


def _curves(table: Columns, figure: str, over: str, by: str) -> dict[int, _Curve]:
    """For each value of ``by`` the geometric mean of kappa over the seeds, where it is resolved.

    kappa varies over decades between seeds at few filters, and one seed would decide a mean.
    """
    known = where(table, figure=figure, resolved=True)
    known = {**known, "log": np.log(known["kappa"])}
    found = {}
    for value in np.unique(known[by]):
        points, logs = means(where(known, **{by: value}), over, "log")
        found[int(value)] = points, np.exp(logs)
    return found


def _trend(figure: str, over: str, by: str, sign: int) -> Callable[[Columns], Verdict]:
    """sign * (the slope of log kappa over log ``over``) > 0 for every value of ``by``."""

    def check(table: Columns) -> Verdict:
        curves = _curves(table, figure, over, by)
        if not curves or min(len(points) for points, _ in curves.values()) < 3:
            return not_testable(f"fewer than 3 values of {over}")
        exponents = {value: growth_exponent(*curve) for value, curve in curves.items()}
        listed = ", ".join(f"{slope:+.2f} at {by} {value}" for value, slope in exponents.items())
        worst = min(exponents.values(), key=lambda slope: sign * slope)
        text = f"kappa ~ {over}^e, e = {listed}"
        if sign * worst <= 0:
            text += f"; it does {'rise' if sign > 0 else 'fall'} {_steps(curves, sign, by)}"
        return verdict(sign * worst > 0, worst, text)

    return check


def _steps(curves: Mapping[int, _Curve], sign: int, by: str) -> str:
    """The steps along which kappa goes in the direction of sign, and on which curves."""
    found: dict[tuple[int, int], list[int]] = {}
    for value, (points, kappa) in curves.items():
        for (a, before), (b, after) in pairwise(zip(points, kappa, strict=True)):
            if sign * (after - before) > 0:
                found.setdefault((int(a), int(b)), []).append(value)
    steps = [
        f"from {a} to {b} at {by} {', '.join(map(str, values))}"
        for (a, b), values in sorted(found.items())
    ]
    return "; ".join(steps) or "nowhere"


def _however_whitened(table: Columns) -> Verdict:
    """Slopes over filters and over kernels have the signs that they have in figure 8."""
    disagreeing, ratios = [], []
    for figure in ("8-pca", "8-all"):
        ratios.append(_ratio(table, figure))
        for over, by in (("filters", "kernel"), ("kernel", "filters")):
            main, other = _curves(table, "8", over, by), _curves(table, figure, over, by)
            common = [value for value in other if value in main and len(other[value][0]) >= 3]
            if not common:
                return not_testable(f"fewer than 3 values of {over} in {figure}")
            disagreeing += [
                f"{figure} over {over} at {by} {value}"
                for value in common
                if growth_exponent(*main[value]) * growth_exponent(*other[value]) < 0
            ]
    text = f"kappa relative to figure 8: {ratios[0]} by PCA, {ratios[1]} whitened on all the data"
    text += f"; other sign in {', '.join(disagreeing)}" if disagreeing else ""
    return verdict(not disagreeing, len(disagreeing), text)


def _ratio(table: Columns, figure: str) -> str:
    """The range of kappa over that of figure 8 for the same weights."""
    main = {_network(row): row["kappa"] for row in _rows(where(table, figure="8"))}
    ratios = [
        row["kappa"] / main[_network(row)]
        for row in _rows(where(table, figure=figure))
        if _network(row) in main
    ]
    return f"{min(ratios):.3g} to {max(ratios):.3g}" if ratios else "not compared"


def _rows(table: Columns) -> list[dict[str, float]]:
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _network(row: Mapping[str, float]) -> tuple[float, ...]:
    return row["kernel"], row["filters"], row["seed"]


def generic_rank(depth: int, kernel: int, filters: int, inputs: int, outputs: int) -> int:
    """The rank of G for generic weights and a Sigma of full rank.

    Two filters or more without a common root see every input: k d. One filter a layer is a single
    kernel of K' = (depth - 1) (K - 1) + 1 taps: the head moves k (d - K' + 1) directions, and of
    the K' that the kernels move all but their scale, which is the head's, are new.
    """
    if filters > 1:
        return outputs * inputs
    taps = (depth - 1) * (kernel - 1) + 1
    return outputs * (inputs - taps + 1) + taps - 1


def _has_generic_rank(table: Columns) -> Verdict:
    rows_ = [row for row in _rows(table) if row["data_rank"] == row["inputs"]]
    if not rows_:
        return not_testable("Sigma has full rank in no row")
    names = ("depth", "kernel", "filters", "inputs", "outputs")
    off = [row for row in rows_ if generic_rank(*(int(row[n]) for n in names)) != row["rank"]]
    single = sum(row["filters"] == 1 for row in rows_)
    text = f"{len(rows_) - len(off)} of {len(rows_)} networks, {single} of them with one filter"
    return verdict(not off, len(off), text)


CLAIMS = (
    Claim(
        "8",
        "kappa increases with the number of filters",
        printed(""),
        _trend("8", "filters", "kernel", 1),
    ),
    Claim(
        "8",
        "kappa decreases with the kernel size",
        printed(""),
        _trend("8", "kernel", "filters", -1),
    ),
    Claim(
        "8",
        "depth 3: kappa increases with the number of filters",
        BEYOND,
        _trend("8-depth-3", "filters", "kernel", 1),
    ),
    Claim(
        "8",
        "depth 3: kappa decreases with the kernel size",
        BEYOND,
        _trend("8-depth-3", "kernel", "filters", -1),
    ),
    Claim(
        "8",
        "the same trends by ZCA or PCA, whitened on the samples drawn or on all",
        printed(""),
        _however_whitened,
    ),
    Claim(
        "8",
        "rank k d, with one filter k (d - K' + 1) + K' - 1 where all kernels together have K' taps",
        printed(""),
        _has_generic_rank,
    ),
)

EXPERIMENT = Experiment(
    "cnn_sweep",
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
