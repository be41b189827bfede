"""Attention: softmax(q k^T scale + mask) v."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.forms.refusals import Refused


def _attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: jax.Array | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> jax.Array:
    """softmax(q k^T scale + mask) v; zero for a query all of whose keys are masked."""
    if dropout_p:
        msg = (
            f"the module draws random numbers in evaluation mode: scaled_dot_product_attention has "
            f"dropout_p={dropout_p}; write dropout_p=self.dropout if self.training else 0.0"
        )
        raise Refused(msg)
    mask = mask if attn_mask is None else attn_mask
    if enable_gqa:
        times = q.shape[-3] // k.shape[-3]
        k, v = jnp.repeat(k, times, -3), jnp.repeat(v, times, -3)
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2))
    scores *= 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is None:
        return jnp.matmul(jax.nn.softmax(scores, -1), v)
    if mask.dtype != bool:
        return jnp.matmul(jax.nn.softmax(scores + mask, -1), v)
    some = jnp.any(mask, -1, keepdims=True)
    masked = jnp.where(mask, scores, jnp.where(some, -jnp.inf, 0.0).astype(scores.dtype))
    return jnp.matmul(jnp.where(some, jax.nn.softmax(masked, -1), 0), v)


TABLE: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}
