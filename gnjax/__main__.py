"""``python -m gnjax data``: what data there is, and fetching it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

import pooch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from gnjax import data
from gnjax.data.datasets import describe, unknown_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 where it succeeded, 1 where it failed, 2 for a mistake in the call."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        parsed.run(parsed)
    except (data.DataUnavailableError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gnjax", description="gnjax at the shell")
    commands = parser.add_subparsers(metavar="command", required=True)
    _add_data(commands)
    return parser


def _add_data(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = commands.add_parser("data", help="list the data sets, or fetch one into the cache")
    listing.set_defaults(run=_list_data)
    actions = listing.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them (the default)").set_defaults(run=_list_data)
    fetching = actions.add_parser("fetch", help="fetch data sets into the cache")
    fetching.add_argument("names", nargs="+", type=_known_name, metavar="name")
    fetching.set_defaults(run=_fetch_data)


def _known_name(name: str) -> str:
    if name not in data.names():
        raise argparse.ArgumentTypeError(unknown_name(name))
    return name


def _list_data(_: argparse.Namespace) -> None:
    table = [("name", "shape", "samples", "state", "licence"), *map(describe, data.names())]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _fetch_data(parsed: argparse.Namespace) -> None:
    pooch.get_logger().setLevel(logging.WARNING)  # the bar says what is being fetched
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    for name in parsed.names:
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
            paths = data.fetch(name, progress=partial(_Bar, bars))
        for path in paths:
            print(f"{name}: {path}")


class _Bar:
    """The four calls that pooch makes on a progress bar, made on a rich task."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size)

    def update(self, size: int) -> None:
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop_task(self._task)


if __name__ == "__main__":
    sys.exit(main())
