"""What a benchmark measured and all that it depends on, as ``benchmarks/measured/NAME.json``.

A row is a tool on a case: the seconds of every run, and where it took turns with gnjax the ratio of
every pair. Medians and quartiles are made from these. ``python -m benchmarks.tables`` makes the
README's tables from the committed files.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.rivals.harness import once
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
    rate: dict[str, float] | None = None  # GFLOP/s, and the device's peak


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
    record = {"environment": began, "rows": [*kept, *map(_written, rows)]}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def show(rows: Sequence[Row]) -> None:
    """Print the rows as aligned lines: medians, and ratios with their quartiles."""
    for row in rows:
        seconds = f"{np.median(row.seconds):10.4f} s" if row.seconds else f"{'-':>10}  "
        times = spread(row.ratios)
        ratio = "{median:8.2f} ({low:.2f}, {high:.2f})".format(**times) if times else ""
        error = "" if row.error is None else f"error {row.error:.1e}"
        rate = "{gflops:.1f} of {peak:.1f} GFLOP/s".format(**row.rate) if row.rate else ""
        parts = [part for part in (error, rate, row.note) if part]
        print(f"{row.case}\n  {row.tool:40}{seconds}{ratio:24}  {', '.join(parts)}", flush=True)


def _written(row: Row) -> dict[str, Any]:
    entry = {
        "case": row.case,
        "tool": row.tool,
        "seconds": spread(row.seconds or ()),
        "ratio": spread(row.ratios),
        "error": row.error,
        "gigabytes": row.gigabytes,
        "note": row.note,
        "rate": row.rate,
    }
    return {name: value for name, value in entry.items() if value not in (None, "")}
