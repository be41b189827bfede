"""Read what an experiment saved: its table as typed columns, and its provenance.

Claims and figures both read the files through here; it imports neither JAX nor the library.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray]  # a saved table: equally long columns by name


class TableError(ValueError):
    """A saved table that is missing, or is not what a figure needs."""


def read(path: Path, needed: Iterable[str] = ()) -> Columns:
    """The columns of a comma-separated file with a header, each of the narrowest type that fits."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file)) or [[]]
    if not lines:
        msg = f"{path} has no rows; run its experiment to the end"
        raise TableError(msg)
    missing = sorted(set(needed) - set(header))
    if missing:
        msg = f"{path} has no column {', '.join(missing)}; another version wrote it, run it again"
        raise TableError(msg)
    columns = zip(*lines, strict=True)
    return {name: typed(column) for name, column in zip(header, columns, strict=True)}


def provenance_beside(path: Path) -> Path:
    """The provenance of a table: fig02.json of a published fig02.csv, else provenance.json."""
    published = path.with_suffix(".json")
    return published if published.is_file() else path.parent / "provenance.json"


def read_provenance(path: Path) -> dict[str, Any]:
    """The provenance of a table; captions need at least its `precision`."""
    provenance = json.loads(path.read_text(encoding="utf-8"))
    if "precision" not in provenance:
        msg = f"{path} does not say in which precision the table was computed; run it again"
        raise TableError(msg)
    return provenance


def typed(cells: Sequence[str]) -> NDArray:
    """Booleans, integers, floats (an empty cell is nan) or, where none of these fits, text."""
    if set(cells) <= {"True", "False"}:
        return np.array([cell == "True" for cell in cells])
    for number, text in ((int, cells), (float, [cell or "nan" for cell in cells])):
        try:
            return np.array([number(cell) for cell in text])
        except ValueError:
            continue  # not all of them are such numbers: try the next wider type
    return np.array(cells)
