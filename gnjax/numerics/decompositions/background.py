"""Work that another thread does, while this one listens for Ctrl-C.

Python hears Ctrl-C between two of its own instructions, and not inside of a call to LAPACK. The
other thread cannot be ended: it goes on to its end, and keeps its memory until then.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

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
    executor = ThreadPoolExecutor(max_workers=1)
    outcome = executor.submit(contextvars.copy_context().run, work)
    executor.shutdown(wait=False)  # takes no more work, and does not wait for this
    while not outcome.done():
        wait([outcome], _LISTEN)  # an interrupted Thread.join forgets its thread
    return outcome.result()
