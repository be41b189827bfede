"""All blocks of a network's G against one formation of its whole kernel: seconds, and the ratio.

    python -m benchmarks.block_spectra [--only=mlp,cnn,transformer] [--repeats=5] [--small]

Three things take turns, on a new operator each time, after one turn to warm up: the smaller one of
G and its twin as a matrix ("kernel"), the eigenvalues of all blocks when these are at hand
("eigensolves"), and ``block_spectra``, which does both and measures the rounding of J
("blocks"). The aim is blocks <= 1.5 (kernel + eigensolves). Numbers are medians over the turns with
their quartiles; a ratio is of one turn, because a machine's speed varies.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import gnjax
from benchmarks.rivals.harness import once
from gnjax.models.vit import ViT
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import grouped
from gnjax.operators.blocks.columns import diagonal_blocks

AIM = 1.5


Quartiles = tuple[float, float, float]
"""The first quartile, the median and the third quartile."""


@dataclass(frozen=True)
class Row:
    """One network."""

    network: str
    parameters: int
    rows: int
    blocks: int
    method: str
    kernel_seconds: Quartiles
    eigensolve_seconds: Quartiles
    block_seconds: Quartiles
    ratio: Quartiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(_NETWORKS), help="networks, by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few samples, to see that it works")
    options = parser.parse_args()
    gnjax.enable_x64()
    print(f"load {os.getloadavg()[0]:.1f} at the start", flush=True)
    for name in options.only.split(","):
        row = measured(name, options.repeats, samples=10 if options.small else 100)
        met = "met" if row.ratio[1] <= AIM else "missed"
        print(json.dumps(row.__dict__), f"aim of {AIM}: {met}", flush=True)


def measured(name: str, repeats: int, samples: int) -> Row:
    model, x = _NETWORKS[name](samples)
    seconds = np.array([_turn(model, x) for _ in range(repeats + 1)])[1:]
    found = gnjax.block_spectra(model, x)
    op = gnjax.gauss_newton(model, x)
    return Row(
        network=name,
        parameters=op.net.parameters,
        rows=op.net.samples * op.net.rows,
        blocks=len(found.blocks),
        method=found.method,
        kernel_seconds=_quartiles(seconds[:, 0]),
        eigensolve_seconds=_quartiles(seconds[:, 1]),
        block_seconds=_quartiles(seconds[:, 2]),
        ratio=_quartiles(seconds[:, 2] / (seconds[:, 0] + seconds[:, 1])),
    )


def _operator(model: Any, x: jax.Array) -> Any:
    return gnjax.gauss_newton(model, x)


def _turn(model: Any, x: jax.Array) -> tuple[float, float, float]:
    """The seconds of "kernel", "eigensolves" and "blocks", each with an operator of its own."""
    one, two, three = (_operator(model, x) for _ in range(3))
    kernel, _ = once(lambda: jax.block_until_ready(one.twin.as_matrix()))
    blocks, _ = once(lambda: gnjax.block_spectra(two))
    groups = grouped(parameter_names(three.net), "layer")
    held = diagonal_blocks(three, list(groups.values())).operators
    solves, _ = once(lambda: [gnjax.eigenvalues(block) for block in held])
    return kernel, solves, blocks


def _quartiles(values: np.ndarray) -> Quartiles:
    first, middle, third = np.quantile(values, [0.25, 0.5, 0.75]).round(3).tolist()
    return first, middle, third


Case = tuple[Any, jax.Array]


def _mlp(samples: int) -> Case:
    model = gnjax.models.MLP((64, 128, 128, 10), activation="tanh", key=jax.random.key(0))
    return model, jax.random.normal(jax.random.key(1), (samples, 64))


def _cnn(samples: int) -> Case:
    model = gnjax.models.CNN((16, 16, 1), 10, filters=(16, 32), stride=2, key=jax.random.key(0))
    return model, jax.random.normal(jax.random.key(1), (samples, 16, 16, 1))


def _transformer(samples: int) -> Case:
    key = jax.random.key(0)
    model = ViT(12, 10, width=32, depth=2, channels=1, key=key)
    return model, jax.random.normal(jax.random.key(1), (samples, 12, 12, 1))


_NETWORKS: dict[str, Callable[[int], Case]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "transformer": _transformer,
}


if __name__ == "__main__":
    main()
