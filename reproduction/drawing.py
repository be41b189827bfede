"""Draw figures in a process of their own while the next experiment is computed."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from figures.__main__ import drawn
from sweeps.launchers.pool import deaf_to_ctrl_c, end_with_parent


class Drawing:
    """Draws the figures of one run: ``begin`` starts one, and ``paths`` waits for its files."""

    def __init__(self, run: str, results: Path) -> None:
        self._run, self._results = run, results
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        self._begun: dict[str, Future[list[Path]]] = {}

    def __enter__(self) -> Drawing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    def begin(self, name: str) -> None:
        """Draw a figure as soon as those that were begun before it are drawn."""
        with suppress(BrokenProcessPool), deaf_to_ctrl_c():
            self._begun[name] = self._executor.submit(drawn, *self._what(name))

    def paths(self, name: str) -> list[Path]:
        """The files of a figure; it is drawn here if no process has drawn it."""
        begun = self._begun.pop(name, None)
        if begun is not None:
            with suppress(BrokenProcessPool):
                return begun.result()
        return drawn(*self._what(name))

    def _what(self, name: str) -> tuple[str, str, Path, Path]:
        return name, self._run, self._results, self._results / "figures" / self._run
