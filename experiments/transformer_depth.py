"""kappa of G of a GPT over depth, by where its LayerNorm stands and by its skips: figure T1.

python -m experiments.transformer_depth --config=configs/transformer_depth.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

import gnjax
from experiments.claims.transformer_depth import CLAIMS
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.language import NextCharacter, described, pieces
from experiments.shared.pruned_kernel import pruned_kernel
from sweeps import command_line
from sweeps.experiment import Experiment

Strength = Callable[[int], float]
KINDS: Mapping[str, tuple[str, Strength]] = MappingProxyType(
    {  # the norm, and the strength of the skips at a depth
        "pre": ("pre", lambda depth: 1.0),
        "post": ("post", lambda depth: 1.0),
        "none": ("none", lambda depth: 1.0),
        "none, 1/sqrt(L)": ("none", lambda depth: 1 / math.sqrt(depth)),
        "none, 1/L": ("none", lambda depth: 1 / depth),
        "none, no skip": ("none", lambda depth: 0.0),
    }
)
SHARES = tuple(np.linspace(0, 1, 21).round(2).tolist())
KAPPA, SPECTRUM = "kappa", "spectrum"


@dataclass(frozen=True)
class Cell:
    """One GPT on ``samples`` pieces of the text, which have ``length`` of ``outputs`` characters.

    ``last`` says whether it is the deepest, whose spectrum is kept.
    """

    network: str
    data_seed: int
    outputs: int
    length: int
    samples: int
    width: int
    heads: int
    initializer: str
    depth: int
    last: bool
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The deepest first; all seeds of a kind of network one after the other."""
    if min(*config.depths, config.seeds, config.samples) < 1:
        msg = f"depths, samples and seeds must be at least 1, got {config}"
        raise ValueError(msg)
    for depth in sorted(config.depths, reverse=True):
        for kind in KINDS:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                own = {"depth": depth, "last": depth == max(config.depths), "seed": seed}
                yield {}, {"network": kind, **own}


def cost(cell: Cell) -> float:
    """Multiplications in J, a backward pass for each row, and in finding its singular values."""
    rows, left = cell.samples * cell.outputs, 12.0 * cell.width**2 * cell.depth
    return 3 * rows * left * cell.length + rows**2 * left


def made(cell: Cell) -> NextCharacter:
    """The network at initialisation; the kinds of one seed share their weights."""
    norm, strength = KINDS[cell.network]
    model = gnjax.models.GPT(
        cell.outputs,
        length=cell.length,
        width=cell.width,
        depth=cell.depth,
        heads=cell.heads,
        norm=norm,
        skip=strength(cell.depth),
        tied=False,
        initializer=cell.initializer,
        key=jax.random.key(cell.seed),
    )
    return NextCharacter(model)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """kappa of J J^T, and of the deepest networks rows of the spectrum.

    ``eigenvalue`` is divided by the largest, and ``share`` of all eigenvalues are larger.
    """
    x, _ = pieces(cell.outputs, cell.samples, cell.length, cell.data_seed)
    model = made(cell)
    params = nnx.state(model, nnx.Param)
    every = jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), params)
    kernel = pruned_kernel(model, x, every, soon=True)  # type: ignore[arg-type]  # of integers
    found = gnjax.condition_number(kernel, seed=cell.seed)
    row = {
        **certificate(found),
        "panel": KAPPA,
        "data": "python_topics",
        "inputs": cell.length,
        "skip": KINDS[cell.network][1](cell.depth),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
    }
    if not cell.last:
        return [row]
    values = gnjax.eigenvalues(kernel).values[: found.rank]
    places = [round(share * (values.size - 1)) for share in SHARES]
    return [
        row,
        *(
            {**row, "panel": SPECTRUM, "share": share, "eigenvalue": values[place] / values[0]}
            for share, place in zip(SHARES, places, strict=True)
        ),
    ]


def sources(config: ConfigDict) -> list[str]:
    return [described(config.outputs, config.samples, config.length)]


EXPERIMENT = Experiment(
    "transformer_depth",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "network", "data", "samples", "inputs", "outputs", "parameters", "depth"),
        *("width", "skip", "seed", *CERTIFICATE, "share", "eigenvalue"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
