"""Measure the cells of a config that are not stored yet, one after the other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnjax.sweep import store as stores
from gnjax.sweep.grid import Cell, Experiment
from gnjax.sweep.store import Finished, Store


@dataclass(frozen=True)
class Failure:
    """A cell that raised, with the whole traceback."""

    cell: Cell
    summary: str
    traceback: str


@dataclass(frozen=True)
class Plan:
    """What is stored already, what is left, and how long it should take."""

    stored: Mapping[Cell, Finished]
    left: Sequence[Cell]
    corrupt: int
    seconds: float | None  # None: nothing was measured yet to judge by


@dataclass(frozen=True)
class Outcome:
    """All finished cells, and the failures of this run."""

    finished: Mapping[Cell, Finished]
    failures: Sequence[Failure] = field(default_factory=tuple)


class Watcher(Protocol):
    """Told of every cell as it ends."""

    def finished(self, cell: Cell, result: Finished) -> None: ...

    def failed(self, failure: Failure) -> None: ...


def plan(experiment: Experiment, config: Any, store: Store) -> Plan:
    """Look every cell up; the time left is judged by the cost of the stored ones."""
    stored: dict[Cell, Finished] = {}
    left: list[Cell] = []
    for cell in experiment.cells(config):
        finished = stores.load(store, cell)
        if finished is None:
            left.append(cell)
        else:
            stored[cell] = finished
    corrupt = sum(stores.was_corrupt(store, cell) for cell in left)
    return Plan(stored, left, corrupt, time_left(experiment, stored, left))


def time_left(
    experiment: Experiment, done: Mapping[Cell, Finished], left: Sequence[Cell]
) -> float | None:
    """Seconds for what is left: the seconds per unit of cost of what is done."""
    cost = sum(experiment.cost(cell) for cell in done)
    if cost == 0:
        return None if left else 0.0
    spent = sum(result.seconds for result in done.values())
    return spent / cost * sum(experiment.cost(cell) for cell in left)


def run(experiment: Experiment, chosen: Plan, store: Store, watcher: Watcher) -> Outcome:
    """Measure what is left; a cell that fails is reported and does not sink the others."""
    finished = dict(chosen.stored)
    failures: list[Failure] = []
    for cell in chosen.left:
        began = time.perf_counter()
        try:
            measurement = experiment.measure(cell)
        except Exception as error:  # noqa: BLE001  (whatever a cell raises is that cell's failure)
            summary = f"{type(error).__name__}: {error}"
            failures.append(Failure(cell, summary, traceback.format_exc()))
            watcher.failed(failures[-1])
            continue
        result = stores.save(store, cell, Finished(measurement, time.perf_counter() - began))
        finished[cell] = result
        watcher.finished(cell, result)
    return Outcome(finished, failures)
