"""Measure the cells of a config that are not stored yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnjax.sweep import store as stores
from gnjax.sweep.grid import Cell, Experiment
from gnjax.sweep.store import Finished, Store
from gnjax.sweep.work import Failure, Launcher, Task, here

_PATIENCE = 1.0  # seconds between looks at cells that other processes compute


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


def plan(
    experiment: Experiment, config: Any, store: Store, shard: tuple[int, int] = (1, 1)
) -> Plan:
    """Look every cell up; the time left is judged by the cost of the stored ones.

    Of shard (i, n) every n-th cell, from the i-th on, is its own.
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
    task = Task(experiment.measure, experiment.resumes, store)
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
