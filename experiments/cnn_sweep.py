"""kappa of two-layer linear CNNs over kernel size and number of filters: figures 8 and C3.

python -m experiments.cnn_sweep --config=configs/cnn_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

import gnjax
from experiments.claims.cnn_sweep import CLAIMS, EXACT, HALF, WHITENED
from experiments.shared import line_cnn, linear_cnn
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.linear_cnn import ExtremeEigenvalues, extreme_eigenvalues
from experiments.shared.published_data import first_images, orthonormal
from sweeps import command_line
from sweeps.experiment import Experiment

LINE = "line"  # in one dimension, as the published code of paper A
FLAT = ("convolutions", "dense", "shared")
"""In two dimensions: Toeplitz entries as parameters with a convolution or a dense layer at the end;
or kernels whose weights are shared."""


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each panel is all pairs of a kernel size and a number of filters, of one kind of network."""
    for name, panel in config.panels.items():
        _check(name, panel)
        for kernel in panel.kernels:
            for filters in panel.filters:
                for seed in range(config.first_seed, config.first_seed + panel.seeds):
                    network = {
                        "kind": panel.kind,
                        "side": panel.side,
                        "kernel": kernel,
                        "filters": filters,
                        "seed": seed,
                    }
                    if panel.kind != LINE:
                        network["channels"] = panel.channels or filters
                        network["frame"] = panel.frame
                    yield {"figure": f"8-{name}"}, network


def _check(name: str, panel: ConfigDict) -> None:
    sizes = (*panel.kernels, *panel.filters)
    if not (panel.kernels and panel.filters) or min(sizes) < 1 or panel.seeds < 1:
        msg = f"{name} needs kernels, filters and seeds of at least 1"
        raise ValueError(msg)
    if panel.kind not in (LINE, *FLAT):
        msg = f"kind={panel.kind!r} of {name} is not one of {LINE}, {', '.join(FLAT)}"
        raise ValueError(msg)
    layers = 2 if panel.kind in (LINE, "convolutions") else 1
    length = panel.side**2 if panel.kind == LINE else panel.side
    if layers * (max(panel.kernels) - 1) >= length:
        msg = (
            f"{layers} kernels of {max(panel.kernels)} leave nothing of a length of {length} in "
            f"{name}; take smaller ones"
        )
        raise ValueError(msg)
    if panel.kind != LINE and 2 * panel.frame >= panel.side:
        msg = f"a frame of {panel.frame} leaves nothing of a side of {panel.side} in {name}"
        raise ValueError(msg)


def measure(
    data: str,
    samples: int,
    data_seed: int,
    kind: str,
    side: int,
    kernel: int,
    filters: int,
    seed: int,
    gain: float,
    outputs: int,
    rtol: float,
    channels: int = 0,  # output channels of the last convolution, in two dimensions
    frame: int = 0,  # the width of a frame of pixels that are zero in all images
) -> list[dict[str, Any]]:
    """kappa with its interval; in one dimension on raw images with either root, and on whitened."""
    if kind == LINE:
        return list(_on_a_line(data, samples, side, kernel, filters, gain, seed))
    where = data, samples, data_seed, side, frame
    seen = linear_cnn.images(*where)
    kernels = linear_cnn.first_kernels(kernel, filters, gain, seed)
    last = _last_layer(kind, side, kernel, filters, channels, outputs, gain, seed)
    found = {
        **dict.fromkeys(("protocol", "covariance_condition", "bound", "bound_published")),
        "inputs": seen.pixels,
        "data": f"{data}, whitened",
        "data_rank": seen.rank,
        "parameters": kernels.size + last.size,
    }
    if kind == "shared":
        op = linear_cnn.shared_gauss_newton(kernels, last, side, seen.root)
        kappa = gnjax.condition_number(op, rtol=rtol, seed=seed)
        return [{**found, "size": op.shape[0], **certificate(kappa)}]
    if kind == "dense":
        outer = linear_cnn.head_gram(last)
    else:
        outer = linear_cnn.convolution_gram(last, side - kernel + 1)
    inner = _eigenvalues_of_first_layer(where, kernel, filters, gain, seed)
    sums = linear_cnn.kappa_of_kronecker_sum(extreme_eigenvalues(outer), inner)
    return [{**found, "size": outer.shape[0] * seen.rank, **sums}]


def _last_layer(
    kind: str,
    side: int,
    kernel: int,
    filters: int,
    channels: int,
    outputs: int,
    gain: float,
    seed: int,
) -> NDArray[np.float64]:
    """The kernels of a second convolution, or a dense head."""
    if kind == "convolutions":
        return linear_cnn.second_kernels(kernel, filters, channels, gain, seed)
    features = filters * (side - kernel + 1) ** 2
    return linear_cnn.dense_head(features, outputs, gain, seed)


@cache
def _eigenvalues_of_first_layer(
    where: tuple[str, int, int, int, int], kernel: int, filters: int, gain: float, seed: int
) -> ExtremeEigenvalues:
    """The extreme eigenvalues of T_1^T T_1 on the range of the data.

    Networks with a convolution and with a dense layer at the end share them.
    """
    seen, side = linear_cnn.images(*where), where[3]
    first = linear_cnn.first_kernels(kernel, filters, gain, seed)
    return extreme_eigenvalues(linear_cnn.on_range(linear_cnn.inner_gram(first, side), seen.root))


def _on_a_line(
    data: str, samples: int, side: int, kernel: int, filters: int, gain: float, seed: int
) -> Iterator[dict[str, Any]]:
    """The same two convolutions on the first images, every so many-th pixel, as they are with
    Sigma^(1/2) and with Sigma / 2, and whitened to U V^T."""
    first, second = line_cnn.matrices(side**2, kernel, filters, gain, seed)
    for protocol in (EXACT, HALF, WHITENED):
        sigma = _covariance(data, samples, side, protocol == WHITENED)
        yield {
            "protocol": protocol,
            "inputs": side**2,
            "data": f"{data}, {'whitened' if protocol == WHITENED else 'not whitened'}",
            "data_rank": len(sigma.values),
            "covariance_condition": sigma.condition,
            "parameters": filters * kernel + filters**2 * kernel,
            "outputs": len(second),
            **line_cnn.conditioning(first, second, sigma, half=protocol == HALF),
        }


@cache
def _covariance(data: str, samples: int, side: int, whitened: bool) -> line_cnn.Covariance:
    x = _line_images(data, samples, side).inputs
    return line_cnn.covariance_of(orthonormal(x) * len(x) ** 0.5 if whitened else x)


@cache
def _line_images(data: str, samples: int, side: int) -> Any:
    """Images of ``side`` by ``side`` pixels: every so many-th of the whole."""
    whole = first_images(data, 1).shape[0]
    step = -(-whole // side)
    images = first_images(data, samples, step)
    if images.shape != (side, side):
        msg = f"every {step}th pixel of {data} leaves {images.shape}, and not a side of {side}"
        raise ValueError(msg)
    return images


def cost(kind: str, side: int, kernel: int, channels: int, frame: int, outputs: int) -> float:
    """Multiplications in finding the eigenvalues of the matrices of this kind of network."""
    if kind == LINE:
        return float(side**6)
    pixels = (side - 2 * frame) ** 2
    if kind == "shared":
        return float((outputs * pixels) ** 3)
    last = channels * max(side - 2 * kernel + 2, 0) ** 2
    return float(pixels**3 + (last**3 if kind == "convolutions" else 0))


def sources(config: ConfigDict) -> list[str]:
    """The source of each data set; all are loaded here: missing data end the run at once."""
    told = []
    for panel in config.panels.values():
        if panel.kind == LINE:
            source = _line_images(config.data, config.samples, panel.side).source
            told.append(f"{source}, as a line of {panel.side**2}")
        else:
            where = config.data, config.samples, config.data_seed, panel.side, panel.frame
            told.append(linear_cnn.images(*where).source)
    return list(dict.fromkeys(told))


EXPERIMENT = Experiment(
    "cnn_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "kind", "protocol", "side", "frame", "channels", "kernel", "filters", "seed"),
        *("inputs", "data_rank", "outputs", "samples", "data", "covariance_condition", "gain"),
        *("parameters", "size"),
        *CERTIFICATE,
        *("bound", "bound_published"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
