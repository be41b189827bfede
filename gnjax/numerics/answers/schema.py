"""JSON as values of annotated fields: each is what its class states, or it is refused.

JSON that somebody else made may be deep, name things twice, or announce arrays of any size. Nothing
is made here that is larger than its text allows, and whatever does not fit is a ``ValueError``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

_NOT_FINITE = MappingProxyType({"nan": math.nan, "inf": math.inf, "-inf": -math.inf})
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_AXES = 64  # the most that NumPy allows


def parsed(text: str) -> Any:
    """The value of a JSON text; refuses NaN, Infinity and objects that repeat a name."""
    try:
        return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_not_json)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                msg = f"repeated name {brief(name)}"
                raise ValueError(msg)
            names.add(name)
    return entries


def _not_json(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads as numbers though JSON has none such."""
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def brief(value: Any) -> str:
    """A value of any size in a few words, for a message."""
    return reprlib.repr(value)


def are_counts(value: Any) -> bool:
    """Whether this is a list of integers, none of them negative or beyond 64 bits."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def is_shape(value: Any) -> bool:
    """Whether NumPy can have arrays of this shape, given as a list."""
    if not isinstance(value, list) or len(value) > _AXES or not are_counts(value):
        return False
    return math.prod(n or 1 for n in value) < 2**56


def value_of(value: Any, kind: Any, path: str) -> Any:
    """The value of a field of the type ``kind``, from its JSON; ``path`` names it in errors."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        (kind,) = (part for part in parts if part is not NoneType)
        return value_of(value, kind, path)
    if origin is tuple:
        return tuple(_entries(value, parts, path))
    if kind is np.ndarray:
        return _array(value, path)
    if kind is float:
        return _float(value, path)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _fields(value, kind, path)
    if type(value) is not kind:
        _refuse(value, kind.__name__, path)
    return value


def _refuse(value: Any, kind: str, path: str) -> NoReturn:
    msg = f"{path} is {brief(value)}, which is no {kind}"
    raise ValueError(msg)


def _entries(values: Any, kinds: tuple[Any, ...], path: str) -> Iterator[Any]:
    if not isinstance(values, list):
        _refuse(values, "list", path)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(values) != len(kinds):
        _refuse(values, f"list of {len(kinds)} entries", path)
    for place, (entry, kind) in enumerate(zip(values, kinds, strict=True)):
        yield value_of(entry, kind, f"{path}[{place}]")


def _float(value: Any, path: str) -> float:
    """A finite number as it stands, or one of {"float": "nan"}, "inf" and "-inf"."""
    if isinstance(value, dict) and value.keys() == {"float"}:
        name = value["float"]
        if isinstance(name, str) and name in _NOT_FINITE:
            return _NOT_FINITE[name]
    if type(value) is int and abs(value) < 2**1023:
        return value
    if type(value) is not float or not math.isfinite(value):
        _refuse(value, "number", path)
    return value


def _array(value: Any, path: str) -> np.ndarray:
    """{"array": numbers, "shape": ..., "dtype": ...}, with "nan", "inf" and "-inf" as numbers."""
    if not isinstance(value, dict) or value.keys() != {"array", "shape", "dtype"}:
        _refuse(value, "array", path)
    entries, shape, name = value["array"], value["shape"], value["dtype"]
    if not isinstance(entries, list) or not is_shape(shape) or math.prod(shape) != len(entries):
        _refuse(shape, f"shape of the numbers of {path}", f"the shape of {path}")
    types = set(map(type, entries))
    if name in _FLOATS and types <= {float, int, str}:
        return _floats(entries, np.dtype(name), path).reshape(shape)
    if name in _INTEGERS and types <= {int}:
        limits = np.iinfo(name)
        if entries and not limits.min <= min(entries) <= max(entries) <= limits.max:
            _refuse(entries, f"list of numbers of {name}", path)
        return np.array(entries, name).reshape(shape)
    if name == "bool" and types <= {bool}:
        return np.array(entries, bool).reshape(shape)
    _refuse(name, "dtype of its numbers", f"the dtype of {path}")


def _floats(entries: list[Any], dtype: np.dtype, path: str) -> np.ndarray:
    """An array of numbers of a floating dtype, with "nan", "inf" and "-inf" by name."""
    try:
        numbers = [_NOT_FINITE[n] if isinstance(n, str) else n for n in entries]
        wide = np.array(numbers, np.float64)
    except (KeyError, OverflowError):
        _refuse(entries, f"list of numbers of {dtype}", path)
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    not_finite = sum(isinstance(n, str) for n in entries)
    if np.count_nonzero(~np.isfinite(array)) != not_finite:  # such as 1e999
        _refuse(entries, f"list of numbers of {dtype}", path)
    return array


def _fields(value: Any, cls: type[Any], path: str) -> Any:
    """An object {"type": name, field: value, ..} of this class or of one that inherits from it."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        _refuse(value, cls.__name__, path)
    classes = {subclass.__name__: subclass for subclass in (cls, *inheriting(cls))}
    if value["type"] not in classes:
        _refuse(value["type"], cls.__name__, path)
    subclass = classes[value["type"]]
    hints = get_type_hints(subclass)
    fields = {field.name: field for field in dataclasses.fields(subclass)}
    _check_names(value, fields, path)
    values = {
        name: value_of(part, hints[name], f"{path}.{name}")
        for name, part in value.items()
        if name != "type"
    }
    return subclass(**values)


def _check_names(
    value: dict[str, Any], fields: Mapping[str, dataclasses.Field[Any]], path: str
) -> None:
    unknown = [name for name in value if name != "type" and name not in fields]
    if unknown:
        msg = f"{path} has no field {brief(unknown[0])}"
        raise ValueError(msg)
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in value:
            msg = f"{path} lacks the field {name!r}"
            raise ValueError(msg)


def inheriting(cls: type[Any]) -> Iterator[type[Any]]:
    """The classes that inherit from this one."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from inheriting(subclass)
