"""What an experiment is: the settings of its cells, the measurement of one cell, and its table."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

from ml_collections import ConfigDict

from sweeps.cell import Cell, Measurement, all_but_seed, flat, values
from sweeps.claims import Claim
from sweeps.config import ConfigError
from sweeps.kinds import fitted
from sweeps.storage.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Labels = Mapping[str, Any]
Keywords = Mapping[str, Any]
Columns = Mapping[str, Any]

_CHECKPOINT = "checkpoint"  # the parameter of a measure that goes on where it was killed


@dataclass(frozen=True)
class Experiment:
    """One sweep: a table of what ``measure`` returns at every setting.

    Attributes:
      name: its name, which is also the folder of its results.
      settings: from a config, for each group of rows of the table in order, the labels that the
        table has beside the setting, and the keywords of ``measure``. Keywords that are left out
        are the fields of the config with the same names, or the defaults of ``measure``. Settings
        with the same keywords share one cell, which is computed once.
      measure: computes one cell, and returns the columns of its row, or a list of rows. Its
        annotations are checked before anything runs. In place of keywords it may take one frozen
        dataclass, whose fields they are, as ``cost`` and ``shape`` then do. If it has a parameter
        ``checkpoint``, it gets
        a :class:`sweeps.storage.checkpoint.Checkpoint`, from which it goes on if it was killed.
      cost: the work in a cell, in any unit, from those keywords that it names; the time left is
        estimated from it.
      columns: those of the table, in order; without it the labels, the keywords and what is
        measured. What is measured counts before a keyword of the same name. A label that is
        measured, too, picks those rows of the cell that have its value.
      claims: what is expected of the table.
      draw: a figure of matplotlib from the table, for ``--plot``; ``figures.shared.own.curves``
        makes one for curves of one column over another.
      sources: from a config, a line of text on each data set. It loads them, so that missing data
        end the run at once.
      shape: the values that decide which programs are compiled for a cell, from those keywords
        that it names; without it all but the seed. Processes begin with different shapes, so that
        each program is compiled by one of them and found in the cache by the others.
      watch: the column whose last value is shown while the sweep runs.
      version: of the numbers. It is raised when the same cell gets other ones, for a reason that
        its published interval does not cover; :mod:`sweeps.storage.archive` then refuses cells that
        were published before.
    """

    name: str
    settings: Callable[[ConfigDict], Iterable[tuple[Labels, Keywords]]]
    measure: Callable[..., Columns | Sequence[Columns]]
    cost: Callable[..., float]
    columns: tuple[str, ...] = ()
    claims: Sequence[Claim] = ()
    draw: Callable[[DataFrame], Figure] | None = None
    sources: Callable[[ConfigDict], Sequence[str]] = lambda config: []
    shape: Callable[..., Hashable] | None = None
    watch: str = "kappa"
    version: int = 1

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.measure).parameters
        unclear = [
            name
            for name, parameter in parameters.items()
            if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD
        ]
        if unclear:
            msg = f"measure of {self.name} must name and annotate its parameters: {unclear}"
            raise TypeError(msg)
        for function in filter(None, (self.cost, self.shape)):
            for name in inspect.signature(function).parameters:
                if self.record is None and name not in self.kinds:
                    known = _nearest(name, self.kinds)
                    msg = f"{function.__name__} of {self.name} asks for {name!r}{known}"
                    raise TypeError(msg)

    @cached_property
    def record(self) -> Any:
        """The dataclass that ``measure`` takes in place of keywords, if it does."""
        hints = get_type_hints(self.measure)
        names = inspect.signature(self.measure).parameters.keys() - {_CHECKPOINT}
        kind = hints[next(iter(names))] if len(names) == 1 else None
        return kind if is_dataclass(kind) else None

    @cached_property
    def kinds(self) -> dict[str, Any]:
        """The annotated type of each keyword of ``measure``, or of each field of its record."""
        hints = get_type_hints(self.record or self.measure)
        names = inspect.signature(self.record or self.measure).parameters
        return {name: hints[name] for name in names if name != _CHECKPOINT}

    def cell(self, config: ConfigDict, keywords: Keywords) -> Cell:
        """The cell of these keywords, completed and checked against what ``measure`` takes."""
        for name in keywords:
            if name not in self.kinds:
                msg = f"measure takes no {name!r}{_nearest(name, self.kinds)}"
                raise ConfigError(msg)
        cell = Cell(tuple((name, self._value(name, config, keywords)) for name in self.kinds))
        if self.record is not None:
            self.record(**cell.keywords)  # which may refuse it
        return cell

    def _value(self, name: str, config: ConfigDict, keywords: Keywords) -> Any:
        default = inspect.signature(self.record or self.measure).parameters[name].default
        for source in (
            keywords,
            config,
            {} if default is inspect.Parameter.empty else {name: default},
        ):
            if name in source:
                try:
                    return fitted(source[name], self.kinds[name])
                except ValueError as error:
                    msg = f"{name} of measure: {error}"
                    raise ConfigError(msg) from error
        msg = f"measure needs {name!r}, which neither the settings nor the config give"
        raise ConfigError(msg)

    def uses(self, config: ConfigDict) -> Iterator[tuple[Labels, Cell]]:
        """The labels and the cell of each group of rows, in the order of the table."""
        try:
            for labels, keywords in self.settings(config):
                yield labels, self.cell(config, keywords)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def cells(self, config: ConfigDict) -> tuple[Cell, ...]:
        """The distinct cells, of each seed the most expensive first.

        So a part of a sweep has all cells of the first seeds, and short ones are left at the end.
        """
        distinct = dict.fromkeys(cell for _, cell in self.uses(config))
        if not distinct:
            msg = "this config has no cells"
            raise ConfigError(msg)
        return tuple(
            sorted(distinct, key=lambda cell: (cell.keywords.get("seed", 0), -self.cost_of(cell)))
        )

    def cost_of(self, cell: Cell) -> float:
        return float(OfCell(self.cost, self.record)(cell))

    @property
    def shape_of(self) -> Callable[[Cell], Hashable]:
        return all_but_seed if self.shape is None else OfCell(self.shape, self.record)

    def rows(self, config: ConfigDict, measured: Mapping[Cell, Measurement]) -> list[Columns]:
        """The table, of the cells that have a measurement."""
        uses = list(self.uses(config))
        found: list[Columns] = [
            {**labels, **_shown(cell), **columns}
            for labels, cell in uses
            if cell in measured
            for columns in measured[cell]["rows"]
            if all(columns.get(name, value) == value for name, value in labels.items())
        ]
        if not self.columns:
            return found
        absent = [name for name in self.columns if not any(name in row for row in found)]
        if absent and all(cell in measured for _, cell in uses):
            msg = f"no row of {self.name} has the column {', '.join(absent)}"
            raise ValueError(msg)
        return [{name: row.get(name) for name in self.columns} for row in found]

    def progress(self, measurement: Measurement) -> str:
        """The last value of the column that is watched, as text."""
        values = [row[self.watch] for row in measurement["rows"] if row.get(self.watch) is not None]
        return f"{self.watch} {values[-1]:.4g}" if values else ""

    @property
    def resumes(self) -> bool:
        """Whether a cell that was killed goes on from its checkpoint."""
        return _CHECKPOINT in inspect.signature(self.measure).parameters

    @property
    def measure_cell(self) -> MeasureCell:
        """``measure`` as a function of a cell."""
        return MeasureCell(self.measure, self.record, self.resumes)


@dataclass(frozen=True)
class OfCell:
    """A function of the record, or of those keywords of a cell that it names, as one of the cell.

    Like ``MeasureCell`` it can be sent to another process, as its parts can.
    """

    func: Callable[..., Any]
    record: Any

    def __call__(self, cell: Cell) -> Any:
        if self.record is not None:
            return self.func(self.record(**cell.keywords))
        names = inspect.signature(self.func).parameters
        return self.func(**{name: cell.keywords[name] for name in names})


@dataclass(frozen=True)
class MeasureCell:
    """``measure`` as a function of a cell. It can be sent to another process, as its parts can."""

    func: Callable[..., Columns | Sequence[Columns]]
    record: Any
    resumes: bool

    def __call__(self, cell: Cell, checkpoint: Checkpoint | None = None) -> Measurement:
        more = {_CHECKPOINT: checkpoint} if self.resumes else {}
        if self.record is None:
            measured = self.func(**cell.keywords, **more)
        else:
            measured = self.func(self.record(**cell.keywords), **more)
        rows = [measured] if isinstance(measured, Mapping) else measured
        return {
            "rows": [{name: _plain(name, value) for name, value in row.items()} for row in rows]
        }


def _plain(name: str, value: Any) -> Any:
    """A number or a text as a file keeps it; scalars of NumPy and JAX become numbers of Python."""
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if value is not None and not isinstance(value, str | int | float):
        msg = (
            f"measure returns {type(value).__name__} in column {name}, which takes a number or text"
        )
        raise TypeError(msg)
    return value


def _shown(cell: Cell) -> dict[str, Any]:
    """The keywords that a table can have: no tuples, and the fields of records."""
    found = flat(values(cell))
    return {name: value for name, value in found.items() if not isinstance(value, tuple)}


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}"
