"""Progress of long work, and how it is stopped without losing what it has.

Ctrl-C, or a ``KeyboardInterrupt`` from the caller's function or from a product, asks the work to
stop. A second one ends it at once, and so does the first if the work is not watched or cannot
return the best values so far.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from gnjax.numerics.host import HostProduct

Report = Callable[[int], object]
Progress = bool | Callable[[int, int | None], object] | None
"""True for a bar on stderr, or a function of the products done and expected (or None)."""


class Watch:
    """Counts products and remembers whether a stop was asked for.

    ``begin`` is called before the first product, from which on the work can be stopped. It returns
    the function to which the number of products is reported. Without it nothing is counted.
    """

    def __init__(self, begin: Callable[[Watch], Report] | None, stoppable: bool) -> None:
        self._begin = begin
        self._report: Report | None = None
        self.stoppable, self.stopped, self.done = stoppable, False, 0

    def __call__(self, apply: HostProduct) -> HostProduct:
        """A function for the same products that counts each row as one and reports the number.

        The first call begins the report. If there is none, ``apply`` itself is returned.
        """
        if self._begin is None:
            return apply
        if self._report is None:
            self._report = self._begin(self)
        report = self._report

        def counted(rows: np.ndarray) -> np.ndarray:
            """Multiply one block and report it; a product that is interrupted is made again."""
            try:
                images = apply(rows)
            except KeyboardInterrupt:
                self.stop()
                images = apply(rows)
            self.done += len(rows)
            try:
                report(self.done)
            except KeyboardInterrupt:  # a function may go on raising it until the work ends
                if not self.stopped:
                    self.stop()
            return images

        return counted

    def stop(self) -> None:
        """Ask the work to stop; the second request ends it at once."""
        if self.stopped or not self.stoppable:
            raise KeyboardInterrupt
        self.stopped = True

    def is_stopped(self) -> bool:
        return self.stopped


UNWATCHED = Watch(None, False)


@contextmanager
def watching(
    progress: Progress, expected: int | None = None, *, stoppable: bool = False
) -> Iterator[Watch]:
    """Report the progress of the work in a ``with`` block, and let Ctrl-C ask it to stop.

    The block passes its product through the :class:`Watch` that it gets, which counts. From the
    first product on, Ctrl-C sets ``stopped`` there if the work is ``stoppable``. A bar shows the
    time from the beginning of the block on, for work that multiplies nothing can be long too.
    """
    if progress is None or progress is False:
        yield UNWATCHED
        return
    with ExitStack() as contexts:
        report = contexts.enter_context(_reporting(progress, expected, "products"))

        def begin(watch: Watch) -> Report:
            """The report of a watch; from now on, the first product, Ctrl-C asks for a stop."""
            if watch.stoppable:
                contexts.enter_context(_ctrl_c(watch))
            return report

        yield Watch(begin, stoppable)


@contextmanager
def stages(progress: Progress, expected: int) -> Iterator[Callable[[], None]]:
    """A function for the work in a ``with`` block to call after each of ``expected`` stages."""
    done = 0
    with _reporting(progress, expected, "stages") as report:

        def advance() -> None:
            nonlocal done
            done += 1
            report(done)

        yield advance


@contextmanager
def _reporting(progress: Progress, expected: int | None, unit: str) -> Iterator[Report]:
    """The function to which the caller reports how many products, or other units, are done."""
    if callable(progress):
        yield lambda done: progress(done, expected)
    elif progress is None or progress is False:
        yield lambda done: None
    elif progress is not True:
        msg = (
            f"progress={progress!r} is neither True, for a bar on stderr, nor a function of the "
            f"{unit} done and expected"
        )
        raise ValueError(msg)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        total = "" if expected is None else f"/{expected}"
        count, console = TextColumn("{task.description}"), Console(stderr=True)
        with Progress(BarColumn(), count, TimeElapsedColumn(), console=console) as bars:
            task = bars.add_task(f"0{total} {unit}" if total else "", total=expected)
            yield lambda done: bars.update(
                task, completed=done, description=f"{done}{total} {unit}"
            )
            if not bars.tasks[0].completed:  # a bar that was never moved leaves no line behind
                bars.live.transient, console.quiet = True, not console.is_terminal


@contextmanager
def _ctrl_c(watch: Watch) -> Iterator[None]:
    """Within the block, let Ctrl-C call ``watch.stop`` instead of raising KeyboardInterrupt.

    Nothing changes outside the main thread, where Python allows no handler, or if the caller has a
    handler of their own.
    """
    has_default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not has_default_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: watch.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
