"""kappa of Leaky-ReLU networks over their width and slope: figures 6 and 23.

python -m experiments.alpha_sweep --config=configs/alpha_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.alpha_sweep import CLAIMS, COMPUTED, TRUE
from experiments.shared import orthonormal_samples
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.linear_network import weights
from experiments.shared.published_data import first_images, orthonormal
from experiments.shared.whitened import drawn
from gnjax import data as datasets
from gnjax import papers
from gnjax.papers import leaky_relu_gauss_newtons
from sweeps import command_line
from sweeps.experiment import Experiment

ONE_HIDDEN, TWO_HIDDEN = 2, 3  # weight matrices
SIGNS = {TRUE: 1.0, COMPUTED: -1.0}
"""Of Lambda's entries where a unit is off: the derivative alpha, and -alpha, as the published code
and Appendix H have it."""


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Figure 23 at every slope, figure 6 at one of them, of the same cells."""
    for name, panel in config.panels.items():
        if panel.widths and (min(*panel.widths, panel.seeds) < 1 or 0.0 not in panel.slopes):
            msg = f"{name} needs widths and seeds of at least 1, and slope 0 among its slopes"
            raise ValueError(msg)
        for width in panel.widths:
            for seed in range(config.first_seed, config.first_seed + panel.seeds):
                yield (
                    {"panel": name},
                    dict(
                        data=panel.data,
                        side=panel.side,
                        samples=panel.samples,
                        whitening=panel.whitening,
                        depth=panel.depth,
                        outputs=panel.outputs,
                        slopes=panel.slopes,
                        width=width,
                        seed=seed,
                    ),
                )


def measure(
    data: str,
    side: int,  # of the downsampled image, 0 for the image as it is
    samples: int,
    whitening: str,  # "samples": of these, the first of the file; "all": of all, then these drawn
    outputs: int,
    gain: float,
    initializer: str,
    rtol: float,
    slopes: tuple[float, ...],
    depth: int,
    width: int,
    seed: int,
) -> list[dict[str, Any]]:
    """A row for every slope and sign of Lambda, of the same weights and samples."""
    x = _samples(data, side, samples, whitening, seed)
    drawn_weights = weights((x.shape[1], *[width] * (depth - 1), outputs), initializer, gain, seed)
    if depth == TWO_HIDDEN:
        each = _two_hidden(x, drawn_weights, slopes)
    elif whitening == "samples":
        each = _orthonormal(x, drawn_weights, slopes)
    else:
        each = _drawn(x, drawn_weights, slopes)
    # Both ends of thousands of rows come from products far sooner than from a factorisation, unless
    # kappa is large, as of samples that were drawn.
    method = "krylov" if samples * outputs > 2000 and whitening == "samples" else "auto"
    of_all = {"data": f"{data}, {_WHITENED[whitening]}", "inputs": x.shape[1]}
    found = []
    for slope, signs, op, bounds in each:
        kappa = gnjax.condition_number(op, rtol=rtol, seed=seed, method=method)
        row = {**of_all, "slope": slope, **certificate(kappa), **bounds}
        found += [{**row, "sign": sign} for sign in signs]
    return found


_WHITENED = {"samples": "these samples whitened", "all": "whitened, then drawn"}


def _samples(data: str, side: int, samples: int, whitening: str, seed: int) -> NDArray[np.float64]:
    """(n, d): X X^T = I of the first n, or n rows drawn by the seed of data with Sigma = I."""
    if whitening == "all":
        return drawn(data, 0, seed, side, samples).inputs
    return _first_whitened(data, side, samples)


@cache
def _first_whitened(data: str, side: int, samples: int) -> NDArray[np.float64]:
    images = first_images(data, samples)
    x = images.inputs
    if side:
        x = datasets.downsample(x, images.shape, (side, side))
    if len(x) > x.shape[1]:
        msg = f"{len(x)} samples in {x.shape[1]} dimensions cannot be orthonormal; take fewer"
        raise ValueError(msg)
    return orthonormal(x)


Each = Iterator[tuple[float, tuple[str, ...], gnjax.Operator, dict[str, Any]]]
"""A slope, the signs in Lambda that it stands for, its matrix and its bounds."""
_NO_BOUND = {"bound": None, "bound_trace": None, "bound_applicable": False}


def _orthonormal(
    x: NDArray[np.float64], drawn_weights: list[jax.Array], slopes: tuple[float, ...]
) -> Each:
    """One hidden layer on orthonormal samples, at both signs, with both forms of Eq 11."""
    inner, outer = (np.asarray(w) for w in drawn_weights)
    for slope in slopes:
        each = [((sign,), factor * slope) for sign, factor in SIGNS.items()]
        for signs, signed in each if slope else [(tuple(SIGNS), 0.0)]:
            net = orthonormal_samples.layer(inner, outer, x, signed)
            bound = orthonormal_samples.bounds(net)
            fields = {
                "bound": bound.sharp,
                "bound_trace": bound.trace,
                "bound_applicable": bound.sharp is not None,
            }
            yield slope, signs, orthonormal_samples.gauss_newton(net), fields


def _drawn(
    x: NDArray[np.float64], drawn_weights: list[jax.Array], slopes: tuple[float, ...]
) -> Each:
    """One hidden layer on samples that are not orthonormal, with the true derivative."""
    inner, outer = drawn_weights
    ops = leaky_relu_gauss_newtons(inner, outer, x.T, slopes)
    for slope, op in zip(slopes, ops, strict=True):
        bound = papers.bounds.leaky_relu(inner, outer, x.T, slope)
        fields = {**_NO_BOUND, "bound": bound.value, "bound_applicable": bound.applicable}
        yield slope, (TRUE,), op, fields


def _two_hidden(
    x: NDArray[np.float64], drawn_weights: list[jax.Array], slopes: tuple[float, ...]
) -> Each:
    """Two hidden layers and no bound: no theorem covers more than one."""
    for slope in slopes:
        yield slope, (TRUE,), gnjax.ntk(network(drawn_weights, slope), x), _NO_BOUND


def network(drawn_weights: list[jax.Array], slope: float) -> tuple[Any, list[jax.Array]]:
    """The Leaky-ReLU network of these weights, as a function and its parameters."""

    def apply(params: list[jax.Array], x: jax.Array) -> jax.Array:
        *hidden, last = params
        for w in hidden:
            x = jax.nn.leaky_relu(x @ w.T, slope)
        return x @ last.T

    return apply, drawn_weights


def cost(
    samples: int, outputs: int, width: int, slopes: tuple[float, ...], whitening: str
) -> float:
    """Multiplications in forming the matrices and in one Cholesky factor of each."""
    size = samples * outputs
    formed = size**2 * width if whitening == "all" else samples**2 * width
    return float(formed + 2 * len(slopes) * size**3 / 6)


def sources(config: ConfigDict) -> list[str]:
    """The source of the data, which are loaded here: missing data end the run at once."""
    told = []
    for panel in config.panels.values():
        if panel.whitening == "all":
            told.append(drawn(panel.data, 0, config.first_seed, panel.side, panel.samples).source)
        else:
            size = f", downsampled to {panel.side} x {panel.side}" if panel.side else ""
            source = first_images(panel.data, panel.samples).source
            told.append(f"{source}{size}, whitened to X X^T = I")
    return list(dict.fromkeys(told))


EXPERIMENT = Experiment(
    "alpha_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "depth", "width", "slope", "sign", "seed", "inputs", "outputs", "samples"),
        *("data", "gain"),
        *CERTIFICATE,
        *("bound", "bound_trace", "bound_applicable"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
