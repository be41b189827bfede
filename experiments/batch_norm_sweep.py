"""kappa of one-hidden-layer linear networks over width, with and without normalisation: figure 7.

python -m experiments.batch_norm_sweep --config=configs/batch_norm_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_network import Start, initial_weights, listed, picked
from gnjax import data as datasets
from gnjax.operators.closed_form import normalised
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, printed, verdict
from sweeps.effects import regime, trend
from sweeps.grid import Experiment, Measurement
from sweeps.rows import length, means, points, where
from sweeps.table import Columns

NORMS = ("none", "batch", "frozen", "layer")
ONE_HIDDEN = 2  # weight matrices
_RGB = 3  # axes of an image in colour


@dataclass(frozen=True)
class Config:
    """What figure 7 is made of; images are grey and ``side`` by ``side`` pixels, not whitened.

    LayerNorm is measured at widths above d = side^2, where the rank of its Jacobian is known.
    """

    paper_ratios: regimes.Rows
    data: str
    samples: int
    data_seed: int
    side: int
    outputs: int
    gain: float
    initializer: str
    epsilon: float
    widths: tuple[int, ...]
    seeds: int

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < self.outputs or self.seeds < 1:
            msg = (
                f"widths of at least outputs={self.outputs} and seeds of at least 1 are needed, "
                f"got widths={self.widths} and seeds={self.seeds}"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell(Start):
    """One network at initialisation on one set of samples, to be measured under every norm."""

    epsilon: float
    norms: tuple[str, ...]
    depth: int
    width: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One norm of one cell.

    ``rank`` is what theory says and ``rank_found`` the number of eigenvalues above their errors;
    ``kappa_leading`` is lambda_1 / lambda_r for the rank r of BatchNorm, k (d + 1), where there are
    more eigenvalues than that.
    """

    norm: str
    depth: int
    width: int
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
    rank_found: int
    lambda_max: float
    lambda_min: float
    kappa_leading: float


@dataclass(frozen=True, eq=False)
class Images:
    """Samples (n, d) of rank d, centred or not, and where they came from."""

    inputs: NDArray[np.float64]
    source: str


@cache
def images(data: str, samples: int, seed: int, side: int) -> Images:
    """Load, take the luma of colours, and downsample."""
    dataset = datasets.load(data, samples=samples, seed=seed)
    inputs, shape = dataset.inputs, dataset.shape
    if len(shape) == _RGB:
        inputs, shape = datasets.grayscale(inputs, shape), shape[:2]
    small = datasets.downsample(inputs, shape, (side, side))
    if np.linalg.matrix_rank(small - small.mean(axis=0)) < side**2:
        msg = (
            f"{samples} images of {side} x {side} pixels do not span {side**2} dimensions about "
            "their mean; take more samples or a smaller side"
        )
        raise ValueError(msg)
    return Images(small, f"{dataset.source}, grey, downsampled to {side} x {side}, not whitened")


def cells(config: Config) -> tuple[Cell, ...]:
    """Every width and seed, cheapest last so that the time left is not a surprise."""
    made = [
        Cell(
            config.data,
            config.samples,
            config.data_seed,
            config.side,
            config.outputs,
            config.gain,
            config.initializer,
            config.epsilon,
            NORMS if width > config.side**2 else NORMS[:-1],
            ONE_HIDDEN,
            width,
            seed,
        )
        for width in config.widths
        for seed in range(config.seeds)
    ]
    return tuple(sorted(made, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in triangular factors: of BatchNorm's, twice, and of LayerNorm's."""
    size, inputs = cell.outputs * (cell.side**2 + 1), cell.side**2
    batch = 2.0 * size**2 * inputs * cell.width
    if "layer" not in cell.norms:
        return batch
    return batch + (size + cell.samples) ** 2 * (cell.samples * cell.outputs + inputs**2)


def measure(cell: Cell) -> Measurement:
    """kappa under every norm for the same weights and samples, at the rank that theory gives."""
    x = images(cell.data, cell.samples, cell.data_seed, cell.side).inputs
    found = [_conditioning(cell, norm, x) for norm in cell.norms]
    return {"inputs": x.shape[1], **listed(found)}


def _conditioning(cell: Cell, norm: str, x: NDArray[np.float64]) -> Measurement:
    inner, outer = initial_weights(x.shape[1], cell)
    spectrum = gnjax.eigenvalues(operator(norm, inner, outer, x, cell.epsilon))
    found, rank = gnjax.rank_sensitivity(spectrum), theoretical_rank(cell, norm, x.shape[1])
    leading = min(rank, cell.outputs * (x.shape[1] + 1))
    return {
        "kappa": float(found.kappa[rank - 1]),
        "kappa_low": float(found.low[rank - 1]),
        "kappa_high": float(found.high[rank - 1]),
        "evidence": spectrum.certificate.kind,
        "failure": spectrum.certificate.failure,
        "resolved": found.floor_rank >= rank,
        "method": spectrum.method,
        "rank": rank,
        "rank_found": found.floor_rank,
        "lambda_max": float(found.values[0]),
        "lambda_min": float(found.values[rank - 1]),
        "kappa_leading": float(found.kappa[leading - 1]),
    }


def operator(
    norm: str, inner: ArrayLike, outer: ArrayLike, x: NDArray[np.float64], epsilon: float
) -> gnjax.Operator:
    """1/n J J^T on few coordinates, all n samples and k outputs considered, for every norm.

    Without normalisation F is linear in x, and of the samples only Sigma is left.
    """
    if norm == "none":
        return gnjax.linear_gauss_newton([inner, outer], datasets.covariance(x))
    if norm == "layer":
        return normalised.layer_norm_gauss_newton(inner, outer, x, epsilon=epsilon)
    frozen = norm == "frozen"
    return normalised.batch_norm_gauss_newton(inner, outer, x, frozen=frozen, epsilon=epsilon)


def theoretical_rank(cell: Cell, norm: str, inputs: int) -> int:
    """Of J; for a linear network W V, of width k or more, every change of W V is within reach."""
    if norm == "none":
        return cell.outputs * inputs
    if norm == "layer":
        return normalised.layer_norm_rank(
            inputs, cell.outputs, cell.width, cell.samples, cell.epsilon
        )
    return normalised.batch_norm_rank(inputs, cell.outputs, cell.width)


def rows(config: Config, measured: Mapping[Cell, Measurement] | None = None) -> tuple[Row, ...]:
    """The table; cells are measured here unless their measurements are given."""
    known = {cell: measure(cell) for cell in cells(config)} if measured is None else measured
    return tuple(
        Row(
            norm=norm,
            depth=cell.depth,
            width=cell.width,
            seed=cell.seed,
            outputs=cell.outputs,
            samples=cell.samples,
            data=f"{cell.data}, grey, {cell.side} x {cell.side}",
            gain=cell.gain,
            **picked(known[cell], cell.norms.index(norm)),
        )
        for norm in NORMS
        for cell in sorted(cells(config), key=lambda cell: (cell.width, cell.seed))
        if cell in known and norm in cell.norms
    )


def sources(config: Config) -> list[str]:
    """What the data really is; loading it here fails before any cell is computed."""
    return [images(config.data, config.samples, config.data_seed, config.side).source]


def _lowers(better: str, worse: str) -> Callable[[Columns], Verdict]:
    """Mean kappa under one norm below that under another at every width where both are measured."""

    def check(table: Columns) -> Verdict:
        low, high = _both(table, better, worse)
        if not length(low) or not (low["resolved"].all() and high["resolved"].all()):
            return not_testable("no width with both, or a kappa that is not resolved")
        widths, kappa = means(low, "width", "kappa")
        ratios = kappa / means(high, "width", "kappa")[1]
        text = f"kappa({better}) / kappa({worse}) {points('m', widths, ratios)}"
        text += regime("m", widths, ratios < 1)
        return verdict(bool((ratios < 1).all()), ratios.max(), text)

    return check


def _both(table: Columns, first: str, second: str) -> tuple[Columns, Columns]:
    """The rows of two norms at the widths that they share."""
    shared = np.intersect1d(where(table, norm=first)["width"], where(table, norm=second)["width"])
    kept = np.isin(table["width"], shared)
    common = {name: column[kept] for name, column in table.items()}
    return where(common, norm=first), where(common, norm=second)


def _layer_norm(table: Columns) -> Verdict:
    """As ``_lowers``, with the reason: which of the eigenvalues are the small ones."""
    found = _lowers("layer", "none")(table)
    layer, none = _both(table, "layer", "none")
    if not length(layer):
        return found
    widths, leading = means(layer, "width", "kappa_leading")
    ratios = leading / means(none, "width", "kappa")[1]
    text = (
        f"{found.text}; its outputs bend with x, which gives rank {layer['rank'][0]} in place of "
        f"{none['rank'][0]}, and the eigenvalues beyond BatchNorm's rank are the small ones: up "
        f"to it, the ratio is {points('m', widths, ratios)}"
    )
    return Verdict(found.status, found.number, text)


def _falls(norm: str) -> Callable[[Columns], Verdict]:
    return lambda table: trend(where(table, norm=norm), "width", "m", rises=False)


def _ranks(table: Columns) -> Verdict:
    off = np.abs(table["rank_found"] - table["rank"])
    ranks = dict.fromkeys(zip(table["norm"].tolist(), table["rank"].tolist(), strict=True))
    listed_ = ", ".join(f"{norm} {rank}" for norm, rank in ranks)
    text = f"{listed_}; {int((off > 0).sum())} of {len(off)} cells have another number"
    return verdict(bool((off == 0).all()), float(off.max()), text)


CLAIMS = (
    Claim("7", "BatchNorm lowers kappa at every m", printed(""), _lowers("batch", "none")),
    Claim("7", "kappa decreases with m without BatchNorm", printed(""), _falls("none")),
    Claim("7", "kappa decreases with m with BatchNorm", printed(""), _falls("batch")),
    Claim(
        "7",
        "with statistics held fixed it lowers kappa at every m",
        printed(""),
        _lowers("frozen", "none"),
    ),
    Claim(
        "7",
        "differentiating through the statistics lowers kappa",
        printed(""),
        _lowers("batch", "frozen"),
    ),
    Claim("7", "LayerNorm lowers kappa at every m", BEYOND, _layer_norm),
    Claim("7", "as many eigenvalues as theory says are non-zero", printed(""), _ranks),
)

EXPERIMENT = Experiment(
    "batch_norm_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {min(measurement['kappa']):.4g} to {max(measurement['kappa']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


def main(arguments: Sequence[str] | None = None) -> int:
    return cli.main(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
