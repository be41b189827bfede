"""``python -m gnjax data``, ``diagnose`` and ``doctor``: data sets, a user's model, the machine."""

from __future__ import annotations

import argparse
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen
import pooch
from flax import nnx
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gnjax import data
from gnjax.cli import doctor
from gnjax.data.datasets import describe, unknown_name
from gnjax.diagnosis.diagnose import Diagnosis, diagnose
from gnjax.diagnosis.picture import check_format, draw
from gnjax.networks.losses import LOSSES
from gnjax.networks.model import checked
from gnjax.numerics import precision

_SAMPLES = 100


class _MistakeError(ValueError):
    """What the user can mend in the call or in the factory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 where it succeeded, 1 where it failed, 2 for a mistake in the call."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        return parsed.run(parsed) or 0
    except _MistakeError as error:
        print(error, file=sys.stderr)
        return 2
    except (data.DataUnavailableError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gnjax", description="gnjax at the shell")
    commands = parser.add_subparsers(metavar="command", required=True)
    _add_data(commands)
    _add_diagnose(commands)
    _add_doctor(commands)
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


def _add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diagnosing = commands.add_parser(
        "diagnose", help="say how ill-conditioned a model of yours is, and what would help"
    )
    diagnosing.set_defaults(run=_diagnose)
    diagnosing.add_argument(
        "factory",
        metavar="module:factory",
        help="a function without arguments that returns model, (model, x) or (model, x, y)",
    )
    diagnosing.add_argument(
        "--data", type=_known_name, metavar="NAME", help="a data set for inputs and labels"
    )
    diagnosing.add_argument(
        "--samples", type=int, help=f"how many samples to draw from --data (default: {_SAMPLES})"
    )
    diagnosing.add_argument("--loss", choices=LOSSES, default="mse", help="default: %(default)s")
    diagnosing.add_argument(
        "--out", type=Path, metavar="PICTURE", help="the png, pdf or svg file to draw"
    )
    diagnosing.add_argument(
        "--seed", type=int, default=0, help="of the random draws (default: %(default)s)"
    )


def _diagnose(parsed: argparse.Namespace) -> None:
    precision.enable_x64()
    try:
        if parsed.out is not None:
            check_format(parsed.out)
        model, x, y = _problem(parsed)
        found = diagnose(model, x, y, loss=parsed.loss, seed=parsed.seed)
    except ValueError as error:
        msg = f"{parsed.factory}: {error}"
        raise _MistakeError(msg) from error
    print(found)
    if parsed.out is not None:
        _write_picture(found, parsed.out)


def _write_picture(found: Diagnosis, path: Path) -> None:
    try:
        draw(found, path)
    except OSError as error:
        msg = f"{path} cannot be written: {error}"
        raise _MistakeError(msg) from error
    print(f"\npicture: {path}")


def _problem(parsed: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The model with the factory's own inputs, or with a data set's."""
    model, *rest = _made(_factory(parsed.factory))
    if rest and (parsed.data is not None or parsed.samples is not None):
        msg = "it returns inputs of its own; leave --data and --samples out"
        raise _MistakeError(msg)
    if rest:
        return model, rest[0], rest[1] if len(rest) > 1 else None
    if parsed.data is None:
        msg = "it returns no inputs; return (model, x) or name a data set with --data"
        raise _MistakeError(msg)
    samples = _SAMPLES if parsed.samples is None else parsed.samples
    return model, *_fitting(model, data.load(parsed.data, samples=samples, seed=parsed.seed))


def _factory(name: str) -> Callable[[], Any]:
    """The function that ``module:factory`` names, sought in the working directory too."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        msg = "write it as package.module:factory"
        raise _MistakeError(msg)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        msg = f"{module_name} cannot be imported: {error}"
        raise _MistakeError(msg) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        msg = f"{module_name} has no function {attribute}"
        raise _MistakeError(msg)
    needed = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        msg = f"it is called without arguments, but it needs {', '.join(needed)}"
        raise _MistakeError(msg)
    return factory


def _made(factory: Callable[[], Any]) -> tuple[Any, ...]:
    """(model,), (model, x) or (model, x, y); a pair may be a Linen or a functional model alone."""
    made = factory()
    if isinstance(made, nnx.Module):
        return (made,)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        msg = f"it must return a model, (model, x) or (model, x, y), not {type(made).__name__}"
        raise _MistakeError(msg)
    first = made[0]
    alone = callable(first) and not isinstance(first, nnx.Module)
    if len(made) == 2 and (alone or isinstance(first, flax.linen.Module)):
        return (made,)
    return made


def _fitting(model: Any, dataset: data.Dataset) -> tuple[Any, Any]:
    """Inputs in the first shape that the model takes, and labels where it has as many outputs."""
    shapes = [(-1,), dataset.shape, (*dataset.shape, 1)]
    refusals = []
    for shape in shapes:
        x = dataset.inputs.reshape(len(dataset.inputs), *shape)
        try:
            outputs = checked(model, x)[-1]
        except ValueError as error:
            refusals.append(str(error).splitlines()[0])
            continue
        return x, dataset.labels if outputs.shape[1] == dataset.classes else None
    msg = f"the model takes no form of {dataset.name}, the first being refused: {refusals[0]}"
    raise _MistakeError(msg)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examining = commands.add_parser(
        "doctor", help="say whether this machine is ready, and for what"
    )
    examining.set_defaults(run=_doctor)
    examining.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        help="where tables will go (default: %(default)s)",
    )


def _doctor(parsed: argparse.Namespace) -> int:
    """1 where something is wrong."""
    findings = doctor.examine(parsed.results)
    shown = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            shown.add_row(f"[bold]{section}[/]")
        mark = "[red]x[/]" if finding.remedy else " "
        shown.add_row(f"{mark} {escape(finding.name)}", escape(finding.text))
    console = Console()
    console.print(shown)
    wrong = doctor.problems(findings)
    for finding in wrong:
        text = f"{finding.name}: {finding.text}. Remedy: {finding.remedy}"
        console.print(text, style="red", markup=False, highlight=False)
    count = f"{len(wrong)} problem{'s' if len(wrong) > 1 else ''}" if wrong else "no problems"
    console.print(f"{count} found", highlight=False)
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
