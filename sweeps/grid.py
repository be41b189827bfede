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
    """All fields of a cell but its seed."""
    return tuple(getattr(cell, field.name) for field in fields(cell) if field.name != "seed")


@dataclass(frozen=True)
class Experiment:
    """One sweep.

    Attributes:
      name: also the folder of its results.
      cells: the distinct cells of a config.
      measure: one cell to its measurement; all the computing happens here.
      rows: a config and the measurements of its cells to rows, one dataclass each.
      cost: the work in a cell, in any unit; the time left is judged by it.
      progress: the number worth watching in a measurement, as text.
      shape: what of a cell decides which programs are compiled for it; all but the seed, unless
        the experiment knows better. Processes begin with different shapes, so that each program is
        compiled by one of them and found in the cache by the others.
      resumes: whether ``measure`` takes a :class:`sweeps.storage.checkpoint.Checkpoint` beside the
        cell and goes on from it, where a killed run had come to.
    """

    name: str
    cells: Callable[[Any], Sequence[Cell]]
    measure: Callable[..., Measurement]
    rows: Callable[[Any, Mapping[Cell, Measurement]], Sequence[Any]]
    cost: Callable[[Cell], float]
    progress: Callable[[Measurement], str]
    resumes: bool = False
    shape: Callable[[Cell], Hashable] = without_seed


def copy_fields(kind: type[Record], source: Any, **own: Any) -> Record:
    """A ``kind`` with the values ``own``; ``source`` gives the other fields that it has, too.

    So a cell takes what it shares with its config, and a row what it shares with its cell, without
    a list of names.
    """
    names = {field.name for field in fields(kind)} - own.keys()  # type: ignore[arg-type]
    return kind(**own, **{name: getattr(source, name) for name in names if hasattr(source, name)})
