"""The base class of all answers: they can be saved as JSON, read again, and displayed.

A number keeps all of its bits: JSON's decimal digits of a float64 are those from which Python reads
the same float64 again. A value that JSON cannot write is put into an object,

    {"float": "nan"}, {"float": "inf"}, {"float": "-inf"},
    {"array": [1.0, 2.0, "nan"], "shape": [3], "dtype": "float64"},
    {"type": "Trace", "value": 1.5, ...} for an answer inside another one.
"""

from __future__ import annotations

import dataclasses
import html
import json
import math
import reprlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import numpy as np

from gnjax.numerics.answers import tables
from gnjax.numerics.answers.schema import inheriting, value_of

if TYPE_CHECKING:
    from pandas import DataFrame

_SHOWN = 6  # numbers of an array


class Result:
    """The base class of frozen dataclasses of numbers, arrays, words and other results."""

    _rows: ClassVar[tuple[str, ...]] = ()  # the fields whose entries are the rows of a table
    _also: ClassVar[tuple[str, ...]] = ()  # properties that are told like fields

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, as values of Python and arrays of NumPy.

        An answer inside this one is a dict too: ``["certificate"]["kind"]`` is the evidence.
        """
        fields: dict[str, Any] = tables.as_plain_values(self)
        return fields

    def to_pandas(self) -> DataFrame:
        """A pandas data frame, with a row for each eigenvalue, block or layer, or one for all.

        Its columns are named as the fields. Those of an answer inside this one begin with its name,
        as ``certificate_kind``, and both ends of an interval are ``interval_low`` and
        ``interval_high``. What does not fit into a row, as vectors, is in :meth:`to_dict`.
        """
        return tables.frame(self)

    def to_json(self) -> str:
        """This answer as text, for :meth:`from_json` of its class."""
        return json.dumps(_encoded(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The answer that :meth:`to_json` wrote, equal in every bit.

        Every field must be of the type that its class states; anything else is a ValueError. The
        numbers of an array are converted to its dtype.
        """
        try:
            tree = json.loads(text)
            _check_type(tree, cls)
            answer: Self = value_of(tree, cls, cls.__name__)
        except (RecursionError, TypeError, ValueError) as error:
            msg = f"this is not what to_json of a {cls.__name__} wrote: {error}"
            raise ValueError(msg) from error
        return answer

    def __str__(self) -> str:
        parts = ", ".join(f"{name}={_brief_text(value)}" for name, value in _fields(self))
        return f"{type(self).__name__}({parts})"

    def __repr__(self) -> str:
        """The first line of what ``print`` shows."""
        return f"<{type(self).__name__}: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        """A table of the fields, as notebooks show it."""
        rows = (
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(_brief_text(value))}</td></tr>"
            for name, value in _fields(self)
        )
        title = html.escape(repr(self)[1:-1])
        return f"<table><caption>{title}</caption>{''.join(rows)}</table>"


def _fields(result: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of each field of an answer."""
    return ((field.name, getattr(result, field.name)) for field in dataclasses.fields(result))


def _brief_text(value: Any) -> str:
    """A value for people: a number in six digits, an array as its shape and first six numbers."""
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        numbers = [_brief_text(number) for number in array.reshape(-1)[:_SHOWN].tolist()]
        more = ", .." if array.size > _SHOWN else ""
        return f"{array.shape} [{', '.join(numbers)}{more}]"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"({', '.join(_brief_text(part) for part in value)})"
    return str(value)


def _encoded(value: Any) -> Any:
    """A value of a field in the types that ``json`` writes, with every bit of its numbers."""
    if isinstance(value, Result):
        fields = {name: _encoded(part) for name, part in _fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        numbers = [_number(entry) for entry in array.reshape(-1).tolist()]
        return {"array": numbers, "shape": list(array.shape), "dtype": str(array.dtype)}
    if isinstance(value, tuple):
        return [_encoded(part) for part in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = _number(float(value))
        return {"float": number} if isinstance(number, str) else number
    if value is None or isinstance(value, str):
        return value
    msg = f"a {type(value).__name__} cannot be written as JSON"
    raise ValueError(msg)


def _number(entry: Any) -> Any:
    """An entry of an array, or its name ("nan", "inf", "-inf") where JSON cannot write it."""
    return str(entry) if isinstance(entry, float) and not math.isfinite(entry) else entry


def _check_type(tree: Any, cls: type[Result]) -> None:
    """Refuse JSON whose "type" is neither ``cls`` nor a class that inherits from it.

    A dict without a "type" passes here: it is refused when its fields are read.
    """
    name = tree.get("type") if isinstance(tree, dict) else ""
    names = {subclass.__name__ for subclass in (cls, *inheriting(cls))}
    if name is None or name in names:
        return
    if isinstance(name, str) and name in {subclass.__name__ for subclass in inheriting(Result)}:
        msg = f"this is JSON of {name}, not of a {cls.__name__}"
    elif name:
        msg = (
            f"no result of the type {reprlib.repr(name)} is imported; import the module that has it"
        )
    else:
        msg = f"this is JSON of something else, not of a {cls.__name__}"
    raise ValueError(msg)
