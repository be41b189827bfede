"""One cell on whichever process it lands: claimed, measured, stored."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

import gnjax
from sweeps.cell import Cell, Measurement, all_but_seed
from sweeps.storage import store as stores
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.environment import device_kind, differences, environment, provenance
from sweeps.storage.files import StoreError
from sweeps.storage.store import Finished, Store


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
    """What a process needs to compute cells. Its functions belong to modules, to be pickled."""

    measure: Callable[[Cell, Checkpoint], Measurement]
    store: Store
    shape: Callable[[Cell], Hashable] = all_but_seed


Ended = Finished | Failure | None
"""How an attempt ended; None: another process is computing the cell."""


@dataclass(frozen=True)
class Launcher:
    """Where cells are computed.

    Attributes:
      compute: attempts every cell there, and yields each as it ends.
      device: the kind of device that computes there, which is part of every cell's key.
    """

    compute: Callable[[Task, Sequence[Cell]], Iterator[tuple[Cell, Ended]]]
    device: Callable[[], str]


def _one_by_one(task: Task, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Ended]]:
    for cell in cells:
        yield cell, attempt(task, cell)


here = Launcher(_one_by_one, device_kind)
"""One cell after the other in this process."""


def attempt(task: Task, cell: Cell) -> Ended:
    """Measure a cell and store it, unless another process has done so or is doing it."""
    with stores.claim(task.store, cell) as claim:
        if not claim.mine:
            return claim.finished
        ended = measured(task, cell, Checkpoint(stores.checkpoint_path(task.store, cell)))
        return keep(task, cell, ended)


def keep(task: Task, cell: Cell, ended: Finished | Failure) -> Finished | Failure:
    """Store a finished cell, drop its checkpoint, and return what a later load will return."""
    if isinstance(ended, Failure):
        return ended
    finished = stores.save(task.store, cell, ended)
    with suppress(OSError):  # one that stays is never read again
        stores.checkpoint_path(task.store, cell).unlink()
    return finished


def measured(task: Task, cell: Cell, checkpoint: Checkpoint) -> Finished | Failure:
    """The measurement with its provenance, or how the cell failed.

    It fails in a process whose results the store would keep under a wrong key: on another device,
    with other versions, or with code that was edited after the sweep began.
    """
    found = environment(task.measure)
    if found != task.store.environment:
        other = differences(task.store.environment, found)
        summary = f"its process differs from what the sweep began with: {other}"
        return Failure(cell, summary, f"{summary}\n")
    began, cpu_began = time.perf_counter(), time.process_time()
    try:
        measurement = task.measure(cell, checkpoint)
    except StoreError:
        raise  # a checkpoint cannot be written: not a fault of the cell
    except Exception as error:  # noqa: BLE001  (whatever a cell raises is that cell's failure)
        return Failure(cell, f"{type(error).__name__}: {error}", traceback.format_exc())
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return Finished(measurement, seconds, provenance(found) | {"cpu_seconds": cpu_seconds})


def settle(threads: int, wanted: str) -> None:
    """Give a new process, which is one of several, its share of the cores and its precision.

    To be called before XLA starts.
    """
    os.environ["NPROC"] = str(threads)  # what XLA sizes its pools by
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes may share a GPU
    threadpool_limits(threads)
    if wanted == "float64":
        gnjax.enable_x64()
