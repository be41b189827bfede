"""One cell on whichever process it lands: claimed, measured, stored."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from gnjax.numerics import precision
from sweeps import store as stores
from sweeps.checkpoint import Checkpoint
from sweeps.grid import Cell, Measurement
from sweeps.store import Finished, Store


class LauncherError(RuntimeError):
    """Cells cannot be computed where they were asked to be."""


@dataclass(frozen=True)
class Failure:
    """A cell that raised, with the whole traceback."""

    cell: Cell
    summary: str
    traceback: str


@dataclass(frozen=True)
class Task:
    """What a process must know to compute cells; its functions are those of modules."""

    measure: Callable[..., Measurement]
    cost: Callable[[Cell], float]
    resumes: bool
    store: Store


Ended = Finished | Failure | None
"""How an attempt ended; None: another process is computing the cell."""

Launcher = Callable[[Task, Sequence[Cell]], Iterator[tuple[Cell, Ended]]]
"""Attempts every cell somewhere, and yields each as it ends."""


def here(task: Task, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Ended]]:
    """One cell after the other in this process."""
    for cell in cells:
        yield cell, attempt(task, cell)


def attempt(task: Task, cell: Cell) -> Ended:
    """Measure a cell and store it, unless another process has done so or is about to."""
    with stores.claim(task.store, cell) as mine:
        if not mine:
            return None
        stored = stores.load(task.store, cell)
        if stored is not None:
            return stored
        ended = measured(task, cell, Checkpoint(stores.checkpoint_path(task.store, cell)))
        return keep(task, cell, ended)


def keep(task: Task, cell: Cell, ended: Finished | Failure) -> Finished | Failure:
    """Store what is finished, as reading it back will return it, and drop its checkpoint."""
    if isinstance(ended, Failure):
        return ended
    finished = stores.save(task.store, cell, ended, task.cost(cell))
    stores.checkpoint_path(task.store, cell).unlink(missing_ok=True)
    return finished


def measured(task: Task, cell: Cell, checkpoint: Checkpoint) -> Finished | Failure:
    """The measurement with its seconds, or how the cell failed."""
    began = time.perf_counter()
    try:
        measurement = task.measure(cell, checkpoint) if task.resumes else task.measure(cell)
    except stores.StoreError:
        raise  # a checkpoint cannot be written: not a fault of the cell
    except Exception as error:  # noqa: BLE001  (whatever a cell raises is that cell's failure)
        return Failure(cell, f"{type(error).__name__}: {error}", traceback.format_exc())
    return Finished(measurement, time.perf_counter() - began)


def settle(threads: int, wanted: str) -> None:
    """Make a fresh process one of several: its share of the cores and its precision.

    To be called before XLA starts.
    """
    os.environ["NPROC"] = str(threads)  # what XLA sizes its pools by
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes may share a GPU
    threadpool_limits(threads)
    if wanted == "float64":
        precision.enable_x64()
