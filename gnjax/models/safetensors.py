"""The arrays of a ``.safetensors`` file, read with numpy alone.

The file is eight bytes with the length of a header (little-endian), the header in JSON, which gives
each array's type, shape and first and last byte, and then the bytes of all arrays.
"""

from __future__ import annotations

import json
import math
import reprlib
from itertools import pairwise
from os import PathLike
from typing import Any

import jax.numpy as jnp
import numpy as np

_TYPES: dict[str, Any] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": jnp.bfloat16,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_LONG = 100  # letters of a name that are shown as they are


def read_tensors(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """Every array of the file by its name; bfloat16 comes as float32, which holds it exactly.

    The file is checked before anything is read: its arrays must lie one behind the other and end
    where it ends, so that a file which was cut off, or whose arrays overlap, is refused.
    """
    data = np.fromfile(path, np.uint8)
    length = int.from_bytes(data[:8].tobytes(), "little")
    if data.size < 8 or length > data.size - 8:
        msg = (
            f"{path} is cut off, or no safetensors file: it has {data.size} bytes, and its first "
            f"eight announce a header of {length}; save it again"
        )
        raise ValueError(msg)
    header, data = _header(path, data[8 : 8 + length].tobytes()), data[8 + length :]
    entries = {name: _checked_entry(path, name, entry) for name, entry in header.items()}
    byte_ranges = sorted(byte_range for _, _, byte_range in entries.values())
    in_file = [(0, 0), *byte_ranges, (data.size, data.size)]
    if any(following[0] != before[1] for before, following in pairwise(in_file)):
        msg = (
            f"the arrays of {path} do not fill its {data.size} bytes of data one behind the other, "
            "so it is cut off or damaged; save it again"
        )
        raise ValueError(msg)
    arrays = {
        name: data[start:end].view(_TYPES[kind]).reshape(shape)
        for name, (kind, shape, (start, end)) in entries.items()
    }
    return {
        name: array.astype(np.float32) if array.dtype == jnp.bfloat16 else array
        for name, array in arrays.items()
    }


def _header(path: str | PathLike[str], text: bytes) -> dict[str, Any]:
    """The entries of the header, without ``__metadata__``, the note on the file itself."""
    try:
        header = json.loads(text)
    except (RecursionError, ValueError) as reason:
        msg = f"the header of {path} is no JSON ({reason}), so it is no safetensors file"
        raise ValueError(msg) from None
    if not isinstance(header, dict):
        msg = f"the header of {path} names no arrays, so it is no safetensors file"
        raise ValueError(msg)
    header.pop("__metadata__", None)
    return header


def _checked_entry(
    path: str | PathLike[str], name: str, entry: Any
) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """A checked entry of the header, for one array: (type, shape, (first byte, last byte + 1))."""
    entry = entry if isinstance(entry, dict) else {}
    kind, shape, byte_range = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    name = _short(name)
    if not isinstance(kind, str) or not _are_counts(shape) or not _are_counts(byte_range):
        msg = f"{name} in {path} has no readable dtype, shape and data_offsets; save it again"
        raise ValueError(msg)
    if kind not in _TYPES:
        msg = f"{name} in {path} is of type {_short(kind)}; save it as one of {', '.join(_TYPES)}"
        raise ValueError(msg)
    size = np.dtype(_TYPES[kind]).itemsize * math.prod(shape)
    if len(byte_range) != 2 or byte_range[1] - byte_range[0] != size:
        msg = (
            f"{name} in {path} needs {size} bytes for shape {tuple(shape)} of {kind} and has "
            f"data_offsets {reprlib.repr(byte_range)}; save the file again"
        )
        raise ValueError(msg)
    return kind, tuple(shape), (byte_range[0], byte_range[1])


def _are_counts(value: Any) -> bool:
    """Whether this is a list of at most 64 integers of 0 or more, as NumPy's shapes are."""
    if not isinstance(value, list) or len(value) > 64:
        return False
    return all(type(n) is int and 0 <= n < 2**63 for n in value)


def _short(name: str) -> str:
    """A name for a message: as it is, or shortened if it has 100 letters or more."""
    return name if len(name) < _LONG else reprlib.repr(name)
