"""Operators with their numbers in another precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.operators.protocol import Operator


@bounded_jit(static_argnums=(1, 2))
def recast(tree: Any, before: Any, after: Any) -> Any:
    """The same pytree with its arrays of the dtype ``before`` in the dtype ``after``."""
    return jax.tree.map(lambda leaf: leaf.astype(after) if leaf.dtype == before else leaf, tree)


def widened(tree: Any) -> Any:
    """The same pytree with its float32 arrays in float64."""
    return recast(tree, jnp.float32, jnp.float64)


def narrowed(tree: Any) -> Any:
    """The same pytree with its float64 arrays in float32."""
    return recast(tree, jnp.float64, jnp.float32)


def multiplies_in_float64(op: Operator) -> bool:
    """Whether products of float64 vectors are in float64, and are possible at all."""
    try:
        image = jax.eval_shape(op.mv, jax.ShapeDtypeStruct(op.shape[:1], jnp.float64))
    except TypeError:  # such as that of a loop whose carry has a dtype of its own
        return False
    return bool(image.dtype == jnp.float64)


def recast_in_float64(op: Operator) -> Operator | None:
    """An operator that is a pytree with its numbers in float64; None where it cannot be."""
    wide: Operator = widened(op)
    return wide if multiplies_in_float64(wide) else None
