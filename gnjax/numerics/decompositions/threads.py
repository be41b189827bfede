"""One thread of BLAS where more would wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

_ALONE, _SHARED = 64, 1000  # rows or columns below which BLAS takes one thread, and needs no other


def few_threads(size: int) -> AbstractContextManager[None]:
    """One thread for a decomposition with so many rows or columns, if that is as fast as two.

    Singular values of 300 x 200 took twice as long with two threads, those of 1000 x 800 as long.
    """
    return one_thread() if _ALONE <= size < _SHARED else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every BLAS of the process to one thread.

    NumPy and SciPy bring a BLAS each, whose threads keep the cores busy for a while after each
    call: where their calls alternate with each other or with XLA's, all of them wait.
    """
    with _pools().limit(limits=1, user_api="blas"):
        yield


@cache
def _pools() -> ThreadpoolController:
    """The thread pools of this process; finding them takes as long as some products."""
    return ThreadpoolController()
