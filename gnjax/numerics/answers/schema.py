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
    """What JSON says, without NaN and Infinity, which it has not, and with no name twice."""
    try:
        return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_not_json)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                msg = f"repeated name {brief(name)}"
                raise ValueError(msg)
            names.add(name)
    return made


def _not_json(name: str) -> NoReturn:
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


def value_of(given: Any, kind: Any, where: str) -> Any:
    """What JSON gives as the value of a field that is annotated with ``kind``."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if given is None and NoneType in parts:
            return None
        (kind,) = (part for part in parts if part is not NoneType)
        return value_of(given, kind, where)
    if origin is tuple:
        return tuple(_entries(given, parts, where))
    if kind is np.ndarray:
        return _array(given, where)
    if kind is float:
        return _float(given, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _fields(given, kind, where)
    if type(given) is not kind:
        _refuse(given, kind.__name__, where)
    return given


def _refuse(given: Any, wanted: str, where: str) -> NoReturn:
    msg = f"{where} is {brief(given)}, which is no {wanted}"
    raise ValueError(msg)


def _entries(given: Any, kinds: tuple[Any, ...], where: str) -> Iterator[Any]:
    if not isinstance(given, list):
        _refuse(given, "list", where)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(given)
    if len(given) != len(kinds):
        _refuse(given, f"list of {len(kinds)} entries", where)
    for place, (entry, kind) in enumerate(zip(given, kinds, strict=True)):
        yield value_of(entry, kind, f"{where}[{place}]")


def _float(given: Any, where: str) -> float:
    """A finite number as it stands, or one of {"float": "nan"}, "inf" and "-inf"."""
    if isinstance(given, dict) and given.keys() == {"float"}:
        name = given["float"]
        if isinstance(name, str) and name in _NOT_FINITE:
            return _NOT_FINITE[name]
    if type(given) is int and abs(given) < 2**1023:
        return given
    if type(given) is not float or not math.isfinite(given):
        _refuse(given, "number", where)
    return given


def _array(given: Any, where: str) -> np.ndarray:
    """{"array": numbers, "shape": ..., "dtype": ...}, with "nan", "inf" and "-inf" as numbers."""
    if not isinstance(given, dict) or given.keys() != {"array", "shape", "dtype"}:
        _refuse(given, "array", where)
    entries, shape, name = given["array"], given["shape"], given["dtype"]
    if not isinstance(entries, list) or not is_shape(shape) or math.prod(shape) != len(entries):
        _refuse(shape, f"shape of the numbers of {where}", f"the shape of {where}")
    types = set(map(type, entries))
    if name in _FLOATS and types <= {float, int, str}:
        return _floats(entries, np.dtype(name), where).reshape(shape)
    if name in _INTEGERS and types <= {int}:
        limits = np.iinfo(name)
        if entries and not limits.min <= min(entries) <= max(entries) <= limits.max:
            _refuse(entries, f"list of numbers of {name}", where)
        return np.array(entries, name).reshape(shape)
    if name == "bool" and types <= {bool}:
        return np.array(entries, bool).reshape(shape)
    _refuse(name, "dtype of its numbers", f"the dtype of {where}")


def _floats(entries: list[Any], dtype: np.dtype, where: str) -> np.ndarray:
    try:
        numbers = [_NOT_FINITE[n] if isinstance(n, str) else n for n in entries]
        wide = np.array(numbers, np.float64)
    except (KeyError, OverflowError):
        _refuse(entries, f"list of numbers of {dtype}", where)
    with np.errstate(over="ignore"):
        made = wide.astype(dtype)
    named = sum(isinstance(n, str) for n in entries)
    if np.count_nonzero(~np.isfinite(made)) != named:  # such as 1e999
        _refuse(entries, f"list of numbers of {dtype}", where)
    return made


def _fields(given: Any, cls: type[Any], where: str) -> Any:
    """An object {"type": name, field: value, ..} of this class or of one that inherits from it."""
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        _refuse(given, cls.__name__, where)
    known = {made.__name__: made for made in (cls, *inheriting(cls))}
    if given["type"] not in known:
        _refuse(given["type"], cls.__name__, where)
    made = known[given["type"]]
    hints, fields = get_type_hints(made), {field.name: field for field in dataclasses.fields(made)}
    _check_names(given, fields, where)
    values = {
        name: value_of(part, hints[name], f"{where}.{name}")
        for name, part in given.items()
        if name != "type"
    }
    return made(**values)


def _check_names(
    given: dict[str, Any], fields: Mapping[str, dataclasses.Field[Any]], where: str
) -> None:
    unknown = [name for name in given if name != "type" and name not in fields]
    if unknown:
        msg = f"{where} has no field {brief(unknown[0])}"
        raise ValueError(msg)
    for name, field in fields.items():
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and name not in given:
            msg = f"{where} lacks the field {name!r}"
            raise ValueError(msg)


def inheriting(cls: type[Any]) -> Iterator[type[Any]]:
    """The classes that inherit from this one."""
    for made in cls.__subclasses__():
        yield made
        yield from inheriting(made)
