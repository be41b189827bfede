"""A cell: one computation, which its keywords identify completely; and what it measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

Measurement = Mapping[str, Any]
"""What a cell measures as a file keeps it: names to numbers, texts, None, or lists of them."""


@dataclass(frozen=True)
class Cell:
    """The keywords of one call of the ``measure`` of an experiment, in the order it names them."""

    items: tuple[tuple[str, Any], ...]

    @property
    def keywords(self) -> dict[str, Any]:
        return dict(self.items)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items)


def values(cell: Cell) -> dict[str, Any]:
    """The keywords of a cell by their names; records in it become mappings."""
    return dict(dataclasses.asdict(cell)["items"])


def all_but_seed(cell: Cell) -> Hashable:
    return tuple(item for item in cell.items if item[0] != "seed")


def flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of each record under the names of its fields."""
    parts = [flat(v) if isinstance(v, Mapping) else {name: v} for name, v in found.items()]
    return {name: value for part in parts for name, value in part.items()}
