"""JSON as values of annotated fields: each is what its class states, or it is refused.

Only numbers, words, arrays, tuples and answers are made, and nothing is unpickled or imported.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

_NOT_FINITE: Mapping[Any, float] = MappingProxyType(
    {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
)
_DTYPES = frozenset(
    str.split("""
    bool bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
    """)
)


def value_of(value: Any, kind: Any, path: str) -> Any:
    """The value of a field of an answer, from the ``value`` that JSON has for it.

    ``kind`` is the annotation of the field: a tuple, an array, a number, a word, another answer, or
    one of them or None. JSON has {"float": "nan"}, "inf" or "-inf" for a number that is not finite.
    A value of any other type is refused, and ``path`` names it in the error.
    """
    origin, types = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # "T | None", the only union among the fields
        if value is None and NoneType in types:
            return None
        (kind,) = (t for t in types if t is not NoneType)
        return value_of(value, kind, path)
    if origin is tuple:
        return tuple(_entries(value, types, path))
    if kind is np.ndarray:
        return _array(value, path)
    if kind is float:
        number: Any = _NOT_FINITE.get(value.get("float")) if isinstance(value, dict) else value
        if type(number) not in (int, float):
            _refuse(value, "number", path)
        return number
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _answer(value, kind, path)
    if type(value) is not kind:
        _refuse(value, kind.__name__, path)
    return value


def _refuse(value: Any, kind: str, path: str) -> NoReturn:
    """Raise the error that the field at ``path`` holds a value that is not of this kind."""
    msg = f"{path} is {reprlib.repr(value)}, which is no {kind}"
    raise ValueError(msg)


def _entries(values: Any, kinds: tuple[Any, ...], path: str) -> Iterator[Any]:
    """Yield the entries of a tuple of these kinds, or (T, Ellipsis), from the list in the JSON."""
    if not isinstance(values, list):
        _refuse(values, "list", path)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(values) != len(kinds):
        _refuse(values, f"list of {len(kinds)} entries", path)
    for index, (entry, kind) in enumerate(zip(values, kinds, strict=True)):
        yield value_of(entry, kind, f"{path}[{index}]")


def _array(value: Any, path: str) -> np.ndarray:
    """The array that JSON has as {"array": [numbers, ..], "shape": [..], "dtype": name}.

    Numbers that are not finite are the words "nan", "inf" and "-inf".
    """
    if not isinstance(value, dict) or value.keys() != {"array", "shape", "dtype"}:
        _refuse(value, "array", path)
    if value["dtype"] not in _DTYPES:
        _refuse(value["dtype"], "dtype of numbers", f"the dtype of {path}")
    try:
        numbers = [_NOT_FINITE[n] if isinstance(n, str) else n for n in value["array"]]
        return np.array(numbers, value["dtype"]).reshape(value["shape"])
    except (KeyError, OverflowError, TypeError, ValueError):
        _refuse(value, "array of its shape and dtype", path)


def _answer(value: Any, cls: type[Any], path: str) -> Any:
    """The answer that JSON has as {"type": name of its class, field: value, ..}.

    The class is ``cls`` or one that inherits from it.
    """
    classes = {subclass.__name__: subclass for subclass in (cls, *inheriting(cls))}
    name = value.get("type") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in classes:
        _refuse(name or value, cls.__name__, path)
    fields = {field: json for field, json in value.items() if field != "type"}
    if unknown := fields.keys() - {field.name for field in dataclasses.fields(classes[name])}:
        msg = f"{path} has no field {reprlib.repr(min(unknown))}"
        raise ValueError(msg)
    hints = get_type_hints(classes[name])
    values = {
        field: value_of(json, hints[field], f"{path}.{field}") for field, json in fields.items()
    }
    return classes[name](**values)


def inheriting(cls: type[Any]) -> Iterator[type[Any]]:
    """The classes that inherit from this one, directly or not."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from inheriting(subclass)
