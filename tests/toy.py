"""A sweep of cheap cells, also a program: python -m tests.toy RESULTS SECONDS CELLS [JOBS].

SECONDS are for each cell, JOBS the processes.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
from ml_collections import FrozenConfigDict

from gnjax.numerics.precision import enable_x64
from sweeps import collect
from sweeps.cell import Cell
from sweeps.experiment import Experiment
from sweeps.launchers import launch, pool, work
from sweeps.storage.environment import environment
from sweeps.storage.store import Finished, open_store

LOG = "GNJAX_TOY_LOG"  # the file, if any, that gets a line for each cell that is computed


def config(cells, seconds=0.0):
    return FrozenConfigDict({"cells": cells, "seconds": seconds})


def cell(depth, seconds=0.0):
    return Cell((("depth", depth), ("seconds", seconds)))


def depths(cells):
    """Those of the cells, sorted."""
    return sorted(cell.keywords["depth"] for cell in cells)


def settings(config):
    for depth in range(1, config.cells + 1):
        yield {}, {"depth": depth}


def measure(depth: int, seconds: float):
    time.sleep(seconds)
    if depth == 13:
        msg = "thirteen layers are unlucky"
        raise RuntimeError(msg)
    if LOG in os.environ:
        with open(os.environ[LOG], "a") as file:
            file.write(f"{depth}\n")
    return {"kappa": depth**2 / 7, "text": "a", "nothing": None}


def die_at_five(depth: int, seconds: float):
    if depth == 5:
        os._exit(9)
    return measure(depth, seconds)


def surroundings(depth: int, seconds: float):
    return {"dtype": str(jnp.ones(1).dtype), "threads": os.environ["NPROC"]}


def whose(depth: int, seconds: float):
    return {"process": os.getpid()}


def cost(depth):
    return depth


EXPERIMENT = Experiment("toy", settings, measure, cost, columns=("depth", "kappa"))


def task(store, measure=measure, **more):
    return work.Task(replace(EXPERIMENT, measure=measure).measure_cell, store, **more)


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
    os.environ[LOG] = str(Path(results) / "cells" / "computed.log")
    launcher = work.here if jobs == "1" else pool.in_processes(int(jobs))
    enable_x64()
    run(results, config(int(cells), float(seconds)), launcher)


if __name__ == "__main__":
    from tests import toy  # processes look up its functions under this name

    toy.main(*sys.argv[1:])
