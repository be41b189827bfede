"""A sweep of cheap cells, also a program: python -m tests.toy RESULTS SECONDS_A_CELL CELLS."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gnjax.sweep import collect, launch
from gnjax.sweep.grid import Experiment
from gnjax.sweep.store import open_store


@dataclass(frozen=True)
class Config:
    cells: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Cell:
    depth: int
    seconds: float


@dataclass(frozen=True)
class Row:
    depth: int
    kappa: float


def measure(cell):
    time.sleep(cell.seconds)
    if cell.depth == 13:
        msg = "thirteen layers are unlucky"
        raise RuntimeError(msg)
    return {"kappa": cell.depth**2 / 7, "texts": ["a"], "nothing": None}


EXPERIMENT = Experiment(
    "toy",
    lambda config: tuple(Cell(depth, config.seconds) for depth in range(1, config.cells + 1)),
    measure,
    lambda config, measured: [Row(c.depth, m["kappa"]) for c, m in measured.items()],
    lambda cell: float(cell.depth),
    lambda measurement: f"kappa {measurement['kappa']:.3f}",
    (Path(__file__),),
)


class Silent:
    def finished(self, cell, result):
        pass

    def failed(self, failure):
        pass


def run(results, config):
    """The folder's table after running whatever is left."""
    store = open_store(Path(results) / "cells", EXPERIMENT.code, "float64")
    chosen = launch.plan(EXPERIMENT, config, store)
    outcome = launch.run(EXPERIMENT, chosen, store, Silent())
    done = {cell: outcome.finished[cell].measurement for cell in EXPERIMENT.cells(config)}
    collect.write_table(Path(results) / "table.csv", EXPERIMENT.rows(config, done))
    return chosen


if __name__ == "__main__":
    run(sys.argv[1], Config(int(sys.argv[3]), float(sys.argv[2])))
