"""Rows into ``table.csv``, and how they came about into ``provenance.json``."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from gnjax.cli.machine import git_state
from sweeps.store import write_atomically

_PACKAGES = ("gnjax", "jax", "jaxlib", "flax", "numpy", "scipy")


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """One line a row, columns in the order of the dataclass; floats so that they read back."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in names])
    write_atomically(path, text.getvalue())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def write_provenance(
    path: Path, config: Any, sources: Sequence[str], precision: str, seconds: float
) -> None:
    device = jax.devices()[0]
    content = {
        "config": dataclasses.asdict(config),
        "data": list(sources),
        "precision": precision,
        "seconds": round(seconds, 3),
        "device": f"{device.platform}: {device.device_kind}",
        "machine": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "git": git_state(Path(__file__).parent),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_atomically(path, json.dumps(content, indent=2) + "\n")
