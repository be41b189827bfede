"""A sweep of cheap cells, also a program: python -m tests.toy RESULTS SECONDS CELLS [JOBS].

SECONDS are for each cell, JOBS the processes.
"""

import os
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax.numpy as jnp

from gnjax.numerics.precision import enable_x64
from sweeps import collect
from sweeps.grid import Experiment
from sweeps.launchers import launch, pool, work
from sweeps.storage.environment import environment
from sweeps.storage.store import Finished, open_store


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


def logged(cell, log=None):
    """``measure``, and a line in a file of what was computed."""
    measurement = measure(cell)
    with open(log, "a") as file:
        file.write(f"{cell.depth}\n")
    return measurement


def die_at_five(cell):
    if cell.depth == 5:
        os._exit(9)
    return measure(cell)


def surroundings(cell):
    return {"dtype": str(jnp.ones(1).dtype), "threads": os.environ["NPROC"]}


def whose(cell):
    return {"process": os.getpid()}


def cost(cell):
    return float(cell.depth)


EXPERIMENT = Experiment(
    "toy",
    lambda config: tuple(Cell(depth, config.seconds) for depth in range(1, config.cells + 1)),
    measure,
    lambda config, measured: [Row(c.depth, m["kappa"]) for c, m in measured.items()],
    cost,
    lambda measurement: f"kappa {measurement['kappa']:.3f}",
)


def store(folder, experiment=EXPERIMENT):
    return open_store(folder, environment(experiment.measure))


def finished(measurement, seconds=0.5):
    return Finished(measurement, seconds, {"date": "2026-01-01"})


class Silent:
    def finished(self, cell, result):
        pass

    def failed(self, failure):
        pass


def run(results, config, launcher=work.here, experiment=EXPERIMENT):
    """The folder's table after running whatever is left."""
    opened = store(Path(results) / "cells", experiment)
    chosen = launch.plan(experiment, config, opened)
    outcome = launch.run(experiment, chosen, opened, Silent(), launcher)
    done = {cell: result.measurement for cell, result in outcome.finished.items()}
    collect.write_table(Path(results) / "table.csv", experiment.rows(config, done))
    return chosen


def main(results, seconds, cells, jobs="1"):
    log = str(Path(results) / "cells" / "computed.log")
    experiment = replace(EXPERIMENT, measure=partial(logged, log=log))
    launcher = work.here if jobs == "1" else pool.in_processes(int(jobs))
    enable_x64()
    run(results, Config(int(cells), float(seconds)), launcher, experiment)


if __name__ == "__main__":
    main(*sys.argv[1:])
