"""Progress of long work, and how it is stopped without losing what it has.

Ctrl-C, or a ``KeyboardInterrupt`` from the caller's function or from a product, asks the work to
stop. A second one ends it at once, and so does the first if the work is not watched or cannot
return the best values so far. In a stage that an answer can do without, such as the one that
measures its error, Ctrl-C ends this stage alone (:func:`gnjax.numerics.stages.stage`).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.numerics.stages import FIRST_PRODUCT, Stage, heard_by, in_words, stage
from gnjax.operators.facts import facts_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.displays import LATE, Bar, Clock, Display, Lines, Told, on_terminal, to_stderr
from gnjax.spectra.forecast import Forecast, Products

Progress = bool | Callable[[int, int | None], object] | Lines | None
"""True for a bar or lines on stderr, or a function of the products done and expected (or None).

By default, None, a terminal shows one line after five seconds, which goes away at the end. False
shows nothing. Commands pass lines of their own.
"""

_CTRL_C = "Ctrl-C ends it with the answer so far"


class Watch:
    """Counts products, hears of stages, and remembers whether a stop was asked for.

    Attributes:
      display: what shows it; None where nobody watches.
      stopped: whether the work was asked to stop, to answer with what it has.
      interrupted: the same, or whether a stage was ended that the answer can do without.
      done: how many products, or other units, are done.
      forecast: how long the products take, and how long they may.
      out_of_time: whether it was stopped as the time of the caller's limits was over.
    """

    def __init__(
        self,
        display: Display | None = None,
        *,
        expected: int | None = None,
        unit: str = "products",
        stoppable: bool = False,
        outer: Watch | None = None,
        seconds: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Nothing is counted without a ``display`` or ``seconds``, after which the work is stopped.

        ``outer`` is the watch of a call around it.
        """
        self.display, self._expected, self._unit = display, expected, unit
        # A call that shows what it does in the outer one leaves Ctrl-C to that one.
        is_shown_there = outer is not None and outer.display is display
        self._stoppable, self._outer = stoppable and not is_shown_there, outer
        self._ends_early = stoppable
        self._names: list[str] = []  # of the stages that have begun, the innermost last
        self._optional = 0  # how many of them the answer can do without
        self._contexts = ExitStack()  # what ends with the work
        self._counts, self._first = False, ""  # what is done before the first product
        self.stopped, self.interrupted, self.done = False, False, 0
        self.where = ""  # the stage that Ctrl-C has ended
        self.out_of_time, self._is_timed = False, seconds is not None
        # Without a plan, work that cannot end early needs all that is expected for an answer.
        least = 0 if stoppable else expected or 0
        self.forecast = Forecast(self._notice, least=least, seconds=seconds, clock=clock)

    def __call__(self, apply: HostProduct) -> HostProduct:
        """A function for the same products that counts each row as one and reports the number.

        From the first call on Ctrl-C asks the work to stop, where it can. If nobody watches,
        ``apply`` itself is returned.
        """
        if self.display is None and not self._is_timed:
            return apply
        if not self._counts:
            self._counts = True
            if self._stoppable and self.display is not None:
                if isinstance(self.display, Bar):
                    self.display.hint(_CTRL_C)
                self._contexts.enter_context(_ctrl_c(self))

        def counted(rows: np.ndarray) -> np.ndarray:
            """Multiply one block and report it; a product that is interrupted is made again."""
            try:
                images = apply(rows)
            except KeyboardInterrupt:
                self.stop()
                images = apply(rows)
            try:
                self.advance(len(rows))
            except KeyboardInterrupt:  # a function may go on raising it until the work ends
                if not self.stopped:
                    self.stop()
            return images

        return counted

    def stage(
        self, name: str, seconds: float | None = None, *, optional: bool = False
    ) -> AbstractContextManager[Stage]:
        """:func:`gnjax.numerics.stages.stage`: a named block, which Ctrl-C may end alone."""
        return stage(name, seconds, optional=optional)

    def advance(self, units: int = 1) -> None:
        """Report that more units are done."""
        self.done += units
        if self.display is not None:
            if self._first:
                self._first = ""
                self.display.back(self._names[-1] if self._names else "")
            self.display.count(self.done, self._expected, self._unit)
        if self._unit == "products":
            self.forecast.learn(self.done, self._unit)
            self._check_time()
        if self.forecast.is_over and self._ends_early and not self.stopped:
            self.stopped = self.interrupted = self.out_of_time = True

    def takes(self, products: Products) -> None:
        """Tell how many products are to be made, and how long these take as soon as it is known.

        The first one, which compiles, tells it roughly where it was a stage of its own, and the
        next ones tell it better. What is short is not told.
        """
        self.forecast.plan(products)
        self._check_time()

    def beside(self, done: int, expected: int, unit: str) -> None:
        """Products are made that the answer does not count; short ones are not shown."""
        if self.display is not None and self.forecast.elapsed >= LATE:
            self.display.count(done, expected, unit)
        self.forecast.learn_beside(done, unit)
        self._check_time()

    def _check_time(self) -> None:
        """Refuse products for which the time cannot be enough, unless the work ends already."""
        if not self.stopped:
            self.forecast.check()

    def _notice(self, text: str) -> None:
        if self.display is not None:
            self.display.notice(text)

    def say(self, text: str) -> None:
        """Show a result before the work ends."""
        if self.display is not None:
            self.display.say(text)

    @property
    def stoppable(self) -> bool:
        """Whether Ctrl-C asks for the answer so far, as whoever watches was told."""
        return self._stoppable and self.display is not None and self.display.visible()

    def stop(self) -> None:
        """Ask the work to stop; the second request ends it at once, and so does one in a stage
        that the answer can do without.
        """
        if self._optional or self.stopped or not self.stoppable:
            raise KeyboardInterrupt
        self.stopped = self.interrupted = True
        if self.display is not None and (self.forecast.each or 0.0) >= 1:
            self.display.notice(
                "Ctrl-C: it ends with the answer so far, after the products that are being made; a "
                "second Ctrl-C ends it at once"
            )

    def is_stopped(self) -> bool:
        return self.stopped

    def begins(self, name: str, seconds: float | None, optional: bool) -> None:
        """A stage has begun, here or in a call within this one."""
        self._names.append(name)
        if name == FIRST_PRODUCT:
            self.forecast.first_begins()
        self._within_optional(optional)
        if self.display is not None:
            self.display.stage(name, seconds)

    def ends(self, name: str, optional: bool, stopped: bool) -> None:
        """The stage that began last has ended; ``stopped`` where Ctrl-C ended it.

        An ``optional`` stage is one that the answer can do without. The display goes back to the
        stage around it or, outside of all, to what is done before the first product.
        """
        self._names.pop()
        if name == FIRST_PRODUCT:
            self.forecast.first_ends()
        self._within_optional(-1 if optional else 0)
        if stopped and optional and self.display is not None:
            self.display.notice(f"Ctrl-C ended {name}, and the answer comes without it")
        if stopped:
            self.where = self.where or name  # the innermost stage ends first, and is the one named
            if optional:
                self._skipped()
        if self.display is not None:
            self.display.back(self._names[-1] if self._names else self._first)

    def _within_optional(self, stages: int) -> None:
        """So many more stages, that the answer can do without, are on here and in outer calls."""
        self._optional += stages
        if self._outer is not None:
            self._outer._within_optional(stages)

    def _skipped(self) -> None:
        """Ctrl-C has ended a stage that the answer can do without: whoever called may stop."""
        self.interrupted, self.where = True, ""
        if self._outer is not None:
            self._outer._skipped()

    def opens(self, name: str) -> None:
        """What is done before the first product, outside of all stages, has this name."""
        self._first = name
        if self.display is not None:
            self.display.stage(name, None)

    def close(self) -> None:
        """The work has ended: put the handler of Ctrl-C back, and draw nothing any more."""
        self._contexts.close()
        if self.display is not None and (
            self._outer is None or self._outer.display is not self.display
        ):
            self.display.close()


UNWATCHED = Watch()


@contextmanager
def watching(
    progress: Progress,
    expected: int | None = None,
    *,
    stoppable: bool = False,
    unit: str = "products",
    op: Operator | None = None,
    seconds: float | None = None,
) -> Iterator[Watch]:
    """Show the progress of the work in a ``with`` block, and let Ctrl-C ask it to stop.

    The block passes its product through the :class:`Watch` that it gets, which counts. From the
    first product on, Ctrl-C sets ``stopped`` there if the work is ``stoppable``. What a terminal
    shows has the time from the beginning of the block on, for work that multiplies nothing can be
    long too. Ctrl-C that ends the block is a ``KeyboardInterrupt`` with one sentence, and without
    the frames of what was interrupted.

    Within another watched call, whose ``progress`` shows it, this one has no display of its own.

    Args:
      progress: see :data:`Progress`.
      expected: how many units there will be; None where nobody can tell.
      stoppable: whether the work can return the best values so far.
      unit: what is counted.
      op: the operator of the work. If it is that of a network, the first stage is its compilation.
      seconds: how long products may go on, as ``gnjax.Limits(seconds=..)`` says; None for as long
        as it takes.
    """
    began = time.monotonic()
    with heard_by(None) as outer, ExitStack() as contexts:
        watch = _watch(progress, expected, unit, stoppable, outer, seconds)
        contexts.callback(watch.close)
        contexts.enter_context(heard_by(watch))
        try:
            network = None if op is None else facts_of(op).network
            if network is not None:
                watch.opens(
                    f"compiling the product of a network of {network.parameters:,} parameters"
                )
            yield watch
        except KeyboardInterrupt as interrupt:
            if watch.out_of_time:
                msg = (
                    f"after {in_words(seconds or 0.0)} and {watch.done} products, which limits "
                    "allow, there was no answer; pass limits=gnjax.Limits(seconds=..) with more"
                )
                raise ValueError(msg) from None
            raise KeyboardInterrupt(*(interrupt.args or [_sentence(watch, began)])) from None


def when_late() -> Progress:
    """How a command shows what it does: a bar on a terminal; elsewhere lines, from 5 s on."""
    return True if on_terminal() else Lines(to_stderr, late=LATE)


def _watch(
    progress: Progress,
    expected: int | None,
    unit: str,
    stoppable: bool,
    outer: object,
    seconds: float | None,
) -> Watch:
    """The watch of a call, within the one of ``outer`` if there is one."""
    display: Display | None
    within = outer if isinstance(outer, Watch) else None
    if progress is None and within is not None:
        display = within.display
    elif isinstance(progress, Lines):
        display = progress
    elif callable(progress):
        display = Told(progress, unit)
    elif progress is True:
        display = Bar() if on_terminal() else Lines(to_stderr)
    elif progress is None or progress is False:
        display = Bar(late=LATE) if progress is None and on_terminal() else None
    else:
        msg = (
            f"progress={progress!r} is neither True, for a bar on stderr, nor a function of the "
            f"{unit} done and expected"
        )
        raise ValueError(msg)
    return Watch(
        display,
        expected=expected,
        unit=unit,
        stoppable=stoppable,
        outer=within,
        seconds=seconds,
    )


def _sentence(watch: Watch, began: float) -> str:
    """What Ctrl-C has ended, and when."""
    after = in_words(time.monotonic() - began)
    during = f" during {watch.where}" if watch.where else ""
    known = f"; {watch.forecast.text}" if watch.forecast.text else ""
    return f"interrupted after {after}{during}, before there was an answer{known}"


@contextmanager
def stages(progress: Progress, expected: int) -> Iterator[Callable[[], None]]:
    """A function for the work in a ``with`` block to call after each of ``expected`` stages."""
    with watching(progress, expected, unit="stages") as watch:
        yield watch.advance


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
