"""Arrays to and from host memory: what NumPy can read there needs no compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from gnjax.numerics.memory.device import on_gpu
from gnjax.numerics.precision import x64

HostProduct = Callable[[np.ndarray], np.ndarray]
"""The products of a matrix with a block of vectors, all in host memory."""

_ALIGNMENT = 64  # bytes
_PART = 2**22  # numbers that are converted to float64 at once


def on_cpu(array: Any) -> bool:
    """Whether NumPy can read the array where it is: in host memory, and not traced."""
    if isinstance(array, np.ndarray | np.generic):
        return True
    if isinstance(array, jax.core.Tracer) or not isinstance(array.dtype, np.dtype):
        return False  # NumPy has no dtype for keys of random numbers
    cpu = all(device.platform == "cpu" for device in array.devices())
    return cpu and (array.is_fully_addressable or array.is_fully_replicated)


def on_device(array: Any, dtype: Any = None) -> jax.Array:
    """The array as one of JAX on the default device, in its own precision or in ``dtype``.

    ``jax.device_put`` compiles nothing, where ``jnp.asarray`` compiles a program for every shape.
    With a ``dtype`` the answer is a copy, which later writes to the NumPy array do not change.
    Without one it may share the memory of the NumPy array.
    """
    if dtype is None:
        return jax.device_put(array)
    if isinstance(array, jax.Array):
        return jnp.asarray(array, dtype)
    with np.errstate(over="ignore", under="ignore"):  # callers check what they were given
        return jax.device_put(np.array(array, dtype))


def identity(size: int, dtype: Any) -> jax.Array:
    """The identity (size, size); ``jnp.eye`` compiles five programs for every size."""
    matrix = zeros((size, size), dtype)
    np.fill_diagonal(matrix, 1)
    return on_device(matrix)


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in host memory that :func:`on_device` takes over on a CPU without copying them.

    JAX shares an array of NumPy whose first entry lies at a multiple of 64 bytes, and copies any
    other, which takes as long as to form a large matrix.
    """
    needed_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    raw_bytes = np.zeros(needed_bytes + _ALIGNMENT, np.uint8)
    first = -raw_bytes.ctypes.data % _ALIGNMENT  # the first byte at a multiple of 64
    return raw_bytes[first : first + needed_bytes].view(dtype).reshape(shape)


def filled_rows(rows: np.ndarray, dtype: Any = np.float64) -> jax.Array:
    """The rows of a matrix on the device, followed by rows of zeros up to a power of two.

    JAX compiles a program for every number of rows that it meets, and powers of two are few.
    """
    count = len(rows)
    power_of_two = 1 << max(count - 1, 0).bit_length()  # the smallest that is at least count
    filled = zeros((power_of_two, rows.shape[1]), dtype)
    filled[:count] = rows
    return on_device(filled)


def product_on_host(left: np.ndarray, right: np.ndarray | jax.Array) -> np.ndarray:
    """A B in host memory, for A = ``left`` and B = ``right``; it is computed where B is."""
    if on_cpu(right):
        return np.asarray(left @ np.asarray(right))
    with x64():
        return on_host(jnp.matmul(on_device(left), right, precision="highest"))


def by_numpy(array: Any) -> Any:
    """The array as one of NumPy where it is on a CPU, and otherwise the array itself.

    ``on_device(by_numpy(a).T)`` is the transpose, and compiles nothing where ``a`` is on a CPU.
    """
    return np.asarray(array) if on_cpu(array) else array


def stacked(arrays: Sequence[jax.Array]) -> jax.Array:
    """Arrays of one shape along a new first axis."""
    if all(map(on_cpu, arrays)):
        return on_device(np.stack([np.asarray(array) for array in arrays]))
    return jnp.stack(arrays)


def times(left: jax.Array, right: jax.Array, *, transposed: bool = False) -> jax.Array:
    """A B for A = ``left`` and B = ``right``, or A B^T, at the highest precision; on a CPU by BLAS.

    BLAS takes two thirds of XLA's time for large matrices in float64, and half of that for A A^T.
    """
    if not (on_cpu(left) and on_cpu(right)):
        return jnp.matmul(left, right.T if transposed else right, precision="highest")
    a = np.asarray(left)
    b = a if right is left else np.asarray(right)  # NumPy sees A A^T by the shared array
    b = b.T if transposed else b
    product = zeros((a.shape[0], b.shape[1]), a.dtype)  # which JAX takes over without a copy
    with np.errstate(over="ignore", invalid="ignore"):  # the caller reports it
        return on_device(np.matmul(a, b, out=product))


def on_host(array: jax.Array | np.ndarray) -> np.ndarray:
    """The array in host memory, gathered from all processes."""
    if not isinstance(array, np.ndarray) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def all_finite(array: jax.Array | np.ndarray) -> bool:
    """Whether every entry is finite; computed where the array is, without moving it."""
    if on_cpu(array):
        return bool(np.isfinite(np.asarray(array)).all())
    return bool(jnp.isfinite(array).all())


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product of all entries of a and b in float64."""
    pairs = zip(entries_in_parts(a), entries_in_parts(b), strict=True)
    with np.errstate(invalid="ignore", over="ignore"):  # reported where it is used
        return float(
            sum(a_part.astype(np.float64) @ b_part.astype(np.float64) for a_part, b_part in pairs)
        )


def length(a: np.ndarray, b: np.ndarray | None = None, factor: float = 0.0) -> float:
    """The Euclidean length of all entries of a, or of a - factor b where b is given, in float64.

    Both are read in parts, so that no float64 copy of a whole array takes memory. Squares neither
    overflow nor, if they are large enough to matter, underflow.
    """
    if b is None:
        parts = (part.astype(np.float64, copy=False) for part in entries_in_parts(a))
        return math.hypot(*map(_length_of_part, parts))
    lengths = []
    for a_part, b_part in zip(entries_in_parts(a), entries_in_parts(b), strict=True):
        difference = a_part.astype(np.float64)  # a copy, so that a itself stays as it is
        difference -= factor * b_part.astype(np.float64)
        lengths.append(_length_of_part(difference))
    return math.hypot(*lengths)


def size_of(block: np.ndarray | jax.Array) -> float:
    """The Frobenius norm of a block in float64, computed where the block is, without underflow.

    A block with an entry that is not finite has no finite norm.
    """
    if on_cpu(block):
        return length(np.asarray(block))
    with x64():
        largest = float(jnp.abs(block).max(initial=0.0))
        if not 0 < largest < math.inf:
            return largest
        return largest * float(jnp.linalg.norm(block.astype(np.float64) / largest))


def times_number(block: np.ndarray | jax.Array, factor: float) -> np.ndarray | jax.Array:
    """The block times a number, in the block's own precision and on its own device."""
    with x64():  # in 32-bit mode JAX would round a block of float64
        return block * factor


def wide(block: jax.Array) -> np.ndarray | jax.Array:
    """The block in float64: on a GPU it stays there, and otherwise it comes to host memory."""
    if on_cpu(block) or not on_gpu():
        return np.asarray(on_host(block), np.float64)
    with x64():
        return block.astype(np.float64)


def _length_of_part(part: np.ndarray) -> float:
    """The Euclidean length of a vector of float64 whose squares may under- or overflow."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        plain = float(np.linalg.norm(part))
    if 1e-130 < plain < 1e150:  # squares that underflow are then less than its rounding
        return plain
    largest = float(np.abs(part).max(initial=0.0))
    return largest * float(np.linalg.norm(part / largest)) if 0 < largest < math.inf else largest


def entries_in_parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """The entries of an array as one row, 2^22 at a time, so that a float64 copy stays small."""
    flat = array.reshape(-1)
    yield from (flat[start : start + _PART] for start in range(0, flat.size, _PART))
