"""kappa of one-hidden-layer linear networks over width, with and without normalisation: figure 7.

python -m experiments.batch_norm_sweep --config=configs/batch_norm_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.batch_norm_sweep import CLAIMS
from experiments.shared.certificate import CERTIFICATE
from experiments.shared.linear_network import initial_weights
from experiments.shared.published_data import first_images
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers import normalised
from sweeps import command_line
from sweeps.experiment import Experiment

NORMS = ("none", *normalised.STATISTICS, "layer")
ONE_HIDDEN = 2  # weight matrices
PANELS = {"7": "printed", "7-published": "published"}
_RGB = 3  # axes of an image in colour


@dataclass(frozen=True)
class Cell:
    """One network at initialisation on one set of samples, to be measured under every norm.

    Of the first ``samples`` images, in grey, every ``step``-th pixel is taken.
    """

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


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every width and seed, on the data of the figure and on those that the published code names.

    LayerNorm is measured at widths above the number d of pixels, where the rank of its Jacobian is
    known.
    """
    for figure, name in PANELS.items():
        panel = config[name]
        _check(panel, config.outputs)
        pixels = images(panel.data, panel.samples, panel.step).inputs.shape[1]
        shared = {"data": panel.data, "samples": panel.samples, "step": panel.step}
        for width in panel.widths:
            norms = tuple(n for n in panel.norms if n != "layer" or width > pixels)
            for seed in range(config.first_seed, config.first_seed + panel.seeds):
                own = {"norms": norms, "depth": ONE_HIDDEN, "width": width, "seed": seed}
                yield {"figure": figure}, {**shared, **own}


def _check(panel: ConfigDict, outputs: int) -> None:
    if not panel.widths or min(panel.widths) < outputs or panel.seeds < 1:
        msg = (
            f"widths of at least outputs={outputs} and seeds of at least 1 are needed, got {panel}"
        )
        raise ValueError(msg)
    unknown = set(panel.norms) - set(NORMS)
    if unknown:
        msg = f"norms are {', '.join(NORMS)}, got {', '.join(sorted(unknown))}"
        raise ValueError(msg)


def cost(cell: Cell) -> float:
    """Multiplications in the triangular factors: three for BatchNorm and one for LayerNorm."""
    inputs = images(cell.data, cell.samples, cell.step).inputs.shape[1]
    size = cell.outputs * (inputs + 1)
    batch = 3.0 * size**2 * inputs * cell.width
    if "layer" not in cell.norms:
        return batch
    return batch + (size + cell.samples) ** 2 * (cell.samples * cell.outputs + inputs**2)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """kappa under every norm for the same weights and samples, at the rank that theory gives.

    ``rank`` is the rank that theory predicts, and ``rank_found`` the number of eigenvalues above
    their errors. ``kappa_leading`` is lambda_1 / lambda_r, where r is the smaller of ``rank`` and
    BatchNorm's rank k (d + 1).
    """
    x = images(cell.data, cell.samples, cell.step).inputs
    pixels = x.shape[1]
    shared = {"inputs": pixels, "data": f"{cell.data}, grey, {pixels} pixels"}
    return [{**shared, "norm": norm, **_conditioning(cell, norm, x)} for norm in cell.norms]


def _conditioning(cell: Cell, norm: str, x: NDArray[np.float64]) -> dict[str, Any]:
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


def sources(config: ConfigDict) -> list[str]:
    panels = (config[name] for name in PANELS.values())
    return [images(p.data, p.samples, p.step).source for p in panels]


EXPERIMENT = Experiment(
    "batch_norm_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "norm", "depth", "width", "seed", "inputs", "outputs", "samples", "data"),
        *("gain", *CERTIFICATE[:-2], "rank_found", "lambda_max", "lambda_min", "kappa_leading"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
