"""``python -m gnjax``, or ``gnjax``: data sets, a user's model and its spectrum, the machine."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import gnjax
from gnjax import data
from gnjax.cli import doctor, series, spectrum_command
from gnjax.cli.compilation import keep_compiled
from gnjax.cli.factories import (
    MistakeError,
    add_arguments,
    factory_named,
    known_name,
    mistakes_name,
    problem,
    write_picture,
)
from gnjax.cli.terminal import Terminal, column, exit_status
from gnjax.data.datasets import describe, origin_of_part
from gnjax.diagnosis.diagnose import SECONDS, diagnose
from gnjax.diagnosis.picture import check_format
from gnjax.networks.losses.sample_losses import LOSSES
from gnjax.numerics import precision
from gnjax.numerics.extras import MissingExtraError, optional
from gnjax.pictures.plot import plot
from gnjax.spectra.watch import when_late


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 where it succeeded, 1 where it failed, 2 for a mistake in the call.

    After Ctrl-C and without a reader it ends as :func:`gnjax.cli.terminal.exit_status` says.
    """
    return exit_status(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name, and print mistakes and failures to stderr.

    Without arguments they are those of the process. Only then are compiled programs kept on disk.
    """
    parsed = _parser().parse_args(arguments)
    try:
        if arguments is None and parsed.run in (
            _diagnose,
            spectrum_command.run_spectrum,
            series.run_series,
        ):  # this is a command
            keep_compiled()
        return parsed.run(parsed) or 0
    except MistakeError as error:
        print(error, file=sys.stderr)
        return 2
    except (data.DataUnavailableError, MissingExtraError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets ``run`` to the function that runs it."""
    name = "python -m gnjax" if sys.argv[0].endswith("__main__.py") else "gnjax"
    parser = argparse.ArgumentParser(prog=name, description="gnjax at the shell")
    parser.add_argument("--version", action="version", version=f"gnjax {gnjax.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    listing = commands.add_parser("data", help="list the data sets, or fetch one into the cache")
    listing.set_defaults(run=_list_data)
    actions = listing.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them (the default)").set_defaults(run=_list_data)
    fetching = actions.add_parser("fetch", help="fetch data sets into the cache")
    fetching.add_argument("names", nargs="+", type=known_name, metavar="name")
    fetching.set_defaults(run=_fetch_data)
    _add_diagnose(commands)
    spectrum_command.add_spectrum(commands)
    series.add_series(commands)
    ready = "say whether this machine is ready, and for what"
    examining = commands.add_parser("doctor", help=ready)
    examining.set_defaults(run=_doctor)
    where = "where tables will go (default: %(default)s)"
    examining.add_argument("--results", type=Path, default=Path("results"), help=where)
    return parser


def _list_data(_: argparse.Namespace) -> None:
    """Print a table of the data sets, and below it where parts of larger sets come from."""
    table = [("name", "shape", "samples", "state", "licence"), *map(describe, data.names())]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    for name in data.names():
        if origin := origin_of_part(name):
            print(f"\n{name}: {origin}")


def _fetch_data(parsed: argparse.Namespace) -> None:
    """Download data sets, with a bar for every file, and print where the files are."""
    pooch = optional("pooch", "a download")
    pooch.get_logger().setLevel(logging.WARNING)  # the bar says what is being fetched
    columns = (column("description"), BarColumn(), DownloadColumn())
    for name in parsed.names:
        with Progress(*columns, TimeRemainingColumn(), console=Terminal(stderr=True)) as bars:
            paths = data.fetch(name, progress=partial(_Bar, bars))
        for path in paths:
            print(f"{name}: {path}")


def _add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``diagnose`` with its arguments, among them those of a factory."""
    diagnosing = commands.add_parser(
        "diagnose", help="say how ill-conditioned a model of yours is, and what would help"
    )
    diagnosing.set_defaults(run=_diagnose)
    add_arguments(diagnosing, "model, (model, x) or (model, x, y)")
    diagnosing.add_argument(
        "--loss", choices=LOSSES, default="squared_error", help="default: %(default)s"
    )
    diagnosing.add_argument(
        "--out", type=Path, metavar="PICTURE", help="the png, pdf or svg file to draw"
    )
    diagnosing.add_argument(
        "--only", metavar="PATTERN", help="which parameters, such as 'layers/0/*' (default: all)"
    )
    diagnosing.add_argument(
        "--batch_size", type=int, help="samples at once (default: chosen to bound memory)"
    )
    diagnosing.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="how much time there is, about (default: %(default)s)",
    )
    diagnosing.add_argument(
        "--seed", type=int, default=0, help="of the random draws (default: %(default)s)"
    )


def _diagnose(parsed: argparse.Namespace) -> None:
    """Print the diagnosis of the model that a factory makes, and draw it if that was asked for.

    The picture's format is checked before the work, which may take long.
    """
    precision.enable_x64()
    with mistakes_name(parsed.factory):
        if parsed.out is not None:
            check_format(parsed.out)
        model, x, y = problem(parsed, factory_named(parsed.factory)())
        diagnosis = diagnose(
            model,
            x,
            y,
            loss=parsed.loss,
            only=parsed.only,
            batch_size=parsed.batch_size,
            seconds=parsed.seconds,
            progress=when_late(),
            seed=parsed.seed,
        )
    print(diagnosis)
    if parsed.out is not None:
        write_picture(plot(diagnosis), parsed.out)
        print(f"\npicture: {parsed.out}")


def _doctor(parsed: argparse.Namespace) -> int:
    """Print the report of the machine; return 1 if something is wrong."""
    findings = doctor.examine(parsed.results)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            table.add_row(Text(section, "bold"))
        mark = ("x", "red") if finding.remedy else " "
        table.add_row(Text.assemble(mark, f" {finding.name}"), finding.text)
    console = Terminal()
    console.print(table)
    wrong = doctor.problems(findings)
    for finding in wrong:
        console.print(f"{finding.name}: {finding.text}. Remedy: {finding.remedy}", style="red")
    count = f"{len(wrong)} problem{'s' if len(wrong) > 1 else ''}" if wrong else "no problems"
    console.print(f"{count} found")
    return 1 if wrong else 0


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
