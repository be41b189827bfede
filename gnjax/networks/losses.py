"""Losses of one sample's output, and factors of their output Hessians.

``squared_error`` is |f - y|^2 / 2, whose output Hessian B is the identity (``mse`` is an older name
of the same loss). ``cross_entropy`` is logsumexp(f) - f_y with B = diag(p) - p p^T, p = softmax(f).
A factor R with R R^T = B weights the Jacobian in the generalised Gauss-Newton matrix
1/n sum_i J_i^T B_i J_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Loss = str | Callable[..., jax.Array]
LOSSES = ("squared_error", "cross_entropy", "mse")
_SQUARED = ("squared_error", "mse")
_CONCAVE = 1e-8
_SUM_OF_TARGETS = 1e-3  # targets in half precision sum to one to about this


def check_loss(loss: Loss) -> None:
    """Refuse a loss that is neither a known name nor a function."""
    if callable(loss) or (isinstance(loss, str) and loss in LOSSES):
        return
    msg = (
        f"loss={loss!r} is not one of {', '.join(LOSSES)}, nor a function loss(f, y) of one "
        "sample's output"
    )
    raise ValueError(msg)


def sample_loss(loss: Loss) -> Callable[..., jax.Array]:
    """The loss of one output (k,) and its target, as one number.

    A function that returns one number for each output, as optax's elementwise losses do, is summed
    over the outputs.
    """
    check_loss(loss)
    if isinstance(loss, str):
        return _squared_error if loss in _SQUARED else _cross_entropy
    return _summed(loss)


def _summed(loss: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def total(f: jax.Array, *target: Any) -> jax.Array:
        value = jnp.asarray(loss(f, *target))
        if not jnp.issubdtype(value.dtype, jnp.floating):
            msg = f"the loss must return a real number, got dtype {value.dtype}"
            raise ValueError(msg)
        if value.shape not in ((), f.shape):
            msg = (
                f"the loss of one sample, outputs of shape {f.shape}, has shape {value.shape}; "
                "return one number, or one number for each output (they are then summed)"
            )
            raise ValueError(msg)
        return value.sum()

    return total


def check_call(
    loss: Loss, outputs: jax.Array | jax.ShapeDtypeStruct, targets: jax.Array | None
) -> None:
    """Refuse a function that does not take one sample's output (and target) as its loss."""
    if not callable(loss):
        return
    given = [
        jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (outputs, targets) if a is not None
    ]
    try:
        jax.eval_shape(sample_loss(loss), *given)
    except (TypeError, IndexError) as error:
        shapes = " and a target of shape ".join(str(a.shape) for a in given)
        hint = "; pass the targets as y" if targets is None else ""
        msg = f"the loss does not take one sample, outputs of shape {shapes}: {error}{hint}"
        raise ValueError(msg) from error


def _squared_error(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.square(f - y).sum() / 2


def _cross_entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(f) - (y * f).sum()


def check_targets(loss: Loss, y: ArrayLike, outputs: jax.Array | jax.ShapeDtypeStruct) -> jax.Array:
    """Targets (n, k) for the named losses: integer labels become one-hot rows.

    Only the shape and the dtype of ``outputs`` are read.
    """
    n, k = outputs.shape
    targets = _real_targets(y)
    if targets.ndim == 0 or len(targets) != n:
        msg = f"y has shape {targets.shape}, but x has {n} samples: one target a sample is needed"
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
    if loss == "cross_entropy":
        _check_probabilities(targets)
    return targets.astype(outputs.dtype)


def _real_targets(y: ArrayLike) -> jax.Array:
    given = y if isinstance(y, jax.Array) else np.asarray(y)
    if not (given.dtype == bool or jnp.issubdtype(given.dtype, jnp.integer)) and not (
        jnp.issubdtype(given.dtype, jnp.floating)
    ):
        msg = f"y must hold labels or real targets, got dtype {given.dtype}"
        raise ValueError(msg)
    targets = jnp.asarray(given, int) if given.dtype == bool else jnp.asarray(given)
    if not bool(jnp.isfinite(targets).all()):
        msg = "y contains NaN or Inf"
        raise ValueError(msg)
    return targets


def _check_probabilities(targets: jax.Array) -> None:
    sums = targets.sum(axis=1)
    if float(jnp.abs(sums - 1).max()) > _SUM_OF_TARGETS or float(targets.min()) < 0:
        msg = (
            "targets of the cross-entropy are probabilities, rows that are not negative and sum "
            f"to one; got sums from {float(sums.min()):.3g} to {float(sums.max()):.3g} and a "
            f"smallest entry {float(targets.min()):.3g}"
        )
        raise ValueError(msg)


def factor_columns(loss: Loss, k: int) -> int:
    """The number r of columns of R: k - 1 for the cross-entropy, else k.

    The cross-entropy of a single class is zero whatever the model says, and is refused.
    """
    check_loss(loss)
    if loss != "cross_entropy":
        return k
    if k == 1:
        msg = (
            "the cross-entropy of a model with one output is zero whatever that output is; give "
            "the model one output for each class, or pass a loss of one logit as a function, such "
            "as lambda f, y: jax.nn.softplus(f[0]) - y * f[0] with labels y of 0 and 1"
        )
        raise ValueError(msg)
    return k - 1


def hessian_factors(loss: Loss, outputs: jax.Array, y: jax.Array | None) -> jax.Array | None:
    """R (n, k, r) with R_i R_i^T = B_i, the output Hessian of sample i; None for the identity.

    This is a pure function of outputs and targets: it can be traced, and it changes continuously
    with the outputs except at the threshold that :func:`_softmax_factor` states. The function
    :func:`check_convex` says whether a loss of the caller's has such a factor.
    """
    columns = factor_columns(loss, outputs.shape[1])
    if isinstance(loss, str):
        if loss in _SQUARED:
            return None
        factors = jax.vmap(_softmax_factor)(outputs)
        assert factors.shape[-1] == columns
        return factors
    return jax.vmap(_symmetric_root)(_output_hessians(loss, outputs, y))


@dataclass(frozen=True)
class OutputFactors:
    """:func:`hessian_factors` of one loss, as a function that compares by the loss."""

    loss: Loss

    def __call__(self, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        factors = hessian_factors(self.loss, outputs, y)
        assert factors is not None  # R is the identity, and nobody asks for it
        return factors


def _softmax_factor(f: jax.Array) -> jax.Array:
    """R (k, k - 1), the Cholesky factor of diag(p) - p p^T, p = softmax(f), in closed form.

    With the tail sums q_j = sum_{i >= j} p_i, elimination of one class after the other gives

        R_jj = sqrt(p_j q_{j+1} / q_j),   R_ij = -p_i sqrt(p_j / (q_j q_{j+1})) for i > j.

    Only positive numbers are added and multiplied, so every entry has a relative error of some eps
    (times the size of the logits, from which exp takes its error), for saturated outputs too, where
    p and 1 - p both lose their digits. The columns are multiples of e_j - pi_j for probabilities
    pi_j over the classes behind j. Such columns are independent whatever the probabilities are, so
    entries with small relative errors give singular values with small relative errors.

    A likely class comes last, so that no q_j is small: R R^T then has entries with small relative
    errors too. It is the first class that has at least half the probability of the likeliest. The
    likeliest itself would change with the rounding of logits that are equal, and R with it.
    """
    k = len(f)
    last = jnp.argmax(f >= f.max() - math.log(2.0))
    order = jnp.arange(k).at[last].set(k - 1).at[k - 1].set(last)  # its own inverse
    logs = jax.nn.log_softmax(f[order])
    p, root = jnp.exp(logs), jnp.exp(logs / 2)
    tails = jnp.cumsum(p[::-1])[::-1]
    here, behind = tails[:-1], tails[1:]
    diagonal = root[:-1] * jnp.sqrt(behind / here)
    below = -p[:, None] * (root[:-1] / jnp.sqrt(here * behind))[None, :]
    entries = jnp.tril(below, -1) + jnp.eye(k, k - 1, dtype=f.dtype) * diagonal[None, :]
    return entries[order]


def _output_hessians(loss: Loss, outputs: jax.Array, y: jax.Array | None) -> jax.Array:
    """B (n, k, k) by differentiation."""
    hessian = jax.vmap(jax.hessian(sample_loss(loss)))
    return hessian(outputs) if y is None else hessian(outputs, y)


def _symmetric_root(hessian: jax.Array) -> jax.Array:
    """B^{1/2} (k, k), which, unlike a matrix of eigenvectors, is a continuous function of B.

    Directions without curvature stay, with zeros; what rounding made negative is zero too.
    """
    values, vectors = jnp.linalg.eigh(hessian)
    roots = jnp.sqrt(values.clip(0))
    return jnp.matmul(vectors * roots[None, :], vectors.T, precision="highest")


def check_convex(loss: Loss, outputs: jax.Array, y: jax.Array | None) -> None:
    """Refuse a loss of the caller's whose output Hessian is not positive semidefinite here."""
    if not callable(loss):
        return
    values = jnp.linalg.eigvalsh(_output_hessians(loss, outputs, y))
    if not bool(jnp.isfinite(values).all()):
        msg = "the loss has an output Hessian with NaN or Inf"
        raise ValueError(msg)
    if float(values.min()) < -_CONCAVE * max(float(jnp.abs(values).max()), 1e-300):
        msg = (
            f"the loss is not convex in the outputs: an output Hessian has eigenvalue "
            f"{float(values.min()):.3g}, and the Gauss-Newton matrix needs B_i >= 0"
        )
        raise ValueError(msg)
