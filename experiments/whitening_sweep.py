"""kappa of linear networks over depth on raw and on whitened data: figure 19.

python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import jax
import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.claims.whitening_sweep import CLAIMS
from experiments.shared import linear_network
from experiments.shared.linear_network import (
    as_lists,
    at_index,
    bound_fields,
    initial_weights,
    kappa_fields,
)
from experiments.shared.published_data import strided
from experiments.shared.whitened import describe, whitened
from gnjax import data as datasets
from gnjax import papers
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

WHITENED, RAW = "whitened", "raw"  # Sigma^0 and Sigma^1
FULL, SMALL = "19", "19-triangle"


@dataclass(frozen=True)
class Config:
    """The settings of figure 19. ``powers`` are the t between 0 and 1 at which the inputs have
    covariance Sigma^t; the raw ones, t = 1, and the whitened ones, t = 0, always run.

    ``small_step`` and ``small_width`` are those of networks on every so many-th pixel, small
    enough for the dense matrix whose one triangle the published code reads; k = ``small_outputs``.
    """

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
    powers: tuple[float, ...]
    small_step: int
    small_width: int
    small_outputs: int
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.seeds < 1:
            msg = f"depths and seeds must be at least 1, got {self.depths} and {self.seeds}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell(linear_network.Cell):
    """One network at initialisation on inputs with every power of the covariance.

    With a ``step`` above 0 the inputs are every so many-th pixel, and the published code's kappa
    of raw inputs is computed too.
    """

    powers: tuple[float, ...]
    step: int


@dataclass(frozen=True)
class Row:
    """One network on inputs of covariance Sigma^t: whitened, raw or, in between, "Sigma^t".

    ``one_triangle`` is what the published code takes for kappa on raw inputs.
    """

    figure: str
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
    one_triangle: float | None


def _uses(config: Config) -> list[tuple[str, Cell]]:
    """Every (figure, cell), in the order of the table."""
    small = {
        "step": config.small_step,
        "side": 0,
        "width": config.small_width,
        "outputs": config.small_outputs,
        "powers": (),
    }
    return [
        (figure, copy_fields(Cell, config, depth=depth, seed=seed, **sizes))
        for figure, sizes in ((FULL, {"step": 0}), (SMALL, small))
        for depth in config.depths
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]


def cells(config: Config) -> tuple[Cell, ...]:
    """The cells, the most expensive first, so that short ones are left at the end."""
    return tuple(sorted((cell for _, cell in _uses(config)), key=cost, reverse=True))


def cost(cell: Cell) -> float:
    """Multiplications in the partial products, as if there were as many inputs as hidden units."""
    return float(cell.depth * cell.width**3)


def measure(cell: Cell) -> Measurement:
    """kappa and the bounds of Lemma 2 for the same weights, on inputs of every covariance.

    A rotation of the inputs does not change kappa. So the inputs are taken in the principal axes
    of the data, where Sigma is diagonal for raw inputs and the identity for whitened ones.
    """
    if cell.step:
        return _small(cell)
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    weights = initial_weights(white.rank, cell)
    variances = np.asarray(white.variances)
    sigmas = (None, *(np.diag(variances**power) for power in (1.0, *cell.powers)))
    found = [{**one, "one_triangle": None} for one in _on_each(cell, weights, sigmas)]
    return {"inputs": white.rank, "samples": white.samples, **as_lists(found)}


def _on_each(
    cell: Cell, weights: Sequence[jax.Array], sigmas: Sequence[NDArray | None]
) -> Iterator[Measurement]:
    """kappa and the bounds on inputs of each covariance."""
    bounds = papers.bounds.linear_on_each(weights, sigmas)
    for sigma, bound in zip(sigmas, bounds, strict=True):
        op = papers.linear_gauss_newton(weights, sigma)
        yield {
            "covariance_condition": bound.covariance_condition,
            **kappa_fields(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
            **bound_fields(bound),
        }


def _small(cell: Cell) -> Measurement:
    """The same in the axes of the pixels, which decide what one triangle of a matrix holds."""
    x = _pixels(cell.data, cell.samples, cell.data_seed, cell.step).inputs
    sigma = datasets.covariance(x)
    weights = initial_weights(x.shape[1], cell)
    plain = np.asarray(papers.linear_gauss_newton(weights).as_matrix())
    columns = (None, from_one_triangle(plain @ np.kron(np.eye(cell.outputs), sigma)))
    measured = _on_each(cell, weights, (None, sigma))
    found = [{**m, "one_triangle": c} for m, c in zip(measured, columns, strict=True)]
    return {"inputs": x.shape[1], "samples": len(x), **as_lists(found)}


def from_one_triangle(matrix: NDArray) -> float:
    """What the published code of paper A takes for kappa of U^T U (I (x) Sigma), (k d, k d).

    It asks a routine for symmetric matrices for the eigenvalues of this product, which is not
    symmetric where Sigma is not a multiple of the identity. The routine reads the lower triangle
    alone. The absolute values are sorted, and the largest is divided by the r-th, where r is the
    numerical rank of the product itself.
    """
    values = np.sort(np.abs(np.linalg.eigvalsh(matrix)))[::-1]
    return float(values[0] / values[np.linalg.matrix_rank(matrix) - 1])


@cache
def _pixels(data: str, samples: int, seed: int, step: int) -> datasets.Dataset:
    return strided(datasets.load(data, samples=samples or None, seed=seed), step)


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """The table, of the cells that have a measurement."""
    return tuple(
        copy_fields(
            Row, cell, figure=figure, whitening=whitening, **at_index(measured[cell], index)
        )
        for figure, cell in _uses(config)
        if cell in measured
        for index, whitening in enumerate(inputs(cell))
    )


def inputs(cell: Cell) -> tuple[str, ...]:
    """The names of the inputs, in the order in which a cell measures them."""
    return (WHITENED, RAW, *(f"Sigma^{power:g}" for power in cell.powers))


def sources(config: Config) -> list[str]:
    drawn = config.data, config.samples, config.data_seed
    return [describe(*drawn, config.side), _pixels(*drawn, config.small_step).source]


EXPERIMENT = Experiment(
    "whitening_sweep",
    cells,
    measure,
    rows,
    cost,
    lambda measurement: f"kappa {measurement['kappa'][0]:.4g}, raw {measurement['kappa'][1]:.4g}",
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
