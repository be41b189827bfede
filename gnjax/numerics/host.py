"""Arrays to and from host memory: what NumPy can read there needs no compiled program."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

_ALIGNMENT = 64  # bytes


def on_cpu(array: Any) -> bool:
    """Whether NumPy can read the array where it is: in host memory, and not traced."""
    if isinstance(array, np.ndarray):
        return True
    if isinstance(array, jax.core.Tracer) or not isinstance(array.dtype, np.dtype):
        return False
    cpu = all(device.platform == "cpu" for device in array.devices())
    return cpu and (array.is_fully_addressable or array.is_fully_replicated)


def on_device(array: np.ndarray) -> jax.Array:
    """The array as one of JAX; ``jnp.asarray`` compiles a program for every shape that it meets."""
    return jax.device_put(array)


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in host memory that :func:`on_device` takes over on a CPU without copying them.

    JAX shares an array of NumPy whose first entry lies at a multiple of 64 bytes, and copies any
    other, which takes as long as to form a large matrix.
    """
    entries, size = math.prod(shape), np.dtype(dtype).itemsize
    raw = np.zeros(entries * size + _ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % _ALIGNMENT
    return raw[first : first + entries * size].view(dtype).reshape(shape)


def on_host(array: jax.Array | np.ndarray) -> np.ndarray:
    """The array in host memory, gathered from all processes."""
    if not isinstance(array, np.ndarray) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def all_finite(array: jax.Array) -> bool:
    """Whether every entry is finite; on an accelerator without moving the array."""
    if on_cpu(array):
        return bool(np.isfinite(np.asarray(array)).all())
    return bool(jnp.isfinite(array).all())
