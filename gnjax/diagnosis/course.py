"""The course of a diagnosis: its stages, each with a forecast, within the time that there is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np

from gnjax.diagnosis.remedies.suggestion import LeftOut
from gnjax.numerics.stages import stage
from gnjax.spectra.displays import Clock, with_forecast
from gnjax.spectra.watch import Watch

NO_TIME = "it takes longer than the time that was left"
STOPPED = "the diagnosis was interrupted"
_SIDE, _TRIES = 400, 8  # of the matrices whose product is timed, and how often

_Value = TypeVar("_Value")


class Course:
    """What has been done of a diagnosis, and what was left out.

    Attributes:
      seconds: how much time there is; infinite for all that it takes.
      left_out: the stages that were left out, with the reason and the seconds that they may take.
    """

    def __init__(self, watch: Watch, seconds: float, clock: Clock | None = None) -> None:
        clock = clock or _clock()
        self.seconds, self.left_out = seconds, list[LeftOut]()
        self._watch, self._clock, self._began = watch, clock, clock()
        self._last = 0.0

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning."""
        return self._clock() - self._began

    @property
    def last(self) -> float:
        """The seconds that the last stage took that was done."""
        return self._last

    def first(self, name: str, work: Callable[[], _Value], forecast: float | None = None) -> _Value:
        """A stage without which there is no diagnosis: neither time nor Ctrl-C leaves it out."""
        began = self._clock()
        with stage(name, forecast):
            value = work()
        self._last = self._clock() - began
        return value

    def stage(
        self,
        name: str,
        work: Callable[[], _Value],
        forecast: float | None = None,
        *,
        always: bool = False,
    ) -> _Value | None:
        """What ``work`` returns; None where the stage is left out.

        That is so from Ctrl-C on, and if its forecast is longer than the time that is left, unless
        there is ``always`` time for it.
        """
        reason = self._refused(0.0 if always else forecast, math.inf if always else self.seconds)
        if not reason:
            began = self._clock()
            with stage(name, forecast, optional=True) as this:
                value = work()
            if not this.skipped:
                self._last = self._clock() - began
                return value
            self._watch.interrupted, reason = True, STOPPED
        self.left_out.append(LeftOut(name, reason, forecast))
        if reason == NO_TIME:
            self.say(f"left out for lack of time: {with_forecast(name, forecast)}")
        return None

    def say(self, text: str) -> None:
        """Show a result before the diagnosis ends."""
        self._watch.say(text)

    def _refused(self, forecast: float | None, seconds: float) -> str:
        """Why the next stage is left out, or "", where there are so many seconds for all."""
        if self._watch.interrupted:
            return STOPPED
        left = seconds - self.elapsed
        return NO_TIME if left <= 0 or (forecast or 0.0) > left else ""


def _clock() -> Clock:
    """A clock that does not go while other programs have the processor.

    It is behind that of the wall where this process has had less time of the processor, which does
    not tell how long an accelerator has worked.
    """
    if jax.default_backend() != "cpu":
        return time.monotonic
    wall, own = time.monotonic(), time.process_time()
    return lambda: min(time.monotonic() - wall, time.process_time() - own)


def seconds_for(multiplications: float, speed: float | None = None) -> float:
    """How long so many multiplications take in products of matrices of float64 on this machine."""
    return multiplications / (speed or _speed())


def _speed() -> float:
    """Multiplications in a second, measured on a product of small matrices, the best of eight."""
    matrix = np.ones((_SIDE, _SIDE))
    times = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - began)
    return _SIDE**3 / max(min(times), 1e-9)
