"""Tensors and types of PyTorch, and those of NumPy that JAX has too."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.extras import optional


def torch() -> Any:
    """PyTorch, which is imported by a call of this alone."""
    return optional("torch", "gnjax.from_torch")


def type_name(dtype: Any) -> str:
    """The name of a type of PyTorch in NumPy, such as float32 for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    return {"complex32": "complex64"}.get(name, name)


def from_tensor(tensor: Any) -> np.ndarray:
    """A copy of a tensor's numbers as an array of NumPy, in the same type."""
    values = tensor.detach().cpu().contiguous()
    if values.dtype == torch().bfloat16:  # PyTorch does not convert it; JAX adds it to NumPy
        return values.view(torch().int16).numpy().view(jnp.bfloat16).copy()
    return np.array(values.numpy())


def tensor_of(array: Any, floating: Any) -> Any:
    """A copy of an array's numbers as a tensor of PyTorch.

    Floats get the type ``floating``. Integers get 64 bits, as PyTorch wants its indices, except for
    uint8; booleans and complex numbers keep their types.
    """
    values = np.asarray(array)
    if values.dtype.kind in "biu":
        keeps_type = values.dtype.name in ("bool", "uint8")
        return torch().from_numpy(np.array(values if keeps_type else values.astype(np.int64)))
    if values.dtype.kind == "c":
        return torch().from_numpy(np.array(values))
    return torch().from_numpy(np.array(values, np.float64)).to(floating)


def as_float64(tensor: Any) -> np.ndarray:
    """A copy of the numbers in float64."""
    return np.array(tensor.detach().to(torch().float64).numpy())


def apart(computed: Any, expected: np.ndarray) -> np.ndarray:
    """|computed - expected| for every entry of two arrays of the same shape.

    It is 0 where both are NaN or the same infinity, and infinite wherever else one is not finite.
    """
    wide = np.asarray(computed, np.float64)
    same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(same, 0.0, np.abs(wide - expected))
    return np.nan_to_num(distance, nan=np.inf, posinf=np.inf)


def largest(array: np.ndarray) -> float:
    """The largest absolute value of the finite entries, 0 where there is none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
