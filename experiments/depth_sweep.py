"""kappa of linear networks over depth: figures 2a, 2b and 3.

python -m experiments.depth_sweep --config=configs/depth_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

import gnjax
from experiments.claims.depth_sweep import CLAIMS
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.linear_network import bound_fields, layer_widths, reduced_weights
from experiments.shared.whitened import describe, whitened
from gnjax import papers
from sweeps import command_line
from sweeps.experiment import Experiment

PANELS = {
    "2a": "fixed_width",
    "2b-left": "slow_growth",
    "2b-fixed": "slow_reference",  # a fixed width, to compare the exponents of 2b-left with
    "2b-right": "fast_growth",
    "3": "many_seeds",
    "2-narrow": "narrow",  # m < d, of which the authors' notebooks print kappas
}


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Panels have depths, seeds, and widths m or multipliers c, which set the width to m = c L."""
    for figure, name in PANELS.items():
        panel = config[name]
        if min(*panel.depths, panel.seeds) < 1:
            msg = f"{name} needs depths and seeds of at least 1"
            raise ValueError(msg)
        for depth in panel.depths:
            fixed = [(width, None) for width in panel.widths]
            for width, multiplier in [*fixed, *((c * depth, c) for c in panel.multipliers)]:
                for seed in range(config.first_seed, config.first_seed + panel.seeds):
                    labels = {"figure": figure, "multiplier": multiplier}
                    yield labels, dict(side=panel.side, depth=depth, width=width, seed=seed)


def measure(
    data: str,
    samples: int,  # 0: all of them
    data_seed: int,
    side: int,  # of the downsampled image, 0 for the image as it is
    outputs: int,
    gain: float,
    initializer: str,
    rtol: float,
    depth: int,
    width: int,
    seed: int,
) -> dict[str, Any]:
    """kappa and the bounds of Lemma 2; whitened data, so Sigma is the identity of its rank."""
    white = whitened(data, samples, data_seed, side)
    widths = layer_widths(white.rank, depth, width, outputs)
    op = papers.linear_gauss_newton(reduced_weights(widths, initializer, gain, seed))
    return {
        "data": f"{data}, whitened",
        "inputs": white.rank,
        "samples": white.samples,
        **certificate(gnjax.condition_number(op, rtol=rtol, seed=seed)),
        **bound_fields(papers.bounds.of_operator(op)),
    }


def cost(depth: int, width: int, side: int, outputs: int) -> float:
    """Multiplications in the partial products and in the Krylov spaces."""
    inputs = side**2 or 784
    chain = depth * width * inputs * (width + 2 * inputs)
    return chain + 400.0 * depth * outputs * inputs**2


def sources(config: ConfigDict) -> list[str]:
    sides = dict.fromkeys(config[name].side for name in PANELS.values())
    return [describe(config.data, config.samples, config.data_seed, side) for side in sides]


EXPERIMENT = Experiment(
    "depth_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "depth", "width", "multiplier", "seed"),
        *("inputs", "outputs", "samples", "data", "gain"),
        *CERTIFICATE,
        *("bound_convex", "bound_maximum", "bound_applicable"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
