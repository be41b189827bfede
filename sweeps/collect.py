"""Write the rows to ``table.csv``, and how they were computed to ``provenance.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from pandas import DataFrame

from sweeps.storage.files import write_atomically
from sweeps.storage.store import Finished


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a line for each row, with all digits of every number."""
    frame = DataFrame(rows, dtype=object)  # whole numbers stay whole where others are missing
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n"))


def write_provenance(
    path: Path,
    config: ConfigDict,
    sources: Sequence[str],
    finished: Sequence[Finished],
    missing: int = 0,
) -> None:
    """Write the provenance of a table, put together from the provenance that each cell has kept.

    All cells of a table have the same precision. Published ones may be of other devices and
    versions, all of which are named. ``missing`` cells of the config are not in the table.
    """
    kept = [result.provenance for result in finished]
    dates = sorted(each["date"] for each in kept)
    content = {
        "config": config.to_dict(),
        "data": list(sources),
        "seconds": round(sum(result.own_seconds for result in finished), 3),
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
