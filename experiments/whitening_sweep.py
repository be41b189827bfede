"""kappa of linear networks over depth on raw and on whitened data: figure 19.

python -m experiments.whitening_sweep --config=configs/whitening_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.whitening_sweep import CLAIMS
from experiments.shared import linear_network
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.linear_network import bound_fields, initial_weights
from experiments.shared.published_data import strided
from experiments.shared.whitened import describe, whitened
from gnjax import data as datasets
from gnjax import papers
from sweeps import command_line
from sweeps.experiment import Experiment

WHITENED, RAW = "whitened", "raw"  # Sigma^0 and Sigma^1
FULL, SMALL = "19", "19-triangle"


@dataclass(frozen=True)
class Cell(linear_network.Cell):
    """One network at initialisation on inputs with every power of the covariance.

    ``powers`` are the t between 0 and 1 at which the inputs have covariance Sigma^t; the raw ones,
    t = 1, and the whitened ones, t = 0, always run. With a ``step`` above 0 the inputs are every so
    many-th pixel, and the published code's kappa of raw inputs is computed too.
    """

    powers: tuple[float, ...]
    step: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every network, then smaller ones on every so many-th pixel, with ``small_outputs`` outputs.

    Those are small enough for the dense matrix whose one triangle the published code reads.
    """
    if min(*config.depths, config.seeds) < 1:
        msg = f"depths and seeds must be at least 1, got {config.depths} and {config.seeds}"
        raise ValueError(msg)
    small = {"step": config.small_step, "side": 0, "width": config.small_width}
    small |= {"outputs": config.small_outputs, "powers": ()}
    for figure, sizes in ((FULL, {"step": 0}), (SMALL, small)):
        for depth in config.depths:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                yield {"figure": figure}, {"depth": depth, "seed": seed, **sizes}


def cost(cell: Cell) -> float:
    """Multiplications in the partial products, as if there were as many inputs as hidden units."""
    return float(cell.depth * cell.width**3)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """kappa and the bounds of Lemma 2 for the same weights, on inputs of every covariance.

    A rotation of the inputs does not change kappa. So the inputs are taken in the principal axes
    of the data, where Sigma is diagonal for raw inputs and the identity for whitened ones.
    ``covariance_condition`` is kappa(Sigma) of these inputs, and ``one_triangle`` what the
    published code takes for kappa on raw inputs.
    """
    if cell.step:
        return _small(cell)
    white = whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    weights = initial_weights(white.rank, cell)
    variances = np.asarray(white.variances)
    sigmas = (None, *(np.diag(variances**power) for power in (1.0, *cell.powers)))
    sizes = {"inputs": white.rank, "samples": white.samples, "one_triangle": None}
    return [sizes | one for one in _on_each(cell, weights, sigmas)]


def _on_each(
    cell: Cell, weights: Sequence[jax.Array], sigmas: Sequence[NDArray | None]
) -> Iterator[dict[str, Any]]:
    """kappa and the bounds on inputs of each covariance."""
    bounds = papers.bounds.linear_on_each(weights, sigmas)
    names = (WHITENED, RAW, *(f"Sigma^{power:g}" for power in cell.powers))
    for name, sigma, bound in zip(names, sigmas, bounds, strict=True):
        op = papers.linear_gauss_newton(weights, sigma)
        yield {
            "whitening": name,
            "covariance_condition": bound.covariance_condition,
            **certificate(gnjax.condition_number(op, rtol=cell.rtol, seed=cell.seed)),
            **bound_fields(bound),
        }


def _small(cell: Cell) -> list[dict[str, Any]]:
    """The same in the axes of the pixels, which decide what one triangle of a matrix holds."""
    x = _pixels(cell.data, cell.samples, cell.data_seed, cell.step).inputs
    sigma = datasets.covariance(x)
    weights = initial_weights(x.shape[1], cell)
    plain = np.asarray(papers.linear_gauss_newton(weights).as_matrix())
    columns = (None, from_one_triangle(plain @ np.kron(np.eye(cell.outputs), sigma)))
    measured = _on_each(cell, weights, (None, sigma))
    sizes = {"inputs": x.shape[1], "samples": len(x)}
    return [sizes | m | {"one_triangle": c} for m, c in zip(measured, columns, strict=True)]


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


def sources(config: ConfigDict) -> list[str]:
    drawn = config.data, config.samples, config.data_seed
    return [describe(*drawn, config.side), _pixels(*drawn, config.small_step).source]


EXPERIMENT = Experiment(
    "whitening_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "depth", "width", "whitening", "seed", "inputs", "outputs", "samples", "data"),
        *("gain", "covariance_condition", *CERTIFICATE),
        *("bound_convex", "bound_maximum", "bound_applicable", "one_triangle"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
