"""``gnjax series module:factory CHECKPOINTS``: one row of curvature for each checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnjax.cli.checkpoints import at_checkpoint, file_digest, numbers_of_steps
from gnjax.cli.factories import (
    MistakeError,
    add_arguments,
    factory_named,
    mistakes_name,
    needed_by,
    problem,
    write_picture,
)
from gnjax.cli.row_file import Rows
from gnjax.diagnosis.monitor import Monitor
from gnjax.diagnosis.monitor_row import MonitorRow
from gnjax.diagnosis.picture import check_format
from gnjax.networks.arguments.frameworks import is_torch
from gnjax.networks.losses.sample_losses import LOSSES
from gnjax.networks.torch_modules.from_torch import from_torch
from gnjax.numerics import precision
from gnjax.pictures.plot import plot

_RETURNS = (
    "(model, x) or (model, x, y); or one that takes the path of a checkpoint and returns them"
)


def add_series(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``series``; :func:`_rows` writes options that change a row to its file."""
    parser = commands.add_parser("series", help="the curvature at every checkpoint of a run")
    parser.set_defaults(run=run_series)
    add_arguments(parser, _RETURNS)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="checkpoint")
    parser.add_argument("--loss", choices=LOSSES, default="squared_error", help="(%(default)s)")
    parser.add_argument("--only", metavar="PATTERN", help="which parameters, such as 'layers/0/*'")
    parser.add_argument("--probes", type=int, default=0, help="random vectors for the trace (none)")
    parser.add_argument("--kappa", action="store_true", help="kappa of G too, at its price")
    parser.add_argument("--rtol", type=float, default=1e-3, help="of eigenvalues (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of --data (%(default)s)")
    parser.add_argument(
        "--rows",
        type=Path,
        default=Path("series.jsonl"),
        metavar="FILE",
        help="keeps every row; a stopped series goes on from it (%(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="PICTURE", help="a png, pdf or svg")


def run_series(parsed: argparse.Namespace) -> int:
    """Print a row of curvature for each checkpoint, and draw them all if that was asked for."""
    precision.enable_x64()
    with mistakes_name(parsed.factory):
        if parsed.out is not None:
            check_format(parsed.out)
        _check_files(parsed.checkpoints)
        if not 0 < parsed.rtol < 1:
            msg = f"--rtol={parsed.rtol} is not between 0 and 1"
            raise MistakeError(msg)
        history = []
        for row in _rows(parsed):
            print(row, flush=True)
            history.append(row)
    if parsed.out is not None:
        monitor = Monitor((), None)  # without data: plot reads its history alone
        monitor.history = sorted(history, key=lambda row: row.step)
        write_picture(plot(monitor), parsed.out)
        print(f"picture: {parsed.out}", file=sys.stderr)
    return 0


def _rows(parsed: argparse.Namespace) -> Iterator[MonitorRow]:
    """Yield the row of each checkpoint in the order of steps.

    A row that the file of rows has for the same bytes and settings is not computed again. The
    factory is called for every other checkpoint if it takes a path. Otherwise it is called once,
    and its model takes the arrays of each checkpoint.
    """
    factory = factory_named(parsed.factory, max_arguments=1)
    settings = ("factory", "data", "samples", "loss", "only", "probes", "kappa", "rtol", "seed")
    header = {name: getattr(parsed, name) for name in settings}
    file = getattr(sys.modules[parsed.factory.partition(":")[0]], "__file__", None)
    rows = Rows(
        parsed.rows, {**header, "code of the factory": file_digest(Path(file)) if file else ""}
    )
    takes_path = bool(needed_by(factory))
    model_and_data: Any = None
    steps = numbers_of_steps(parsed.checkpoints)
    in_order = sorted(zip(steps, parsed.checkpoints, strict=True))
    for number, (step, path) in enumerate(in_order, start=1):
        content = file_digest(path)
        row = rows.of(content)
        if row is None:
            if sys.stderr.isatty():
                print(f"{path}, {number} of {len(in_order)}", file=sys.stderr)
            if takes_path or model_and_data is None:
                model_and_data = problem(parsed, factory(path) if takes_path else factory())
            model, x, y = model_and_data
            row = _measured(parsed, model if takes_path else at_checkpoint(model, path), x, y)
            rows.add(str(path), content, row)
        yield replace(row, step=step)


def _measured(parsed: argparse.Namespace, model: Any, x: Any, y: Any) -> MonitorRow:
    """The row of one model by itself: it does not depend on what was measured before."""
    monitor = Monitor(
        x,
        y,
        loss=parsed.loss,
        only=parsed.only,
        probes=parsed.probes,
        kappa=parsed.kappa,
        rtol=parsed.rtol,
    )
    row = monitor(0, from_torch(model) if is_torch(model) else model)
    assert row is not None
    return row


def _check_files(checkpoints: list[Path]) -> None:
    """Refuse checkpoints that are no files and no folders, and one that is named twice."""
    for path in checkpoints:
        if not (path.is_file() or path.is_dir()):
            what = "is a pipe or a device" if path.exists() else "does not exist"
            msg = f"there is no checkpoint {path}: it {what}"
            raise MistakeError(msg)
    names = [str(path.resolve()) for path in checkpoints]
    if len(set(names)) < len(names):
        msg = "a checkpoint is named twice"
        raise MistakeError(msg)
