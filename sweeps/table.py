"""Read what an experiment saved: its table as a data frame, and its provenance.

Claims and figures both read the files through here; it imports neither JAX nor the library.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

MIXED = ("beta", "figure")
"""The columns of text whose cells can look like numbers: "1" and "1/L", "8" and "2a".

They are text where all of their cells do, too. Any other column of a table holds truth values if
one of its cells is True or False, numbers if one of them is a number, and else text.
"""


class TableError(ValueError):
    """A saved table that is missing, or is not what a figure needs."""


def read(path: Path | str, needed: Iterable[str] = (), *, foreign: bool = False) -> DataFrame:
    """The table of a comma-separated file with a header, each column of the narrowest type.

    An empty cell in a column of numbers stands for no value and is nan. Of a foreign table only the
    upper end of an interval (``_high``) may be infinite.

    Args:
      path: the file.
      needed: columns that must be there.
      foreign: whether others can have changed the file since it was written, so that its numbers
        are looked at one by one.

    Raises:
      TableError: the file is no such table; the text says where.
    """
    path = Path(path)
    header, *lines = _lines(path)
    if not lines:
        msg = f"{path} has no rows; run its experiment to the end"
        raise TableError(msg)
    missing = sorted(set(needed) - set(header))
    if missing:
        msg = (
            f"{path} has no column {', '.join(missing)}; another experiment wrote it, or another "
            "version of this one, which then is to run again"
        )
        raise TableError(msg)
    columns = dict(zip(header, zip(*lines, strict=True), strict=True))
    for name, column in columns.items() if foreign else ():
        _check(path, name, column)
    return DataFrame(
        {name: np.array(c) if name in MIXED else typed(c) for name, c in columns.items()}
    )


def _lines(path: Path) -> list[list[str]]:
    """The header and the rows, all of one length."""
    try:
        text = io.StringIO(path.read_text(encoding="utf-8"), newline="")
        lines = list(csv.reader(text, strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        msg = f"{path} is not a table of comma-separated UTF-8 text: {error}"
        raise TableError(msg) from error
    header = lines[0]
    for number, line in enumerate(lines, start=1):
        if len(line) != len(header):
            msg = f"{path} has {len(line)} values in line {number}, and {len(header)} in its header"
            raise TableError(msg)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        msg = f"{path} has two columns {', '.join(twice)}"
        raise TableError(msg)
    return lines


def _check(path: Path, name: str, column: Sequence[str]) -> None:
    """An error if a column of numbers has text, nan, or an infinity that is no upper end.

    So has a column of truth values with anything else.
    """
    truths, some = {"True", "False"}, set(column) - {""}
    if name in MIXED or not (some & truths or any(_number(cell) is not None for cell in some)):
        return
    kind = "truth values" if some & truths else "numbers"
    for line, cell in enumerate(column, start=2):
        number = _number(cell or "0")  # an empty cell has no number
        infinite = number == np.inf and name.endswith("_high")
        fits = number is not None and (infinite or np.isfinite(number))
        if cell and (cell not in truths if some & truths else not fits):
            msg = f"{path} has {cell[:40]!r} in line {line}, in the column {name} of {kind}"
            raise TableError(msg)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def provenance_beside(path: Path | str) -> Path:
    """The provenance of a table: NAME.json of a published NAME.csv, else provenance.json."""
    path = Path(path)
    published = path.with_suffix(".json")
    return published if published.is_file() else path.parent / "provenance.json"


def read_provenance(path: Path | str) -> dict[str, Any]:
    """The provenance of a table; captions need at least its `precision`."""
    try:
        provenance = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        msg = f"{path} does not exist; it says how the table beside it was computed, so copy it too"
        raise TableError(msg) from error
    except ValueError as error:  # of JSON or of UTF-8
        msg = f"{path} is not a file of JSON: {error}"
        raise TableError(msg) from error
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
