"""Work that another thread does, while this one listens for Ctrl-C.

Python hears Ctrl-C between two of its own instructions, and not inside of a call to LAPACK. The
other thread cannot be ended: it goes on to its end, and keeps its memory until then.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

_Value = TypeVar("_Value")

_LISTEN = 0.1  # seconds; only Windows needs a limit to hear Ctrl-C during a wait


def interruptible(work: Callable[[], _Value]) -> _Value:
    """The value of ``work()``, or a ``KeyboardInterrupt`` as soon as Ctrl-C comes.

    Python hears Ctrl-C only between its own instructions, and not during a call to LAPACK. So the
    work is done by another thread while this one waits and listens. It must release Python's lock,
    as functions of ``numpy.linalg`` do and those of ``scipy.linalg`` do not. Interrupted work goes
    on in its thread, and the end of the process waits for it, or for a second Ctrl-C: a BLAS that
    is unloaded while it computes may hang.
    """
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C does not reach it
        return work()
    outcome: Future[_Value] = Future()
    context = contextvars.copy_context()

    def work_there() -> None:
        with _Raised(outcome):
            outcome.set_result(context.run(work))

    threading.Thread(target=work_there).start()
    while not outcome.done():
        wait([outcome], _LISTEN)  # an interrupted Thread.join forgets its thread
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
