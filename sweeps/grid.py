"""What an experiment is: cells, a measurement of one cell, and rows made of all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

Record = TypeVar("Record")

Cell = Any
"""A frozen dataclass of plain values that identifies one computation completely."""

Measurement = Mapping[str, Any]
"""The measurement of a cell: names to numbers, texts, booleans, None, or lists of them."""


def without_seed(cell: Cell) -> Hashable:
    """The values of all fields of a cell but its seed."""
    return tuple(getattr(cell, field.name) for field in fields(cell) if field.name != "seed")


@dataclass(frozen=True)
class Experiment:
    """One sweep.

    Attributes:
      name: its name, which is also the folder of its results.
      cells: returns the distinct cells of a config.
      measure: returns the measurement of one cell; all the computing happens here.
      rows: returns the rows, one dataclass each, from a config and the measurements of its cells.
      cost: returns the work in a cell, in any unit; the time left is estimated from it.
      progress: returns the number worth watching in a measurement, as text.
      shape: returns the fields that decide which programs are compiled for a cell; by default, all
        but the seed. Processes begin with different shapes, so that each program is compiled by
        one of them and found in the cache by the others.
      resumes: whether ``measure`` takes a :class:`sweeps.storage.checkpoint.Checkpoint` as its
        second argument, from which it continues a run that was killed.
      version: of the numbers. It is raised when the same cell gets other ones, for a reason that
        its published interval does not cover; :mod:`sweeps.storage.archive` then refuses cells that
        were published before.
    """

    name: str
    cells: Callable[[Any], Sequence[Cell]]
    measure: Callable[..., Measurement]
    rows: Callable[[Any, Mapping[Cell, Measurement]], Sequence[Any]]
    cost: Callable[[Cell], float]
    progress: Callable[[Measurement], str]
    resumes: bool = False
    shape: Callable[[Cell], Hashable] = without_seed
    version: int = 1


def copy_fields(kind: type[Record], source: Any, **own: Any) -> Record:
    """An instance of ``kind`` with the values ``own``; its other fields are copied from ``source``.

    Fields that ``source`` lacks keep their defaults. So a cell takes from its config the fields
    that both have, and a row those from its cell, without a list of names.
    """
    names = {field.name for field in fields(kind)} - own.keys()  # type: ignore[arg-type]
    return kind(**own, **{name: getattr(source, name) for name in names if hasattr(source, name)})
