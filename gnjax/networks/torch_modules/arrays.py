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
    """float32 for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    return {"complex32": "complex64"}.get(name, name)


def from_tensor(tensor: Any) -> np.ndarray:
    """A copy of the numbers; NumPy has bfloat16 by way of JAX alone."""
    values = tensor.detach().cpu().contiguous()
    if values.dtype == torch().bfloat16:
        return values.view(torch().int16).numpy().view(jnp.bfloat16).copy()
    return np.array(values.numpy())


def example(shape: tuple[int, ...], dtype: Any, floating: Any) -> Any:
    """A tensor of a shape: zeros for integers, which are valid tokens, and ones for the rest.

    Floats have the type ``floating``, and integers are of 64 bits as PyTorch wants its indices.
    """
    if jnp.issubdtype(dtype, jnp.floating):
        return torch().ones(shape, dtype=floating)
    if jnp.issubdtype(dtype, jnp.bool_):
        return torch().ones(shape, dtype=torch().bool)
    is_uint8 = jnp.dtype(dtype).name == "uint8"
    return torch().zeros(shape, dtype=torch().uint8 if is_uint8 else torch().int64)
