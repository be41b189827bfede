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
from experiments.shared.linear_network import as_lists, at_index, initial_weights
from experiments.shared.published_data import first_images
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers.closed_form import normalised
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

NORMS = ("none", *normalised.STATISTICS, "layer")
ONE_HIDDEN = 2  # weight matrices
_RGB = 3  # axes of an image in colour


@dataclass(frozen=True)
class Panel:
    """The first ``samples`` images, grey, of which every ``step``-th pixel is taken."""

    data: str
    samples: int
    step: int
    widths: tuple[int, ...]
    norms: tuple[str, ...]
    seeds: int


@dataclass(frozen=True)
class Config:
    """The settings of figure 7; images are not whitened.

    LayerNorm is measured at widths above the number d of pixels, where the rank of its Jacobian is
    known.
    """

    paper_ratios: regimes.Rows
    outputs: int
    gain: float
    initializer: str
    epsilon: float
    first_seed: int
    printed: Panel  # figure 7
    published: Panel  # on the data that the published code names for it

    def __post_init__(self) -> None:
        for panel in self.panels().values():
            if not panel.widths or min(panel.widths) < self.outputs or panel.seeds < 1:
                msg = (
                    f"widths of at least outputs={self.outputs} and seeds of at least 1 are "
                    f"needed, got {panel}"
                )
                raise ValueError(msg)
            unknown = set(panel.norms) - set(NORMS)
            if unknown:
                msg = f"norms are {', '.join(NORMS)}, got {', '.join(sorted(unknown))}"
                raise ValueError(msg)

    def panels(self) -> dict[str, Panel]:
        return {"7": self.printed, "7-published": self.published}


@dataclass(frozen=True)
class Cell:
    """One network at initialisation on one set of samples, to be measured under every norm."""

    data: str
    samples: int
    step: int
    outputs: int
    gain: float
    initializer: str
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

    figure: str
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
def images(data: str, samples: int, step: int) -> Images:
    """The first images in grey (their luma), every so many-th pixel, without those always black."""
    dataset = first_images(data, samples, step)
    inputs, shape = dataset.inputs, dataset.shape
    if len(shape) == _RGB:
        inputs, shape = datasets.grayscale(inputs, shape), shape[:2]
    seen = inputs[:, inputs.any(axis=0)]
    pixels = seen.shape[1]
    if np.linalg.matrix_rank(seen - seen.mean(axis=0)) < pixels:
        msg = (
            f"{samples} images of {pixels} pixels do not span {pixels} dimensions about their "
            "mean; take more samples or a larger step"
        )
        raise ValueError(msg)
    return Images(seen, f"{dataset.source}, grey, {pixels} pixels, not whitened")


def _uses(config: Config) -> list[tuple[str, Cell]]:
    """Every (figure, cell), in the order of widths and seeds."""
    made = []
    for figure, panel in config.panels().items():
        pixels = images(panel.data, panel.samples, panel.step).inputs.shape[1]
        made += [
            (
                figure,
                copy_fields(
                    Cell,
                    config,
                    data=panel.data,
                    samples=panel.samples,
                    step=panel.step,
                    norms=tuple(n for n in panel.norms if n != "layer" or width > pixels),
                    depth=ONE_HIDDEN,
                    width=width,
                    seed=seed,
                ),
            )
            for width in panel.widths
            for seed in range(config.first_seed, config.first_seed + panel.seeds)
        ]
    return made


def cells(config: Config) -> tuple[Cell, ...]:
    """Every width and seed, the most expensive first, so that short ones are left at the end."""
    distinct = dict.fromkeys(cell for _, cell in _uses(config))
    return tuple(sorted(distinct, key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the triangular factors: three for BatchNorm and one for LayerNorm."""
    inputs = images(cell.data, cell.samples, cell.step).inputs.shape[1]
    size = cell.outputs * (inputs + 1)
    batch = 3.0 * size**2 * inputs * cell.width
    if "layer" not in cell.norms:
        return batch
    return batch + (size + cell.samples) ** 2 * (cell.samples * cell.outputs + inputs**2)


def measure(cell: Cell) -> Measurement:
    """kappa under every norm for the same weights and samples, at the rank that theory gives."""
    x = images(cell.data, cell.samples, cell.step).inputs
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
    return normalised.batch_norm_gauss_newton(inner, outer, x, statistics=norm, epsilon=epsilon)


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
            figure=figure,
            norm=norm,
            data=f"{cell.data}, grey, {measured[cell]['inputs']} pixels",
            **at_index(measured[cell], cell.norms.index(norm)),
        )
        for norm in NORMS
        for figure, cell in _uses(config)
        if cell in measured and norm in cell.norms
    )


def sources(config: Config) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    return [images(p.data, p.samples, p.step).source for p in config.panels().values()]


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
