"""kappa of one-hidden-layer linear networks over width, with and without normalisation: figure 7.

python -m experiments.batch_norm_sweep --config=configs/batch_norm_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

import gnjax
from experiments.claims.batch_norm_sweep import CLAIMS
from experiments.shared.linear_network import Start, as_lists, at_index, initial_weights
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers.closed_form import normalised
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

NORMS = ("none", "batch", "frozen", "layer")
ONE_HIDDEN = 2  # weight matrices
_RGB = 3  # axes of an image in colour


@dataclass(frozen=True)
class Config:
    """The settings of figure 7; images are grey and ``side`` by ``side`` pixels, not whitened.

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
    first_seed: int
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

    ``rank`` is the rank that theory predicts, and ``rank_found`` the number of eigenvalues above
    their errors. ``kappa_leading`` is lambda_1 / lambda_r, where r is the smaller of ``rank`` and
    BatchNorm's rank k (d + 1).
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
    evidence: str  # the weakest kind that the interval rests on
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
    """Load images, turn colours into grey (their luma), and downsample to ``side`` by ``side``."""
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
    """Every width and seed, the most expensive first, so that short ones are left at the end."""
    made = [
        copy_fields(
            Cell,
            config,
            norms=NORMS if width > config.side**2 else NORMS[:-1],
            depth=ONE_HIDDEN,
            width=width,
            seed=seed,
        )
        for width in config.widths
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]
    return tuple(sorted(made, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the triangular factors: two for BatchNorm and one for LayerNorm."""
    size, inputs = cell.outputs * (cell.side**2 + 1), cell.side**2
    batch = 2.0 * size**2 * inputs * cell.width
    if "layer" not in cell.norms:
        return batch
    return batch + (size + cell.samples) ** 2 * (cell.samples * cell.outputs + inputs**2)


def measure(cell: Cell) -> Measurement:
    """kappa under every norm for the same weights and samples, at the rank that theory gives."""
    x = images(cell.data, cell.samples, cell.data_seed, cell.side).inputs
    found = [_conditioning(cell, norm, x) for norm in cell.norms]
    return {"inputs": x.shape[1], **as_lists(found)}


def _conditioning(cell: Cell, norm: str, x: NDArray[np.float64]) -> Measurement:
    inner, outer = initial_weights(x.shape[1], cell)
    spectrum = gnjax.eigenvalues(operator(norm, inner, outer, x, cell.epsilon))
    found, rank = papers.rank_sensitivity(spectrum), theoretical_rank(cell, norm, x.shape[1])
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
    """An operator with the non-zero eigenvalues of 1/n J J^T over all n samples and k outputs.

    It is small, because the range of J is known in closed form. Without normalisation F is linear
    in x, so that the samples enter through Sigma alone.
    """
    if norm == "none":
        return papers.linear_gauss_newton([inner, outer], datasets.covariance(x))
    if norm == "layer":
        return normalised.layer_norm_gauss_newton(inner, outer, x, epsilon=epsilon)
    frozen = norm == "frozen"
    return normalised.batch_norm_gauss_newton(inner, outer, x, frozen=frozen, epsilon=epsilon)


def theoretical_rank(cell: Cell, norm: str, inputs: int) -> int:
    """The rank of J. A linear network W V of width k or more can change W V in every direction."""
    if norm == "none":
        return cell.outputs * inputs
    if norm == "layer":
        return normalised.layer_norm_rank(
            inputs, cell.outputs, cell.width, cell.samples, cell.epsilon
        )
    return normalised.batch_norm_rank(inputs, cell.outputs, cell.width)


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row,
            cell,
            norm=norm,
            data=f"{cell.data}, grey, {cell.side} x {cell.side}",
            **at_index(measured[cell], cell.norms.index(norm)),
        )
        for norm in NORMS
        for cell in sorted(cells(config), key=lambda cell: (cell.width, cell.seed))
        if cell in measured and norm in cell.norms
    )


def sources(config: Config) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    return [images(config.data, config.samples, config.data_seed, config.side).source]


EXPERIMENT = Experiment(
    "batch_norm_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {min(measurement['kappa']):.4g} to {max(measurement['kappa']):.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
