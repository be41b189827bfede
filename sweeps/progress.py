"""The progress of a sweep: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress
from rich.text import Text

from gnjax.cli.terminal import Terminal, column
from sweeps.cell import Cell, flat, values
from sweeps.experiment import Experiment
from sweeps.launchers.launch import Plan, Watcher
from sweeps.launchers.work import Failure
from sweeps.storage.store import Finished

_SECONDS_BETWEEN_LINES = 5.0


class Clock:
    """Estimates the time left, from the cost of the cells that this run has measured."""

    def __init__(self, experiment: Experiment, chosen: Plan) -> None:
        self._experiment, self._began, self._worked = experiment, time.monotonic(), 0.0
        self._left = dict.fromkeys(chosen.left)

    def ended(self, cell: Cell, result: Finished | None) -> None:
        self._left.pop(cell, None)
        self._worked += 0.0 if result is None else self._experiment.cost_of(cell)

    def left(self) -> str:
        if not self._worked:
            return "time left unknown"
        pace = (time.monotonic() - self._began) / self._worked
        seconds = pace * sum(self._experiment.cost_of(cell) for cell in self._left)
        return f"{duration(seconds)} left"


def forecast(
    experiment: Experiment, left: Sequence[Cell], finished: Mapping[Cell, Finished], device: str
) -> str:
    """The time that one process takes for the cells that are left, judged by finished ones.

    Cells of one shape are judged by finished cells of that shape, where there are any. Only those
    count that were computed on ``device``; where there are none, the others, which the text names.
    """
    if not finished:
        return "time unknown, as no such cell is finished"
    here = {cell: done for cell, done in finished.items() if _device(done) in ("", device)}
    judges = here or finished
    paces = {shape: _pace(experiment, some) for shape, some in _by_shape(experiment, judges)}
    typical = _pace(experiment, judges)
    seconds = sum(
        paces.get(experiment.shape_of(cell), typical) * experiment.cost_of(cell) for cell in left
    )
    foreign = sum(experiment.shape_of(cell) not in paces for cell in left)
    rough = f", {foreign} of them judged by other shapes" if foreign else ""
    elsewhere = sorted({_device(done) for done in finished.values()})
    place = "" if here else f" on {', '.join(elsewhere)}, and unknown on {device}"
    return f"about {duration(seconds)}{place}{rough}"


def _by_shape(
    experiment: Experiment, finished: Mapping[Cell, Finished]
) -> Iterator[tuple[Hashable, Mapping[Cell, Finished]]]:
    for shape in {experiment.shape_of(cell) for cell in finished}:
        yield shape, {c: done for c, done in finished.items() if experiment.shape_of(c) == shape}


def _pace(experiment: Experiment, finished: Mapping[Cell, Finished]) -> float:
    """Seconds for a unit of cost."""
    seconds = sum(done.own_seconds for done in finished.values())
    return seconds / sum(experiment.cost_of(cell) for cell in finished)


def _device(done: Finished) -> str:
    """The kind of device that computed a cell; empty where nothing says it."""
    return str(done.provenance.get("device", ""))


class Bar:
    """A live bar with the running number and the time left."""

    def __init__(self, experiment: Experiment, progress: Progress, chosen: Plan) -> None:
        self._experiment, self._progress = experiment, progress
        self._clock, self._names = Clock(experiment, chosen), Names(chosen.cells)
        total, left = len(chosen.left), self._clock.left()
        self._task = progress.add_task(experiment.name, total=total, now="", left=left)
        self._failures = 0

    def finished(self, cell: Cell, result: Finished) -> None:
        self._clock.ended(cell, result)
        self._advance(f"{self._names.of(cell)}: {self._experiment.progress(result.measurement)}")

    def failed(self, failure: Failure) -> None:
        self._failures += 1
        self._clock.ended(failure.cell, None)
        told = f" {self._names.of(failure.cell)}: {failure.summary}"
        self._progress.console.print(Text.assemble(("failed", "red"), told))
        self._advance("")

    def _advance(self, text: str) -> None:
        left = self._clock.left() + (f", {self._failures} failed" if self._failures else "")
        self._progress.update(self._task, advance=1, now=text, left=left)


class Lines:
    """A line every few seconds, and one for every failure."""

    def __init__(self, experiment: Experiment, console: Terminal, chosen: Plan) -> None:
        self._experiment, self._console = experiment, console
        self._clock, self._names = Clock(experiment, chosen), Names(chosen.cells)
        self._total, self._ended, self._spoke = len(chosen.left), 0, time.monotonic()

    def finished(self, cell: Cell, result: Finished) -> None:
        self._ended += 1
        self._clock.ended(cell, result)
        if time.monotonic() - self._spoke < _SECONDS_BETWEEN_LINES and self._ended < self._total:
            return
        self._spoke = time.monotonic()
        told = filter(None, (self._experiment.progress(result.measurement), self._clock.left()))
        self._console.say(f"{self._ended}/{self._total} {self._names.of(cell)}: {', '.join(told)}")

    def failed(self, failure: Failure) -> None:
        self._ended += 1
        self._clock.ended(failure.cell, None)
        self._console.say(f"failed {self._names.of(failure.cell)}: {failure.summary}")


@contextmanager
def watch(experiment: Experiment, chosen: Plan, console: Terminal) -> Iterator[Watcher]:
    if not console.is_terminal:
        yield Lines(experiment, console, chosen)
        return
    columns = (
        column("description"),
        BarColumn(),
        MofNCompleteColumn(),
        column("fields[left]"),
        column("fields[now]"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bar(experiment, progress, chosen)


class Names:
    """Texts for the cells of a sweep: the values of all fields in which they differ."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        known: dict[str, set[str]] = {}
        for cell in cells:
            for name, value in flat(values(cell)).items():
                known.setdefault(name, set()).add(repr(value))
        self._varied = [name for name, found in known.items() if len(found) > 1]

    def of(self, cell: Cell) -> str:
        """A cell as text; all of it where it is the only one."""
        shown = flat(values(cell))
        return " ".join(f"{name}={shown[name]}" for name in self._varied if name in shown) or str(
            cell
        )


def duration(seconds: float) -> str:
    """A time as text: 42 s, 3 min 20 s or 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
