"""The law behind kappa over depth: local powers of L, their growth, and its limit: figure T8.

python -m experiments.depth_law --config=configs/depth_law.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.claims.depth_law import CLAIMS
from experiments.shared.certificate import CERTIFICATE
from experiments.shared.depth_law import ends, rate
from experiments.shared.linear_network import layer_widths, reduced_weights
from sweeps import command_line
from sweeps.experiment import Experiment

RESOLVED = 0.5  # kappa that is known less well than this is not drawn as a number


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each pair of inputs and outputs one cell for each width, in inputs, and each start."""
    for inputs, outputs in config.pairs:
        for ratio in config.ratios:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                network = {"inputs": inputs, "outputs": outputs, "width": ratio * inputs}
                yield {"figure": "T8"}, {**network, "seed": seed}


def measure(
    inputs: int, outputs: int, width: int, depths: tuple[int, ...], gain: float, seed: int
) -> list[dict[str, Any]]:
    """kappa on whitened inputs at every depth; networks of different depths are drawn anew.

    Whitened data matter through the number of inputs alone, so that none are needed.
    """
    rows = []
    for depth in depths:
        widths = layer_widths(inputs, depth, width, outputs)
        found = ends(reduced_weights(widths, "kaiming_normal", gain, 1000 * seed + depth))
        rows.append(
            {
                "depth": depth,
                "data": "gaussian",
                "rate": rate(width, inputs, outputs),
                "kappa": found.kappa,
                "kappa_low": found.kappa / (1 + found.off),
                "kappa_high": found.kappa * (1 + found.off),
                "evidence": "measured",
                "failure": 0.0,
                "resolved": found.off < RESOLVED,
                "method": "triangular factors",
                "rank": inputs * outputs,
                "lambda_max": found.largest,
                "lambda_min": found.smallest,
            }
        )
    return rows


def cost(inputs: int, outputs: int, depths: tuple[int, ...]) -> float:
    """Multiplications in the layers of reduced networks, and in the stacks."""
    return float(sum(depths)) * ((inputs + outputs) ** 3 + (inputs * outputs) ** 3)


EXPERIMENT = Experiment(
    "depth_law",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "depth", "width", "seed", "inputs", "outputs", "data", "gain", "rate"),
        *CERTIFICATE,
    ),
    claims=CLAIMS,
    sources=lambda config: ["no data: kappa of whitened inputs depends on their number alone"],
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
