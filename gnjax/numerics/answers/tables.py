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
    """(name, value) of each field of an answer, then of each property that its class names too."""
    names = [field.name for field in dataclasses.fields(result)]
    return ((name, getattr(result, name)) for name in (*names, *type(result)._also))


def as_plain_values(value: Any) -> Any:
    """A value of a field in types of Python and NumPy: answers as dicts, and tuples as lists."""
    if dataclasses.is_dataclass(value):
        return {name: as_plain_values(part) for name, part in named(value)}
    if isinstance(value, tuple):
        return [as_plain_values(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return np.array(value) if isinstance(value, np.ndarray | jax.Array) else value


def row(result: Any) -> dict[str, Any]:
    """The numbers and words of an answer, a dataclass, as one row of a table: {column: value}.

    A field that is an answer itself has a column for each of its fields: "kind" of the field
    "certificate" is "certificate_kind". A pair of floats, such as an interval, is in the columns
    NAME_low and NAME_high. Arrays, and fields that are None, have no column.
    """
    columns: dict[str, Any] = {}
    for name, value in named(result):
        plain_value = as_plain_values(value)
        if dataclasses.is_dataclass(value):
            columns |= {f"{name}_{inner}": part for inner, part in row(value).items()}
        elif isinstance(plain_value, _SCALARS):
            columns[name] = plain_value
        elif isinstance(value, tuple) and [type(end) for end in plain_value] == [float, float]:
            columns |= {f"{name}_low": plain_value[0], f"{name}_high": plain_value[1]}
    return columns


def frame(result: Any) -> DataFrame:
    """The table of an answer, a row for each entry of the fields that its class names in ``_rows``.

    If the first of these fields is an array, each entry is a row, with the same entry of the other
    fields that have its shape, and the numbers and words of the whole answer, such as its method,
    stand in every row. An answer without such fields is one row.
    """
    row_fields = {name: getattr(result, name) for name in type(result)._rows}
    first_field = next(iter(row_fields.values()), (result,))
    if isinstance(first_field, tuple):
        return frame_of([row(answer) for answer in first_field])
    shape = np.atleast_1d(first_field).shape
    arrays = {name: np.atleast_1d(field) for name, field in row_fields.items() if field is not None}
    columns = {name: array.ravel() for name, array in arrays.items() if array.shape == shape}
    pandas = optional("pandas", "a table")
    # A matrix has rows of the table that are numbered by both of its indices.
    indices = None if len(shape) == 1 else pandas.MultiIndex.from_product(map(range, shape))
    return pandas.DataFrame({**columns, **row(result)}, index=indices)


def frame_of(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A pandas data frame of these rows."""
    return optional("pandas", "a table").DataFrame(list(rows))
