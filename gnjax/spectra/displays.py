"""How a call shows what it does: lines in a log, a bar or a line on a terminal, or a function.

A forecast of products is the time of one, without the first, which is often compiled, times those
that are left.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from gnjax.numerics.stages import in_words

Clock = Callable[[], float]
"""The seconds since some moment."""

LATE = 5.0  # seconds after which a call on a terminal says unasked that it takes long
_FIRST, _LATER = 1.0, 1.5  # a log has a line of products after 1 s, and after 1.5 times as long


class Display(Protocol):
    """What is told of the stages of a call and of the products, or other units, that are done."""

    def stage(self, name: str, seconds: float | None) -> None:
        """A stage has begun, which may take so many seconds."""

    def back(self, name: str) -> None:
        """A stage has ended, within the stage of this name; "" where it was within none."""

    def count(self, done: int, expected: int | None, unit: str) -> None:
        """So many units are done, of so many that are expected, or None."""

    def say(self, text: str) -> None:
        """Show a result, which stays."""

    def notice(self, text: str) -> None:
        """Show what the caller must know before the answer, as that it takes hours."""

    def visible(self) -> bool:
        """Whether the caller sees it."""

    def close(self) -> None:
        """The call has ended."""


def on_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be drawn again."""
    is_terminal = getattr(sys.stderr, "isatty", None)
    return bool(is_terminal and is_terminal()) and os.environ.get("TERM") != "dumb"


class Pace:
    """The forecast of a count: how many seconds the units take that are left."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # when the first units were done, how many, and of what
        self._first: tuple[float, int, str] | None = None

    def words(self, done: int, expected: int | None, unit: str) -> str:
        """The count with its forecast: "20/300 products, about 12 s more"."""
        now = self._clock()
        text = f"{done} {unit}" if expected is None else f"{done}/{expected} {unit}"
        if self._first is None or done <= self._first[1] or unit != self._first[2]:
            self._first = now, done, unit
            return text
        began, before, _ = self._first
        each = (now - began) / (done - before)
        if expected is None:
            return f"{text}, {in_words(each) if each >= 0.1 else f'{1e3 * each:.2g} ms'} each"
        left = each * (expected - done)
        return f"{text}, about {in_words(left)} more" if left > 0 else text


class Lines:
    """Lines for a log: each stage when it begins, and the products ever less often.

    With ``late`` nothing is written of work that takes fewer seconds.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        clock: Clock = time.monotonic,
        late: float | None = None,
    ) -> None:
        self._write, self._clock, self._began = write, clock, clock()
        self._held: list[str] | None = None if late is None else []  # until it is late
        self._lock = threading.RLock()
        if late is not None:
            self._timer = threading.Timer(late, self._begin)
            self._timer.daemon = True
            self._timer.start()
        self._pace, self._next = Pace(clock), _FIRST
        self._last = ""

    def stage(self, name: str, seconds: float | None) -> None:
        self._flush()
        self._pace = Pace(self._clock)
        self._line(with_forecast(name, seconds))

    def back(self, name: str) -> None:
        self._flush()

    def count(self, done: int, expected: int | None, unit: str) -> None:
        if unit == "stages" and done != expected:
            return  # each of them has a line of its own
        self._last = self._pace.words(done, expected, unit)
        elapsed = self._clock() - self._began
        if elapsed >= self._next:
            self._next = _LATER * elapsed
            self._flush()

    def say(self, text: str) -> None:
        self._flush()
        for line in text.splitlines():
            self._line(line)

    def notice(self, text: str) -> None:
        self.say(text)

    def visible(self) -> bool:
        return self._held is None

    def close(self) -> None:
        with self._lock:
            if self._held is None:
                self._flush()
            else:
                self._timer.cancel()

    def _begin(self) -> None:
        """It is late: write what was held back."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                self._write(line)

    def _flush(self) -> None:
        """Write the last count, if it was not written yet."""
        text, self._last = self._last, ""
        if text:
            self._line(text)

    def _line(self, text: str) -> None:
        line = f"gnjax {self._clock() - self._began:6.1f} s  {text}\n"
        with self._lock:
            if self._held is None:
                self._write(line)
            else:
                self._held.append(line)


class Bar:
    """A bar on a terminal with the stage, the count and the time since the beginning.

    With ``late`` it is drawn only after so many seconds, as one line that goes away at the end.
    """

    def __init__(self, late: float | None = None) -> None:
        # Ctrl-C may come, and say something, in the thread that draws just then
        self._late, self._lock, self._closed = late, threading.RLock(), False
        self._notices: list[str] = []  # that came before the line was drawn
        self._bars: Any = None
        self._name = self._count = self._hint = ""
        self._done: tuple[int, int | None] = (0, None)
        self._began, self._pace = time.monotonic(), Pace(time.monotonic)
        if late is None:
            self._draw()
        else:
            self._timer = threading.Timer(late, self._draw)
            self._timer.daemon = True
            self._timer.start()

    def stage(self, name: str, seconds: float | None) -> None:
        self._pace = Pace(time.monotonic)
        self.back(with_forecast(name, seconds))

    def back(self, name: str) -> None:
        self._name, self._count = name, ""
        self._update()

    def count(self, done: int, expected: int | None, unit: str) -> None:
        self._done, self._count = (done, expected), self._pace.words(done, expected, unit)
        self._update()

    def hint(self, text: str) -> None:
        self._hint = text

    def say(self, text: str) -> None:
        with self._lock:
            if self._bars is not None and self._late is None:
                self._bars.console.print(text, markup=False, highlight=False)

    def notice(self, text: str) -> None:
        """Print it above the bar, or above the line that goes away, where it stays."""
        with self._lock:
            if self._bars is None:
                self._notices.append(text)
            else:
                self._print(text)

    def _print(self, text: str) -> None:
        self._bars.console.print(f"gnjax: {text}", markup=False, highlight=False)

    def visible(self) -> bool:
        return self._bars is not None

    def close(self) -> None:
        if self._late is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bars is not None:
                # a line that was drawn unasked, or a bar that was never moved, leaves nothing
                self._bars.live.transient = self._late is not None or not self._done[0]
                self._bars.stop()

    def _draw(self) -> None:
        """Begin to draw, unless the call has ended."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            text = TextColumn("{task.description}", markup=False)
            shape = BarColumn() if self._late is None else SpinnerColumn()
            bars = Progress(shape, text, TimeElapsedColumn(), console=Console(stderr=True))
            self._task = bars.add_task(self._words(), total=self._done[1])
            bars.tasks[0].start_time = bars.get_time() - (time.monotonic() - self._began)
            bars.start()
            self._bars = bars
            for notice in self._notices:
                self._print(notice)
        self._update()

    def _update(self) -> None:
        with self._lock:
            if self._bars is not None and not self._closed:
                done, expected = self._done
                self._bars.update(
                    self._task, completed=done, total=expected, description=self._words()
                )

    def _words(self) -> str:
        """The stage and the count; in a line that was not asked for, what Ctrl-C does as well."""
        text = ": ".join(part for part in (self._name, self._count) if part)
        if self._late is None:
            return text
        return f"gnjax: {text or '..'}{f' ({self._hint})' if self._hint else ''}"


class Told:
    """A function of the ``unit`` that are done and expected; it hears of nothing else."""

    def __init__(self, function: Callable[[int, int | None], object], unit: str) -> None:
        self._function, self._unit = function, unit

    def stage(self, name: str, seconds: float | None) -> None:
        pass

    def back(self, name: str) -> None:
        pass

    def count(self, done: int, expected: int | None, unit: str) -> None:
        if unit == self._unit:
            self._function(done, expected)

    def say(self, text: str) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def visible(self) -> bool:
        return True

    def close(self) -> None:
        pass


def with_forecast(name: str, seconds: float | None) -> str:
    """The name of a stage, with how long it may take: "evidence, about 3.0 s"."""
    return name if seconds is None else f"{name}, about {in_words(seconds)}"


def to_stderr(text: str) -> None:
    """Write to stderr, if there is one."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
