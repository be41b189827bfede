"""Whether a value is of an annotated type, and the value as that type."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from ml_collections import ConfigDict


def fitted(value: Any, kind: Any) -> Any:
    """The value as an instance of the annotated type.

    A whole number is a float too, a list a tuple, a mapping a dataclass with these fields, and a
    scalar of NumPy a number of Python.

    Raises:
      ValueError: the value is of another type; the text says which was asked for.
    """
    value = value.item() if isinstance(value, np.generic) else value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(value, inner)
    if origin is Literal and value in inner:
        return value
    if origin is tuple and isinstance(value, tuple | list):
        return _sequence(value, inner)
    if is_dataclass(kind) and type(value) is kind:
        return _record(vars(value), kind)
    if is_dataclass(kind) and isinstance(value, Mapping | ConfigDict):
        return _record(value, kind)
    if kind is float and type(value) is int:
        return float(value)
    if kind is Any or type(value) is (NoneType if kind is None else kind):
        return value
    msg = f"{value!r} is not {_named(kind)}"
    raise ValueError(msg)


def _one_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    if type(value) in kinds:
        return fitted(value, type(value))
    told = []
    for kind in kinds:
        try:
            return fitted(value, kind)
        except ValueError as error:
            told.append(str(error))
    raise ValueError("; ".join(told))


def _sequence(values: tuple[Any, ...] | list[Any], kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if kinds[1:] == (...,):
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        msg = f"{values!r} must have {len(kinds)} values"
        raise ValueError(msg)
    return tuple(fitted(value, kind) for value, kind in zip(values, kinds, strict=True))


def _record(values: Mapping[str, Any] | ConfigDict, kind: Any) -> Any:
    """A dataclass from its fields; what it refuses itself is a ValueError too."""
    kinds, known = get_type_hints(kind), [field.name for field in fields(kind)]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or known
            msg = f"{kind.__name__} has no field {name!r}; did you mean {' or '.join(near)}?"
            raise ValueError(msg)
    try:
        return kind(**{name: _field(name, value, kinds[name]) for name, value in values.items()})
    except TypeError as error:  # a field without a default is missing
        raise ValueError(str(error)) from error


def _field(name: str, value: Any, kind: Any) -> Any:
    try:
        return fitted(value, kind)
    except ValueError as error:
        msg = f"{name}: {error}"
        raise ValueError(msg) from error


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
