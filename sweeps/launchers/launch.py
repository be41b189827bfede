"""Measure the cells of a config that are not stored yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeps.cell import Cell
from sweeps.experiment import Experiment
from sweeps.launchers.work import Failure, Launcher, Task, here
from sweeps.storage import archive as archives
from sweeps.storage import store as stores
from sweeps.storage.store import Finished, Store

_PATIENCE = 1.0  # seconds between looks at cells that other processes compute


@dataclass(frozen=True)
class Plan:
    """All cells, those that are stored, those that are left, and how many of these are damaged.

    A cell with a damaged file is computed again. Cells that are ``published`` and not stored are
    taken from the archive.
    """

    cells: Sequence[Cell]
    stored: Mapping[Cell, Finished]
    left: Sequence[Cell]
    damaged: int
    published: Mapping[Cell, Finished] = field(default_factory=dict)

    @property
    def finished(self) -> dict[Cell, Finished]:
        """Those that are there, in the order of the cells."""
        found = {**self.stored, **self.published}
        return {cell: found[cell] for cell in self.cells if cell in found}


@dataclass(frozen=True)
class Outcome:
    """All finished cells, and the failures of this run, both in the order of the cells."""

    finished: Mapping[Cell, Finished]
    failures: Sequence[Failure] = field(default_factory=tuple)


class Watcher(Protocol):
    """An object that is told of every cell as it ends."""

    def finished(self, cell: Cell, result: Finished) -> None: ...

    def failed(self, failure: Failure) -> None: ...


def plan(
    experiment: Experiment,
    config: Any,
    store: Store,
    shard: tuple[int, int] = (1, 1),
    archive: Store | None = None,
) -> Plan:
    """Look up which cells are stored, here or in an archive.

    Shard (i, n) has every n-th cell, from the i-th on.
    """
    index, count = shard
    stored: dict[Cell, Finished] = {}
    left: list[Cell] = []
    cells = experiment.cells(config)[index - 1 :: count]
    for cell in cells:
        finished = stores.load(store, cell)
        if finished is None:
            left.append(cell)
        else:
            stored[cell] = finished
    published = {} if archive is None else archives.published(archive, left)
    left = [cell for cell in left if cell not in published]
    damaged = sum(stores.is_damaged(store, cell) for cell in left)
    return Plan(cells, stored, left, damaged, published)


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
    task = Task(experiment.measure_cell, store, experiment.shape_of)
    finished = chosen.finished
    failures: dict[Cell, Failure] = {}
    left: Sequence[Cell] = chosen.left
    while left:
        elsewhere: list[Cell] = []
        for cell, ended in launcher.compute(task, left):
            if ended is None:
                elsewhere.append(cell)
            elif isinstance(ended, Failure):
                failures[cell] = ended
                watcher.failed(ended)
            else:
                finished[cell] = ended
                watcher.finished(cell, ended)
        if len(elsewhere) == len(left):
            time.sleep(_PATIENCE)
        left = elsewhere
    return Outcome(
        {cell: finished[cell] for cell in chosen.cells if cell in finished},
        [failures[cell] for cell in chosen.cells if cell in failures],
    )
