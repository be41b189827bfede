"""How long the products of a call take, told before they are made, and how long they may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gnjax.numerics.stages import in_words
from gnjax.spectra.displays import Clock

LONG = 60.0  # a forecast from so many seconds on is told before the products are made


@dataclass(frozen=True)
class Products:
    """How many products an answer takes, before they are made.

    Attributes:
      fewest, most: the least that give an answer, and the most that are made.
      of: what makes them, such as "kappa by Lanczos".
      advice: what takes less time, in a sentence.
    """

    fewest: int
    most: int
    of: str
    advice: str


class Forecast:
    """Learns from the products of a call how long one takes, and says how long all of them take.

    Attributes:
      text: what was told of the time that the products take; "" where it is short or unknown.
      each: the seconds of one product, without a compilation; None before two are made.
      planned: how many products there are to be, once that is known.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        least: int = 0,
        seconds: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """``tell`` is called with each forecast.

        ``least`` is how many products give an answer where none are planned, and ``seconds`` how
        long the call may take; None for as long as it takes.
        """
        self._tell, self._least, self._seconds, self._clock = tell, least, seconds, clock
        self._began = self._first_began = clock()
        self._first: float | None = None  # the seconds of the first product, with its compilation
        self._done = self._beside = 0  # products of the answer, and others
        self._timed: tuple[float, int, str] | None = None  # when products were counted first
        self.text = ""
        self.each: float | None = None
        self.planned: Products | None = None

    @property
    def elapsed(self) -> float:
        """The seconds since the call began."""
        return self._clock() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the call takes longer than it may."""
        return self._seconds is not None and self.elapsed > self._seconds

    def first_begins(self) -> None:
        """The first product is being made, as a stage of its own."""
        self._first_began = self._clock()

    def first_ends(self) -> None:
        self._first = self._clock() - self._first_began

    def plan(self, products: Products) -> None:
        """Tell how long so many products take, roughly, if the first one was timed."""
        self.planned, first = products, self._first
        if first is not None:
            known = f"the first product took {in_words(first)} with its compilation"
            self._say(known, first, "at most ")

    def learn(self, done: int, unit: str) -> None:
        """So many products of the answer are done; the second look at them tells what one takes."""
        self._done = done
        self._time(done, unit)

    def learn_beside(self, done: int, unit: str) -> None:
        """So many products are done that the answer does not count."""
        self._beside = done
        self._time(done, unit)

    def _time(self, done: int, unit: str) -> None:
        now = self._clock()
        if self._timed is None or unit != self._timed[2] or done <= self._timed[1]:
            self._timed = now, done, unit
        elif self.each is None:
            began, before, _ = self._timed
            self.each = (now - began) / (done - before)
            self._say(f"one product takes {in_words(self.each)}", self.each)

    def _say(self, known: str, each: float, at_most: str = "up to ") -> None:
        """Say how long the products take that are planned, if it is long."""
        plan = self.planned
        if plan is None or each * plan.most < LONG:
            return
        seconds = in_words(each * plan.most)
        advice = "" if self.text else f"; {plan.advice}"
        self.text = f"{known}, and {plan.of} makes up to {plan.most:,}: {at_most}{seconds}"
        self._tell(f"{self.text}{advice}")

    def check(self) -> None:
        """Refuse products for which the time cannot be enough."""
        if self._seconds is None:
            return
        plan, made, each = self.planned, self._beside + self._done, self.each or 0.0
        fewest = plan.fewest if plan else self._least
        ends = self.elapsed + each * max(fewest - made, 0)
        if made < fewest and ends > self._seconds:
            known = f"at {in_words(each)} each " if each else ""
            msg = (
                f"the time is too short for an answer: the least are {fewest:,} products, which "
                f"{known}take more than {in_words(ends)}, and limits allow "
                f"{in_words(self._seconds)}; pass limits=gnjax.Limits(seconds=..) with more time"
            )
            raise ValueError(f"{msg}, or take less work: {plan.advice}" if plan else msg)
