"""Work that another thread does, while this one listens for Ctrl-C and looks at the clock.

Python hears Ctrl-C between two of its own instructions, and not inside of a call to LAPACK or to a
server that does not answer. The other thread cannot be ended. Where nobody waits for it any more it
goes on to its end unseen, with the memory that it has, and the end of the process ends it too.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Value = TypeVar("Value")

_LISTEN = 0.1  # seconds; only Windows needs a limit to hear Ctrl-C during a wait


def interruptible(work: Callable[[], Value]) -> Value:
    """The value of ``work``, or a ``KeyboardInterrupt`` as soon as Ctrl-C comes.

    The work must release Python's lock, as functions of ``numpy.linalg`` do and those of
    ``scipy.linalg`` do not. Ctrl-C reaches the main thread alone; others do the work themselves.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    return within(None, work)


def within(seconds: float | None, work: Callable[[], Value]) -> Value:
    """The value of ``work``, or a ``TimeoutError`` after so many seconds."""
    outcome: Future[Value] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001  (it is raised where the value is awaited)
            outcome.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    end = None if seconds is None else time.monotonic() + seconds
    while thread.is_alive() and (end is None or time.monotonic() < end):
        thread.join(_LISTEN if end is None else max(0.0, min(_LISTEN, end - time.monotonic())))
    if not outcome.done():
        msg = f"it took longer than {seconds:.0f} seconds"
        raise TimeoutError(msg)
    return outcome.result()
