"""Write the rows to ``table.csv``, and how they were computed to ``provenance.json``."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.storage.files import write_atomically
from sweeps.storage.store import Finished


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write a line for each row, columns in the dataclass's order and floats with all digits."""
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
    path: Path, config: Any, sources: Sequence[str], finished: Sequence[Finished], missing: int = 0
) -> None:
    """Write the provenance of a table, put together from the provenance that each cell has kept.

    All cells of a table have the same precision. Published ones may be of other devices and
    versions, all of which are named. ``missing`` cells of the config are not in the table.
    """
    kept = [result.provenance for result in finished]
    dates = sorted(each["date"] for each in kept)
    content = {
        "config": dataclasses.asdict(config),
        "data": list(sources),
        "seconds": round(sum(result.seconds for result in finished), 3),
        "cells": len(kept),
        **({"missing": missing} if missing else {}),
        "dates": [dates[0], dates[-1]],
        **{name: _listed(each[name] for each in kept) for name in ("precision", "device")},
        "versions": _versions([each["versions"] for each in kept]),
        **{name: _distinct(each[name] for each in kept) for name in ("machine", "python", "git")},
    }
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def _versions(kept: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The version of each package, or all that were used, where cells differ."""
    names = _distinct(name for each in kept for name in each)
    return {name: _listed(each[name] for each in kept if name in each) for name in names}


def _listed(values: Iterable[str]) -> str:
    return ", ".join(_distinct(values))


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order in which they first come."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
