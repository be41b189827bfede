"""Find the figures: all modules of this package with names like fig02, b1, c1 or t1."""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from matplotlib.figure import Figure
from pandas import DataFrame

GALLERY = Path("figures/gallery")  # the published tables and pictures
_NAMED = re.compile(r"(?:fig|b|c|t)\d+")


@runtime_checkable
class TableFigure(Protocol):
    """A module whose figure is a function of the table of one experiment."""

    @property
    def EXPERIMENT(self) -> str: ...

    @property
    def COLUMNS(self) -> tuple[str, ...]: ...

    def draw(self, frame: DataFrame) -> Figure: ...

    def caption(self, frame: DataFrame, provenance: Mapping[str, Any]) -> str: ...


class Schematic(Protocol):
    """A module whose figure needs no table."""

    def draw(self) -> Figure: ...

    def caption(self) -> str: ...


def names() -> list[str]:
    """Paper A's figures in order, then paper B's, then those beyond the papers (c and t)."""
    found = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return sorted(
        filter(_NAMED.fullmatch, found), key=lambda name: (not name.startswith("fig"), name)
    )


def of_papers() -> list[str]:
    """The figures of the two papers, without those beyond them."""
    return [name for name in names() if not name.startswith(("c", "t"))]


def load(name: str) -> TableFigure | Schematic:
    """The module of one figure."""
    return cast(TableFigure | Schematic, import_module(f"figures.{name}"))


def enough(figures: Sequence[str]) -> list[str]:
    """Fields of a config, as ``field=value``, with which its table is enough for these figures.

    A figure of a part of a large table says in ``ENOUGH`` what of the config it needs. Together
    with other figures of the same table it needs the whole.
    """
    stated = [getattr(load(name), "ENOUGH", {}) for name in figures]
    return [f"{name}={value}" for name, value in stated[0].items()] if len(stated) == 1 else []


def from_tables() -> dict[str, TableFigure]:
    """The figures that need a table, by name."""
    modules = {name: load(name) for name in names()}
    return {name: found for name, found in modules.items() if isinstance(found, TableFigure)}
