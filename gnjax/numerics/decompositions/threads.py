"""One thread of BLAS where more would wait for each other."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

_ALONE, _SHARED = 64, 512  # rows or columns from which BLAS takes one thread, and from which all


def few_threads(size: int) -> AbstractContextManager[object]:
    """A context with one BLAS thread where a decomposition is then as fast as with two.

    ``size`` is the shorter side of the matrix. With two threads singular values of a matrix 300 x
    200 took twice as long, and those of one 800 x 500 half as long again.
    """
    return one_thread() if _ALONE <= size < _SHARED else nullcontext()


def one_thread() -> AbstractContextManager[object]:
    """Limit every BLAS of the process to one thread.

    NumPy and SciPy bring a BLAS each, whose threads keep the cores busy for a while after each
    call: where their calls alternate with each other or with XLA's, all of them wait.
    """
    return _pools().limit(limits=1, user_api="blas")


@cache
def _pools() -> ThreadpoolController:
    """The thread pools of this process; finding them takes as long as some products."""
    return ThreadpoolController()
