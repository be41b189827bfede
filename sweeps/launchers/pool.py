"""Cells on several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from gnjax.cli.machine import usable_cores
from sweeps.grid import Cell
from sweeps.launchers.work import Ended, Failure, Launcher, LauncherError, Task, attempt, settle
from sweeps.storage.environment import device_kind, precision_name


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


class _Processes:
    def __init__(self, jobs: int, threads: int) -> None:
        self._jobs, self._threads = jobs, threads
        self._started: tuple[str, ProcessPoolExecutor] | None = None

    def device(self) -> str:
        """The kind of device in one of the processes, so that this one takes no device memory."""
        try:
            return self._executor(precision_name()).submit(device_kind).result()
        except BrokenProcessPool as error:
            msg = "a process died before its first cell; is there enough memory?"
            raise LauncherError(msg) from error

    def compute(self, task: Task, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Ended]]:
        left = deque(cells)
        while left:
            flying: dict[Future[Ended], Cell] = {}
            try:
                yield from self._flights(task, left, flying)
            except BrokenProcessPool:
                self._started = None
                for cell in flying.values():
                    yield cell, _alone(task, cell, self._threads)

    def _flights(
        self, task: Task, left: deque[Cell], flying: dict[Future[Ended], Cell]
    ) -> Iterator[tuple[Cell, Ended]]:
        """Yield cells as they end, with one in flight for each process.

        ``flying`` always holds the cells in flight, so that the caller can try them again.
        """
        executor = self._executor(task.store.environment.precision)
        compiled: set[Hashable] = set()
        while left or flying:
            while left and len(flying) < self._jobs:
                cell = _next(task, left, compiled, flying.values())
                flying[executor.submit(attempt, task, cell)] = cell
                left.remove(cell)
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                ended = future.result()
                compiled.add(task.shape(flying[future]))
                yield flying.pop(future), ended

    def _executor(self, precision: str) -> ProcessPoolExecutor:
        if self._started is None or self._started[0] != precision:
            self._started = precision, _executor(precision, self._jobs, self._threads)
        return self._started[1]


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
    try:
        with _executor(task.store.environment.precision, 1, threads) as executor:
            return executor.submit(attempt, task, cell).result()
    except BrokenProcessPool as error:
        summary = "its process died twice, the second time alone; is there enough memory?"
        return Failure(cell, summary, f"{type(error).__name__}: {error}\n")


def _executor(precision: str, jobs: int, threads: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(threads, precision))


def _begin(threads: int, precision: str) -> None:
    settle(threads, precision)
    end_with_parent()


def end_with_parent() -> None:
    """End this process with the one that started it, or it would wait for work forever."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
