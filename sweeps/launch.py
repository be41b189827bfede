"""Measure the cells of a config that are not stored yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeps import store as stores
from sweeps.grid import Cell, Experiment
from sweeps.store import Finished, Store
from sweeps.work import Failure, Launcher, Task, here

_COMPILING = 1.0  # seconds that a cell takes at least, however small it is
_PATIENCE = 1.0  # seconds between looks at cells that other processes compute


@dataclass(frozen=True)
class Plan:
    """What is stored already, what is left, and how long it should take."""

    stored: Mapping[Cell, Finished]
    left: Sequence[Cell]
    corrupt: int
    seconds: float | None  # of one process; None: there is nothing to judge by


@dataclass(frozen=True)
class Outcome:
    """All finished cells, and the failures of this run."""

    finished: Mapping[Cell, Finished]
    failures: Sequence[Failure] = field(default_factory=tuple)


class Watcher(Protocol):
    """Told of every cell as it ends."""

    def finished(self, cell: Cell, result: Finished) -> None: ...

    def failed(self, failure: Failure) -> None: ...


def plan(
    experiment: Experiment,
    config: Any,
    store: Store,
    shard: tuple[int, int] = (1, 1),
    pace: float | None = None,
) -> Plan:
    """Look every cell up, and foretell the time for what is left.

    It is judged by the stored cells of this config; without any by those of other configs in the
    store, and without these by ``pace``, seconds a unit of cost elsewhere. Of shard (i, n) every
    n-th cell, from the i-th on, is its own.
    """
    index, count = shard
    stored: dict[Cell, Finished] = {}
    left: list[Cell] = []
    for cell in experiment.cells(config)[index - 1 :: count]:
        finished = stores.load(store, cell)
        if finished is None:
            left.append(cell)
        else:
            stored[cell] = finished
    corrupt = sum(stores.was_corrupt(store, cell) for cell in left)
    if not left:
        return Plan(stored, left, corrupt, 0.0)
    own, costs = pace_of(experiment, stored), [experiment.cost(cell) for cell in left]
    if own is not None:
        return Plan(stored, left, corrupt, own * sum(costs))
    pace = stores.pace(store) or pace
    seconds = None if pace is None else sum(max(pace * cost, _COMPILING) for cost in costs)
    return Plan(stored, left, corrupt, seconds)


def pace_of(experiment: Experiment, done: Mapping[Cell, Finished]) -> float | None:
    """Seconds a unit of cost."""
    cost = sum(experiment.cost(cell) for cell in done)
    return sum(result.seconds for result in done.values()) / cost if cost else None


def run(
    experiment: Experiment,
    chosen: Plan,
    store: Store,
    watcher: Watcher,
    launcher: Launcher = here,
) -> Outcome:
    """Measure what is left; a cell that fails is reported and does not sink the others.

    Cells that another process is computing are waited for, and taken over should it die.
    """
    task = Task(experiment.measure, experiment.cost, experiment.resumes, store)
    finished = dict(chosen.stored)
    failures: list[Failure] = []
    left: Sequence[Cell] = chosen.left
    while left:
        elsewhere: list[Cell] = []
        for cell, ended in launcher(task, left):
            if ended is None:
                elsewhere.append(cell)
            elif isinstance(ended, Failure):
                failures.append(ended)
                watcher.failed(ended)
            else:
                finished[cell] = ended
                watcher.finished(cell, ended)
        if len(elsewhere) == len(left):
            time.sleep(_PATIENCE)
        left = elsewhere
    return Outcome(finished, failures)
