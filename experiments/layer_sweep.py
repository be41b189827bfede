"""Partial products of linear networks over the layer: figures 11 and 12.

python -m experiments.layer_sweep --config=configs/layer_sweep.py:laptop

A row is one layer l of one network; left is W^{L:l+1}, right is W^{1:l-1}. ``kappa2`` is the
squared condition number of a product, ``smallest2`` its squared sigma_min, ``weight`` is gamma_l
and ``term`` left_kappa2 right_kappa2. ``sizes`` says whose d, k and m they are: those that are
printed, or others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.claims.layer_sweep import CLAIMS, OTHER, PRINTED
from experiments.shared.linear_network import layer_widths, weights
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line
from sweeps.experiment import Experiment


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The printed sizes at every depth, and others (side, outputs, width) at the largest."""
    printed = [(PRINTED, config.side, config.outputs, config.width, config.depths)]
    others = [(OTHER, *sizes, (max(config.depths),)) for sizes in config.others]
    for sizes, side, outputs, width, depths in (*printed, *others):
        for gain in config.gains:  # variance times fan-in: 1 in Appendix G, 2 in PyTorch
            for depth in depths:
                for seed in range(config.first_seed, config.first_seed + config.seeds):
                    shape = {"side": side, "outputs": outputs, "width": width, "depth": depth}
                    yield {"sizes": sizes}, {**shape, "gain": gain, "seed": seed}


def measure(
    data: str,
    samples: int,  # 0: all of them
    data_seed: int,
    side: int,  # of the downsampled image, 0 for the image as it is
    outputs: int,
    gain: float,
    initializer: str,
    depth: int,
    width: int,
    seed: int,
) -> list[dict[str, Any]]:
    """The condition numbers and the weights gamma_l in Lemma 2, layer by layer."""
    white = whitened(data, samples, data_seed, side)
    widths = layer_widths(white.rank, depth, width, outputs)
    bound = papers.bounds.linear(weights(widths, initializer, gain, seed))
    if not bound.applicable:
        raise ValueError(bound.reason)
    return [
        {
            "data": f"{data}, whitened",
            "inputs": white.rank,
            "samples": white.samples,
            "layer": layer + 1,
            "left_kappa2": (bound.left_largest[layer] / bound.left_smallest[layer]) ** 2,
            "left_smallest2": bound.left_smallest[layer] ** 2,
            "right_kappa2": (bound.right_largest[layer] / bound.right_smallest[layer]) ** 2,
            "right_smallest2": bound.right_smallest[layer] ** 2,
            "weight": bound.weights[layer],
            "term": bound.terms[layer],
        }
        for layer in range(depth)
    ]


def cost(depth: int, width: int, side: int) -> float:
    inputs = side**2 or 784
    return float(depth * width * inputs * (width + 2 * inputs))


def sources(config: ConfigDict) -> list[str]:
    return [describe(config.data, config.samples, config.data_seed, config.side)]


EXPERIMENT = Experiment(
    "layer_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("sizes", "depth", "layer", "width", "seed", "inputs", "outputs", "samples", "data"),
        *("gain", "left_kappa2", "left_smallest2", "right_kappa2", "right_smallest2"),
        *("weight", "term"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="term",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
