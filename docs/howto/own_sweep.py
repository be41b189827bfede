"""kappa of a tanh network over its width.

PYTHONPATH=. python docs/howto/own_sweep.py --config=docs/howto/own_sweep.py:small --jobs=2
"""

import sys
from dataclasses import dataclass

import jax
from ml_collections import ConfigDict

import gnjax
from sweeps import command_line
from sweeps.claims import BEYOND, Claim
from sweeps.effects import trend
from sweeps.grid import Experiment


@dataclass(frozen=True)
class Config:
    """What a profile sets, and --config.FIELD=VALUE changes."""

    widths: tuple[int, ...]
    seeds: int


@dataclass(frozen=True)
class Cell:
    """One computation, identified completely: the unit that is stored and never repeated."""

    width: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    width: int
    seed: int
    kappa: float
    resolved: bool


def get_config(profile: str) -> ConfigDict:
    widths = {"small": (16, 32), "large": (16, 32, 64, 128, 256)}[profile]
    return ConfigDict({"widths": widths, "seeds": 2})


def cells(config: Config) -> tuple[Cell, ...]:
    return tuple(Cell(width, seed) for width in config.widths for seed in range(config.seeds))


def measure(cell: Cell) -> dict[str, object]:
    """All the computing happens here, in whichever process takes the cell."""
    net, data = jax.random.split(jax.random.key(cell.seed))
    model = gnjax.models.MLP((8, cell.width, 3), activation="tanh", key=net)
    x = jax.random.normal(data, (20, 8))
    kappa = gnjax.condition_number(gnjax.gauss_newton(model, x))
    return {"kappa": kappa.value, "resolved": kappa.resolved}


def rows(config: Config, measured: dict[Cell, dict]) -> tuple[Row, ...]:
    return tuple(Row(cell.width, cell.seed, **numbers) for cell, numbers in measured.items())


CLAIMS = (Claim("own", "wider is better", BEYOND, lambda t: trend(t, "width", "m", rises=False)),)

EXPERIMENT = Experiment(
    "own_sweep",
    cells,
    measure,
    rows,
    cost=lambda cell: float(cell.width),
    progress=lambda numbers: f"kappa {numbers['kappa']:.4g}",
)
PROGRAM = command_line.Program(EXPERIMENT, Config, CLAIMS, sources=lambda config: [])

if __name__ == "__main__":
    sys.exit(command_line.main(PROGRAM))
