"""kappa of G of a GPT over depth, by where its LayerNorm stands and by its skips: figure T1.

python -m experiments.transformer_depth --config=configs/transformer_depth.py:laptop
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import jax
import numpy as np
from flax import nnx

import gnjax
from experiments.claims.transformer_depth import CLAIMS
from experiments.shared.language import NextCharacter, described, pieces
from experiments.shared.linear_network import kappa_fields
from experiments.shared.pruned_kernel import pruned_kernel
from sweeps import command_line as cli
from sweeps import regimes
from sweeps.grid import Experiment, Measurement, copy_fields

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
class Config:
    """GPTs of every kind and depth at initialisation, on ``samples`` pieces of the text.

    ``outputs`` is how many different characters there are, and ``length`` how many a piece has.
    """

    paper_ratios: regimes.Rows
    data_seed: int
    outputs: int
    length: int
    samples: int
    width: int
    heads: int
    initializer: str
    depths: tuple[int, ...]
    first_seed: int
    seeds: int

    def __post_init__(self) -> None:
        if min(self.depths, default=0) < 1 or min(self.seeds, self.samples) < 1:
            msg = f"depths, samples and seeds must be at least 1, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Cell:
    """One GPT; ``last`` says whether it is the deepest, whose spectrum is kept."""

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


@dataclass(frozen=True)
class Row:
    """One GPT (``panel`` kappa), or one eigenvalue of it (spectrum).

    ``eigenvalue`` is divided by the largest, and ``share`` of all eigenvalues are larger.
    """

    panel: str
    network: str
    data: str
    samples: int
    inputs: int
    outputs: int
    parameters: int
    depth: int
    width: int
    skip: float
    seed: int
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
    share: float | None = None
    eigenvalue: float | None = None


def cells(config: Config) -> tuple[Cell, ...]:
    """The deepest first; all seeds of a kind of network one after the other."""
    found = [
        copy_fields(
            Cell, config, network=kind, depth=depth, last=depth == max(config.depths), seed=seed
        )
        for depth in config.depths
        for kind in KINDS
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]
    return tuple(sorted(found, key=cost, reverse=True))


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


def measure(cell: Cell) -> Measurement:
    """kappa of J J^T, and of the deepest networks the spectrum."""
    x, _ = pieces(cell.outputs, cell.samples, cell.length, cell.data_seed)
    model = made(cell)
    params = nnx.state(model, nnx.Param)
    every = jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), params)
    kernel = pruned_kernel(model, x, every, soon=True)  # type: ignore[arg-type]  # of integers
    found = gnjax.condition_number(kernel, seed=cell.seed)
    spectrum = gnjax.eigenvalues(kernel).values[: found.rank] if cell.last else np.zeros(0)
    return {
        **kappa_fields(found),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "eigenvalues": spectrum.tolist(),
    }


def rows(config: Config, measured: Mapping[Cell, Measurement]) -> tuple[Row, ...]:
    """One row for each network, and rows for the spectra of the deepest."""
    table = []
    for cell in cells(config):
        if cell not in measured:
            continue
        found = dict(measured[cell])
        values = np.array(found.pop("eigenvalues"))
        row = copy_fields(
            Row,
            cell,
            panel=KAPPA,
            data="python_topics",
            inputs=cell.length,
            skip=KINDS[cell.network][1](cell.depth),
            **found,
        )
        table.append(row)
        for share in SHARES if values.size else ():
            place = round(share * (values.size - 1))
            table.append(
                replace(row, panel=SPECTRUM, share=share, eigenvalue=values[place] / values[0])
            )
    return tuple(table)


def sources(config: Config) -> list[str]:
    return [described(config.outputs, config.samples, config.length)]


EXPERIMENT = Experiment(
    "transformer_depth", cells, measure, rows, cost, lambda found: f"kappa {found['kappa']:.4g}"
)
PROGRAM = cli.Program(EXPERIMENT, Config, CLAIMS, sources)


if __name__ == "__main__":
    sys.exit(cli.main(PROGRAM))
