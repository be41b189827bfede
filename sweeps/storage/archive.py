"""Finished cells that are published with the code, so that nobody has to compute them twice.

An archive is a store (:mod:`sweeps.storage.store`) in the repository, whose cells are taken
whatever machine and versions made them: their provenance says which. What decides is the cell, all
of its fields, and the ``version`` of its experiment, which is raised when the same cell gets other
numbers. The precision is float64.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.cell import Cell, values
from sweeps.experiment import Experiment
from sweeps.storage import store as stores
from sweeps.storage.files import DamagedError, read_checked
from sweeps.storage.store import Environment, Finished, Store

FOLDER = Path("figures/cells")


def archive(experiment: Experiment, folder: Path = FOLDER) -> Store:
    """The archive of an experiment; the folder need not exist."""
    made_by = Environment(f"version {experiment.version}", {}, "any", "float64")
    return Store(folder / experiment.name, made_by)


def published(store: Store, cells: Iterable[Cell]) -> dict[Cell, Finished]:
    """The cells that stand in the archive; one whose file is damaged does not."""
    found = ((cell, stores.load(store, cell)) for cell in cells)
    return {cell: finished for cell, finished in found if finished is not None}


def add(store: Store, cell: Cell, finished: Finished, sources: Sequence[str]) -> None:
    """Publish a finished cell with what is said of its data, unless it is there already."""
    if stores.load(store, cell) is None:
        told = {**finished.provenance, "data": list(sources)}
        stores.save(store, cell, dataclasses.replace(finished, provenance=told))


def sources(finished: Iterable[Finished]) -> list[str]:
    """What published cells say of their data, each once."""
    return list(dict.fromkeys(line for one in finished for line in one.provenance.get("data", ())))


def refused(store: Store, cells: Iterable[Cell]) -> int:
    """How many of the cells are in the archive in another version, or damaged."""
    wanted = [_plain(cell) for cell in cells]
    found = [_cell(path) for path in sorted(store.folder.glob("*.json"))] if wanted else []
    return sum(cell in found for cell in wanted) + found.count(None)


def _plain(cell: Cell) -> Any:
    """The fields of a cell as a file has them."""
    return json.loads(json.dumps(values(cell)))


def _cell(path: Path) -> Mapping[str, Any] | None:
    """The fields of the cell of a file; None if it is damaged."""
    try:
        text = read_checked(path)
    except DamagedError:
        return None
    content = {} if text is None else json.loads(text)
    return content.get("keywords", content.get("cell"))
