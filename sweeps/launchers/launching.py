"""Where the cells of a sweep are computed: options that every experiment's command line shares."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from sweeps.launchers.pool import in_processes
from sweeps.launchers.work import Launcher, here
from sweeps.storage import archive

OPTIONS = (
    *("--results", "--dry_run", "--published", "--archive", "--no_compute", "--plot"),
    *("--jobs", "--shard", "--launcher", "--address", "--gpus"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--results",
        type=Path,
        default=Path("results"),
        help="the folder for tables and finished cells (default: %(default)s)",
    )
    add("--dry_run", action="store_true", help="say what would be computed, and compute nothing")
    add(
        "--published",
        action="store_true",
        help=f"take the cells that are published in {archive.FOLDER}, and compute the others",
    )
    add(
        "--archive",
        action="store_true",
        help="publish there every cell that this run computes or has stored, as soon as it ends",
    )
    add(
        "--no_compute",
        action="store_true",
        help="make the table of the cells that are there, and leave the others out",
    )
    add(
        "--plot",
        action="store_true",
        help="draw the table, as the experiment says, into picture.png beside it",
    )
    add("--jobs", type=_jobs, default=1, help="processes on this machine (default: %(default)s)")
    add(
        "--shard",
        type=_shard,
        default=(1, 1),
        metavar="I/N",
        help="compute only every N-th cell from the I-th on: task I of an array of N tasks",
    )
    add(
        "--launcher",
        choices=("local", "ray"),
        default="local",
        help="where cells run: on this machine, or as tasks of Ray",
    )
    add("--address", help="of the Ray cluster to join; without it Ray starts one on this machine")
    add(
        "--gpus",
        type=float,
        default=0.0,
        help="the share of a GPU that a task of Ray takes (default: %(default)g)",
    )


def launcher(options: argparse.Namespace) -> Launcher:
    """The launcher that the options name; Ray is imported only where it is asked for."""
    if options.launcher == "ray":
        from sweeps.launchers.cluster import on_ray

        return on_ray(options.address, gpus=options.gpus)
    return here if options.jobs == 1 else in_processes(options.jobs)


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of processes, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    index, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= count:
        msg = f"{text!r} is not I/N with I from 1 to N, as in 1/4 .. 4/4"
        raise argparse.ArgumentTypeError(msg)
    return index, count
