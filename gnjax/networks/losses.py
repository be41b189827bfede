"""Losses of one sample's output, and their output Hessians.

``mse`` is |f - y|^2 / 2, whose output Hessian is the identity; ``cross_entropy`` is
logsumexp(f) - f_y with diag(p) - p p^T, p = softmax(f). Either weights the Jacobian in the
generalised Gauss-Newton matrix, 1/n sum_i J_i^T B_i J_i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Loss = str | Callable[..., jax.Array]
LOSSES = ("mse", "cross_entropy")
_CONCAVE = 1e-8


def check_loss(loss: Loss) -> None:
    if not callable(loss) and loss not in LOSSES:
        msg = (
            f"loss={loss!r} is not one of {', '.join(LOSSES)}, nor a function loss(f, y) of one "
            "sample's output"
        )
        raise ValueError(msg)


def sample_loss(loss: Loss) -> Callable[[jax.Array, Any], jax.Array]:
    """The loss of one output (k,) and its target."""
    check_loss(loss)
    if callable(loss):
        return loss
    return _mse if loss == "mse" else _cross_entropy


def _mse(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.square(f - y).sum() / 2


def _cross_entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(f) - (y * f).sum()


def check_targets(loss: Loss, y: ArrayLike, outputs: jax.Array) -> jax.Array:
    """Targets (n, k) for the named losses: integer labels become one-hot rows."""
    n, k = outputs.shape
    targets = jnp.asarray(y)
    if len(np.shape(y)) == 0 or len(targets) != n:
        msg = f"y has shape {targets.shape}, but x has {n} samples: one target a sample is needed"
        raise ValueError(msg)
    if not bool(jnp.isfinite(targets).all()):
        msg = "y contains NaN or Inf"
        raise ValueError(msg)
    if callable(loss):
        return targets
    if targets.ndim == 1 and not jnp.issubdtype(targets.dtype, jnp.floating):
        if int(targets.min()) < 0 or int(targets.max()) >= k:
            msg = (
                f"labels run from {targets.min()} to {targets.max()}, but the model has {k} outputs"
            )
            raise ValueError(msg)
        return jax.nn.one_hot(targets, k, dtype=outputs.dtype)
    if targets.shape != (n, k):
        msg = f"y has shape {targets.shape}; integer labels ({n},) or targets ({n}, {k}) are needed"
        raise ValueError(msg)
    return targets.astype(outputs.dtype)


def hessian_factors(loss: Loss, outputs: jax.Array, y: jax.Array | None) -> jax.Array | None:
    """R (n, k, k) with R_i R_i^T the output Hessian of sample i; None for the identity.

    For the cross-entropy with s = sqrt(p): R = diag(s) (I - s s^T), because I - s s^T is a
    projection.
    """
    check_loss(loss)
    if loss == "mse":
        return None
    if loss == "cross_entropy":
        s = jnp.sqrt(jax.nn.softmax(outputs, axis=-1))
        identity = jnp.eye(outputs.shape[1], dtype=outputs.dtype)
        return s[:, :, None] * (identity[None] - s[:, :, None] * s[:, None, :])
    return _convex_factors(sample_loss(loss), outputs, y)


def _convex_factors(
    loss: Callable[..., jax.Array], outputs: jax.Array, y: jax.Array | None
) -> jax.Array:
    """V diag(sqrt(lambda)) for the eigenvalues and vectors of every output Hessian."""
    if y is None:
        hessians = jax.vmap(jax.hessian(loss))(outputs)
    else:
        hessians = jax.vmap(jax.hessian(loss))(outputs, y)
    values, vectors = jnp.linalg.eigh(hessians)
    if not bool(jnp.isfinite(values).all()):
        msg = "the loss has an output Hessian with NaN or Inf"
        raise ValueError(msg)
    if float(values.min()) < -_CONCAVE * max(float(jnp.abs(values).max()), 1e-300):
        msg = (
            f"the loss is not convex in the outputs: an output Hessian has eigenvalue "
            f"{float(values.min()):.3g}, and the Gauss-Newton matrix needs B_i >= 0"
        )
        raise ValueError(msg)
    return vectors * jnp.sqrt(values.clip(0))[:, None, :]
