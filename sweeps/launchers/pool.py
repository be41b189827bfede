"""Cells on several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from gnjax.cli.machine import usable_cores
from sweeps.cell import Cell
from sweeps.launchers.work import Ended, Failure, Launcher, LauncherError, Task, attempt, settle
from sweeps.storage.environment import device_kind, precision_name

Result = TypeVar("Result")


def in_processes(jobs: int) -> Launcher:
    """A launcher with ``jobs`` processes that share the cores. They are spawned, never forked.

    They are started when first needed and serve every sweep that the launcher is given. A process
    that dies (killed, or out of memory) takes no other cell with it: the cells in flight are tried
    once more, each in a process of its own, and only one that dies again has failed.
    """
    if jobs < 1:
        msg = f"jobs={jobs} must be at least 1"
        raise ValueError(msg)
    processes = _Processes(jobs, max(1, usable_cores() // jobs))
    return Launcher(processes.compute, processes.device)


class _Workers:
    """Processes that compute for this one, until it ends or asks them to."""

    def __init__(self, precision: str, jobs: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.precision = precision
        self._heard, self._held = context.Pipe(duplex=False)
        begin = (threads, precision, self._heard)
        self._executor = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=begin)

    def submit(self, call: Callable[..., Result], *arguments: Any) -> Future[Result]:
        with deaf_to_ctrl_c():  # this may start a process
            return self._executor.submit(call, *arguments)

    def end(self) -> None:
        """End the processes, in the middle of what they compute; it is computed again some day."""
        self._held.close()
        self._executor.shutdown(wait=False, cancel_futures=True)


class _Processes:
    def __init__(self, jobs: int, threads: int) -> None:
        self._jobs, self._threads = jobs, threads
        self._started: _Workers | None = None

    def device(self) -> str:
        """The kind of device in one of the processes, so that this one takes no device memory."""
        answer = self._workers(precision_name()).submit(device_kind)
        try:
            return answer.result()
        except BrokenProcessPool as error:
            msg = "a process died before its first cell; is there enough memory?"
            raise LauncherError(msg) from error
        finally:
            if not answer.done():
                self._end()

    def compute(self, task: Task, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Ended]]:
        left = deque(cells)
        while left:
            flying: dict[Future[Ended], Cell] = {}
            try:
                yield from self._flights(task, left, flying)
            except BrokenProcessPool:
                self._end()
                for cell in flying.values():
                    yield cell, _alone(task, cell, self._threads)
            finally:
                if flying:  # after Ctrl-C, or an error of whoever takes the results
                    self._end()

    def _flights(
        self, task: Task, left: deque[Cell], flying: dict[Future[Ended], Cell]
    ) -> Iterator[tuple[Cell, Ended]]:
        """Yield cells as they end, with one in flight for each process.

        ``flying`` always holds the cells in flight, so that the caller can try them again.
        """
        workers = self._workers(task.store.environment.precision)
        compiled: set[Hashable] = set()
        while left or flying:
            while left and len(flying) < self._jobs:
                cell = _next(task, left, compiled, flying.values())
                flying[workers.submit(attempt, task, cell)] = cell
                left.remove(cell)
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                ended = future.result()
                compiled.add(task.shape(flying[future]))
                yield flying.pop(future), ended

    def _workers(self, precision: str) -> _Workers:
        if self._started is None or self._started.precision != precision:
            self._started = _Workers(precision, self._jobs, self._threads)
        return self._started

    def _end(self) -> None:
        if self._started is not None:
            self._started.end()
        self._started = None


def _next(
    task: Task, left: Iterable[Cell], compiled: Collection[Hashable], flying: Iterable[Cell]
) -> Cell:
    """The first cell whose programs no process is compiling now, or else the first cell.

    Two processes that compile the same program at the same time do the work twice.
    """
    compiling = {task.shape(cell) for cell in flying} - set(compiled)
    cells = list(left)
    return next((cell for cell in cells if task.shape(cell) not in compiling), cells[0])


def _alone(task: Task, cell: Cell, threads: int) -> Ended:
    workers = _Workers(task.store.environment.precision, 1, threads)
    try:
        return workers.submit(attempt, task, cell).result()
    except BrokenProcessPool as error:
        summary = "its process died twice, the second time alone; is there enough memory?"
        return Failure(cell, summary, f"{type(error).__name__}: {error}\n")
    finally:
        workers.end()


def _begin(threads: int, precision: str, parent: Connection) -> None:
    settle(threads, precision)
    end_with_parent(parent)


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started in the block leave Ctrl-C to the process that starts them.

    A terminal sends it to all of them, at any moment, and each would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows, where they hear it until they begin
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(*parents: Connection) -> None:
    """Ignore Ctrl-C, and end this process with the one that started it, which would give it work.

    It also ends when that one closes its end of a pipe, of which ``parents`` has the other end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for, args=parents, daemon=True).start()


def _wait_for(*parents: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel, *parents])
        os._exit(1)
