"""The command line of every benchmark, and what it measured as ``benchmarks/measured/NAME.json``.

A row is a tool on a case: the seconds of every run, and where it took turns with gnjax the ratio of
every pair. Medians and quartiles are made from these, and kept with all that a speed depends on.
``python -m benchmarks.tables`` makes the speed tables from the committed files.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.harness import once
from gnjax.cli.machine import git_state, usable_cores

FOLDER = Path(__file__).parent / "measured"
_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Row:
    """One tool on one case; without seconds it did not run, and the note says why."""

    case: str
    tool: str
    seconds: Sequence[float] | None
    ratios: Sequence[float] = ()  # to gnjax's seconds, in pairs where both took turns
    error: float | None = None
    gigabytes: float | None = None  # the peak of its process
    note: str = ""


def command(measure: Callable[..., Iterable[Row]]) -> None:
    """Run a benchmark with the options of the command line; ``--save`` keeps its rows."""
    name = Path(inspect.getfile(measure)).stem
    given = options(measure, save=False)
    save_them = given.pop("save")
    began = environment()
    rows = []
    for row in measure(**given):
        show(row)
        rows.append(row)
    if save_them:
        save(name, rows, began)


def options(function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    """The command line's options: a function's keywords with their defaults, and some ``more``.

    A default of False makes a switch, and a sequence takes several values.
    """
    doc = sys.modules[function.__module__].__doc__ or ""
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    defaults = {
        name: keyword.default for name, keyword in inspect.signature(function).parameters.items()
    }
    for name, default in (defaults | more).items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        several = isinstance(default, tuple)
        kind = type(default[0] if several else default)
        parser.add_argument(
            f"--{name}",
            type=kind,
            nargs="*" if several else None,
            default=default,
            help=f"{default}, where it is not given",
        )
    return vars(parser.parse_args())


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Median and quartiles of some runs, and the runs themselves."""
    if not len(values):
        return None
    low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    runs = [float(f"{value:.4g}") for value in values]
    return {"median": middle, "low": low, "high": high, "of": "quartiles", "runs": runs}


def in_turn(calls: Sequence[Any], repeats: int) -> tuple[list[list[float]], list[Any]]:
    """Seconds of every run of every call, one after the other, and their last results.

    A machine's speed varies from one minute to the next, and this way it hits all alike.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    results: list[Any] = [None] * len(calls)
    for _ in range(repeats):
        for index, call in enumerate(calls):
            elapsed, results[index] = once(call)
            seconds[index].append(elapsed)
    return seconds, results


def ratios(seconds: Sequence[float], ours: Sequence[float]) -> list[float]:
    """The seconds of each run over those of the run of gnjax beside it."""
    return [theirs / own for theirs, own in zip(seconds, ours, strict=True)]


def environment() -> dict[str, Any]:
    """The facts that decide a speed (commit, versions, machine); no host name and no path."""
    state = git_state(Path(__file__).parent)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": state.get("commit", "unknown")[:7],
        "clean": state.get("clean"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "cpu": _cpu(),
        "cores": usable_cores(),
        "threads": {name: os.environ[name] for name in _THREADS if name in os.environ},
        "devices": sorted({f"{d.platform}: {d.device_kind}" for d in jax.devices()}),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu() -> str:
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def save(
    name: str,
    rows: Sequence[Row],
    began: dict[str, Any],
    folder: Path = FOLDER,
    kept: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write the rows of a benchmark, with the :func:`environment` that it began in.

    They follow those ``kept``, which were written before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    write(path, {"environment": began, "rows": [*kept, *map(_written, rows)]})
    return path


def write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def show(row: Row) -> None:
    """Print a row as an aligned line: the median, and the ratio with its quartiles."""
    seconds = f"{np.median(row.seconds):10.4f} s" if row.seconds else f"{'-':>10}  "
    times = spread(row.ratios)
    ratio = "{median:8.2f} ({low:.2f}, {high:.2f})".format(**times) if times else ""
    error = "" if row.error is None else f"error {row.error:.1e}"
    parts = [part for part in (error, row.note) if part]
    print(f"{row.case}\n  {row.tool:40}{seconds}{ratio:24}  {', '.join(parts)}", flush=True)


def _written(row: Row) -> dict[str, Any]:
    entry = vars(row) | {"seconds": spread(row.seconds or ()), "ratio": spread(row.ratios)}
    del entry["ratios"]
    return {name: value for name, value in entry.items() if value not in (None, "")}
