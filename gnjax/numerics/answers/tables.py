"""Answers as plain values: a dict with everything, and a table with what fits into rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gnjax.numerics.extras import optional

if TYPE_CHECKING:
    from pandas import DataFrame

_SCALARS = (bool, int, float, str)


def named(result: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an answer by their names, then the properties that are told like fields."""
    names = [field.name for field in dataclasses.fields(result)]
    return ((name, getattr(result, name)) for name in (*names, *type(result)._also))


def plain(value: Any) -> Any:
    """A value in Python's and NumPy's types; an answer inside another one is a dict of its own."""
    if dataclasses.is_dataclass(value):
        return {name: plain(part) for name, part in named(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return np.array(value) if isinstance(value, np.ndarray | jax.Array) else value


def row(result: Any) -> dict[str, Any]:
    """The numbers and words of an answer, with those of the answers inside it behind their names.

    Two numbers that belong together, as an interval, are NAME_low and NAME_high. What is None, as a
    quantity that was not asked for, has no entry.
    """
    flat: dict[str, Any] = {}
    for name, value in named(result):
        known = plain(value)
        if dataclasses.is_dataclass(value):
            flat |= {f"{name}_{inner}": part for inner, part in row(value).items()}
        elif isinstance(known, _SCALARS):
            flat[name] = known
        elif isinstance(value, tuple) and [type(part) for part in known] == [float, float]:
            flat |= {f"{name}_low": known[0], f"{name}_high": known[1]}
    return flat


def frame(result: Any) -> DataFrame:
    """The table of an answer: a row for each entry of the fields that its class says are rows.

    What belongs to the whole answer, such as the method and the evidence, stands in every row.
    """
    columns = {name: getattr(result, name) for name in type(result)._rows}
    first = next(iter(columns.values()), (result,))
    if isinstance(first, tuple):
        return frame_of([row(part) for part in first])
    shape = np.atleast_1d(first).shape
    arrays = {name: np.atleast_1d(value) for name, value in columns.items() if value is not None}
    known = {name: values.ravel() for name, values in arrays.items() if values.shape == shape}
    pandas = optional("pandas", "a table")
    places = None if len(shape) == 1 else pandas.MultiIndex.from_product(map(range, shape))
    return pandas.DataFrame({**known, **row(result)}, index=places)


def frame_of(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A pandas data frame of these rows."""
    return optional("pandas", "a table").DataFrame(list(rows))
