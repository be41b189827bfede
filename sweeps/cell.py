"""A cell: one computation, which its values identify completely."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """The keywords of one call of the ``measure`` of an experiment, in the order it names them."""

    items: tuple[tuple[str, Any], ...]

    @property
    def keywords(self) -> dict[str, Any]:
        return dict(self.items)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items)


def values(cell: Any) -> dict[str, Any]:
    """The values of a cell by their names; records in it become mappings."""
    found = dataclasses.asdict(cell)
    return dict(found["items"]) if isinstance(cell, Cell) else found


def flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of each record under the names of its fields."""
    parts = [flat(v) if isinstance(v, Mapping) else {name: v} for name, v in found.items()]
    return {name: value for part in parts for name, value in part.items()}
