"""Draw figures in a process of their own while the next experiment is computed."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from figures.__main__ import drawn, saved
from sweeps.launchers.pool import deaf_to_ctrl_c, end_with_parent
from sweeps.table import TableError


class Drawing:
    """Draws the figures of one run: ``begin`` starts one, and ``paths`` waits for its files."""

    def __init__(self, run: str, results: Path) -> None:
        self._run, self._results = run, results
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        self._begun: dict[str, Future[list[Path]]] = {}
        self._tables: dict[str, tuple[Path, Path]] = {}

    def __enter__(self) -> Drawing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    def begin(self, name: str, files: tuple[Path, Path] | None = None) -> None:
        """Draw a figure as soon as those that were begun before it are drawn.

        ``files`` are a table and its provenance, in place of those of this run.
        """
        if files is not None:
            self._tables[name] = files
        with suppress(BrokenProcessPool, TableError), deaf_to_ctrl_c():
            self._begun[name] = self._executor.submit(drawn, *self._what(name))

    def paths(self, name: str) -> list[Path]:
        """The files of a figure; it is drawn here if no process has drawn it."""
        begun = self._begun.pop(name, None)
        if begun is not None:
            with suppress(BrokenProcessPool):
                return begun.result()
        return drawn(*self._what(name))

    def _what(self, name: str) -> tuple[str, tuple[Path, Path] | None, Path]:
        files = self._tables.get(name) or saved(name, self._run, self._results)
        return name, files, self._results / "figures" / self._run
