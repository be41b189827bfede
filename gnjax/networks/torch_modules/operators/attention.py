"""Attention: softmax(q k^T scale + mask) v."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.refusals import Refused


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
    """softmax(scale q k^T + mask) v for queries q (.., t, d), keys k and values v (.., s, d).

    A boolean mask (t, s) says which keys each query sees; a query that sees none gets zero. A mask
    of numbers is added to the scores scale q k^T. ``is_causal`` stands for the mask with which a
    query sees the keys up to its own position. The scale is 1 / sqrt(d) if None. With
    ``enable_gqa`` several heads of q share one of k and v.
    """
    if dropout_p:
        msg = (
            f"the module draws random numbers in evaluation mode: scaled_dot_product_attention has "
            f"dropout_p={dropout_p}; write dropout_p=self.dropout if self.training else 0.0"
        )
        raise Refused(msg)
    mask = mask if attn_mask is None else attn_mask
    if enable_gqa:
        heads_sharing = q.shape[-3] // k.shape[-3]
        k, v = jnp.repeat(k, heads_sharing, -3), jnp.repeat(v, heads_sharing, -3)
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2))
    scores *= 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is None:
        return jnp.matmul(jax.nn.softmax(scores, -1), v)
    if mask.dtype != bool:
        return jnp.matmul(jax.nn.softmax(scores + mask, -1), v)
    sees_any = jnp.any(mask, -1, keepdims=True)
    # a row of -inf alone would make NaN in the softmax and in its derivative
    masked = jnp.where(mask, scores, jnp.where(sees_any, -jnp.inf, 0.0).astype(scores.dtype))
    return jnp.matmul(jnp.where(sees_any, jax.nn.softmax(masked, -1), 0), v)


TABLE: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}
