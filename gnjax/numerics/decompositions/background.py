"""Work that another thread does, while this one listens for Ctrl-C and looks at the clock.

Python hears Ctrl-C between two of its own instructions, and not inside of a call to LAPACK or to a
server that does not answer. The other thread cannot be ended: it goes on to its end unseen, with
the memory that it has.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Value = TypeVar("Value")

_LISTEN = 0.1  # seconds; only Windows needs a limit to hear Ctrl-C during a wait


def interruptible(work: Callable[[], Value]) -> Value:
    """The value of ``work``, or a ``KeyboardInterrupt`` as soon as Ctrl-C comes.

    The work must release Python's lock, as functions of ``numpy.linalg`` do and those of
    ``scipy.linalg`` do not. Ctrl-C reaches the main thread alone; others do the work themselves.
    The end of the process waits for interrupted work, or for a second Ctrl-C: a BLAS that is
    unloaded while it computes may hang.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    return _awaited(work, math.inf, daemon=False)


def within(seconds: float, work: Callable[[], Value]) -> Value:
    """The value of ``work``, or a ``TimeoutError`` after so many seconds.

    The end of the process ends the work, too.
    """
    return _awaited(work, seconds, daemon=True)


def _awaited(work: Callable[[], Value], seconds: float, *, daemon: bool) -> Value:
    """The value of ``work()`` in a thread; a TimeoutError after so many seconds."""
    outcome: Future[Value] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        with _Raised(outcome):
            outcome.set_result(context.run(work))

    end = time.monotonic() + seconds
    threading.Thread(target=run, daemon=daemon).start()
    while not outcome.done() and (seconds_left := end - time.monotonic()) > 0:
        wait([outcome], min(_LISTEN, seconds_left))  # an interrupted Thread.join forgets its thread
    if not outcome.done():
        msg = f"it took longer than {seconds:.0f} seconds"
        raise TimeoutError(msg)
    return outcome.result()


class _Raised:
    """A context whose exceptions go into a future, which raises them for the thread that waits."""

    def __init__(self, outcome: Future[Any]) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            self._outcome.set_exception(error)
        return True
