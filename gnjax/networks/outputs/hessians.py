"""The output Hessian B of a loss, applied and never formed, and its factor R with R R^T = B.

Both are functions of the outputs, and are made anew for every product. For the squared error B is
the diagonal of the weights. For the binary cross-entropy it is diagonal too, with p (1 - p). For
the cross-entropy B = diag(p) - p p^T for every token, p = softmax(f), so that a product costs as
much as reading the logits. For a loss of the caller's B u is a derivative of its gradient along u;
R is the symmetric root of B, which is formed, for up to ``LARGEST_ROOT`` outputs a sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from gnjax.networks.forms.derivatives import check_second_derivative
from gnjax.networks.outputs.targets import Target, loss_sum
from gnjax.numerics.bounded_jit import bounded_jit

LARGEST_ROOT = 512
_CONCAVE = 1e-8
_PROBES = 4
_CHECKED_AT_ONCE = 1e7  # output Hessians with so many numbers in all are checked at once


class OutputHessian(Protocol):
    """B (k, k) and R (k, r) of every sample, as functions of u."""

    def apply(self, u: jax.Array) -> jax.Array:
        """B u for u (n, k)."""
        ...

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u for u (n, r)."""
        ...

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R^T u for u (n, k)."""
        ...


def has_root(target: Target | None) -> bool:
    """Whether the factor R can be applied, which the side of the outputs needs."""
    return target is None or not callable(target.loss) or target.outputs.k <= LARGEST_ROOT


def output_hessian(target: Target, outputs: jax.Array, *, rooted: bool) -> OutputHessian:
    """B at the outputs (n, k); with ``rooted`` also R can be applied."""
    weights = target.weights
    if target.loss == "cross_entropy":
        return _softmax(target, outputs)
    if target.loss == "binary_cross_entropy":
        logs = jax.nn.log_sigmoid(outputs) + jax.nn.log_sigmoid(-outputs)
        root = jnp.exp(logs / 2)
        return DiagonalHessian(root if weights is None else root * jnp.sqrt(_flat(weights)))
    if not callable(target.loss):
        ones = jnp.ones((len(outputs), 1), outputs.dtype)
        return DiagonalHessian(ones if weights is None else jnp.sqrt(_flat(weights)))
    if rooted:
        return StoredRoot(jax.vmap(_symmetric_root)(formed_hessians(target, outputs)))
    return ByDerivative(target, outputs)


def _flat(weights: jax.Array) -> jax.Array:
    """Weights as (n, 1) or (n, terms)."""
    return weights.reshape(len(weights), -1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalHessian:
    """B = diag(root^2)."""

    root: jax.Array  # (n, k) or (n, 1)

    def apply(self, u: jax.Array) -> jax.Array:
        return self.root * (self.root * u)

    def apply_root(self, u: jax.Array) -> jax.Array:
        return self.root * u

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        return self.root * u


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Softmax:
    """w (diag(p) - p p^T) for the logits of every token."""

    logits: jax.Array  # (n, t, v)
    weights: jax.Array | None  # (n, t) or (n, 1)

    def apply(self, u: jax.Array) -> jax.Array:
        """p (u - <p, u>) token by token, without cancellation.

        B does not see a number that is added to all entries of u. Where one class has more than
        half of the probability, its entry of u is subtracted first: what is left of the sum <p, u>
        then has no large terms that cancel, and every entry of B u has an error of a few eps of
        sum_j |B_ij| |u_j|, however sure of its classes the network is.

        The barriers keep p from being stored: it is computed twice, and the result is the only new
        array of the size of the logits.
        """
        f, u = self.logits, u.reshape(self.logits.shape)
        largest = f.max(axis=-1, keepdims=True)
        total = jnp.exp(f - largest).sum(axis=-1, keepdims=True)
        top = jnp.argmax(f, axis=-1)[..., None]
        shift = jnp.where(total < 2, jnp.take_along_axis(u, top, axis=-1), 0)
        f, u, *constants = jax.lax.optimization_barrier((f, u, largest, jnp.log(total), shift))
        largest, logs, shift = constants
        mean = (jnp.exp(f - largest - logs) * (u - shift)).sum(axis=-1, keepdims=True)
        f, u, mean = jax.lax.optimization_barrier((f, u, mean))
        scale = 1 if self.weights is None else self.weights[..., None]
        product = scale * (jnp.exp(f - largest - logs) * (u - shift - mean))
        return product.reshape(len(product), -1)

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u, with the R of :func:`_elimination` for each token."""
        last, p, diagonal, below = _elimination(self.logits)
        u = self._weighed(u.reshape(*self.logits.shape[:-1], -1))
        before = jnp.cumsum(below * u, axis=-1)
        zero = jnp.zeros_like(u[..., :1])
        scaled = jnp.concatenate([diagonal * u, zero], axis=-1)
        image = scaled - p * jnp.concatenate([zero, before], axis=-1)
        return _swapped(image, last).reshape(len(image), -1)

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R^T u, with the R of :func:`_elimination` for each token."""
        last, p, diagonal, below = _elimination(self.logits)
        u = _swapped(u.reshape(self.logits.shape), last)
        behind = jnp.cumsum((p * u)[..., :0:-1], axis=-1)[..., ::-1]
        image = self._weighed(diagonal * u[..., :-1] - below * behind)
        return image.reshape(len(image), -1)

    def _weighed(self, u: jax.Array) -> jax.Array:
        return u if self.weights is None else jnp.sqrt(self.weights)[..., None] * u


def _softmax(target: Target, outputs: jax.Array) -> Softmax:
    shape = target.outputs.shape
    logits = outputs.reshape(len(outputs), math.prod(shape[:-1]), shape[-1])
    return Softmax(logits, None if target.weights is None else _flat(target.weights))


def _elimination(logits: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The Cholesky factor R (v, v - 1) of diag(p) - p p^T, p = softmax(f), in closed form.

    With the tail sums q_j = sum_{i >= j} p_i, elimination of one class after the other gives

        R_jj = sqrt(p_j q_{j+1} / q_j),   R_ij = -p_i sqrt(p_j / (q_j q_{j+1})) for i > j,

    so that R u and R^T u are made of sums that run over the classes. Only positive numbers are
    added and multiplied, so every entry of R has a relative error of some eps (times the size of
    the logits, from which exp takes its error), for saturated outputs too, where p and 1 - p both
    lose their digits. The columns are multiples of e_j - pi_j for probabilities pi_j over the
    classes behind j. Such columns are independent whatever the probabilities are, so entries with
    small relative errors give singular values with small relative errors.

    A likely class comes last, so that no q_j is small: R R^T then has entries with small relative
    errors too. It is the first class that has at least half the probability of the likeliest. The
    likeliest itself would change with the rounding of logits that are equal, and R with it.

    Returns:
      The class that is swapped with the last one (..., 1), p in that order, R_jj, and R_ij / -p_i.
    """
    largest = logits.max(axis=-1, keepdims=True)
    last = jnp.argmax(logits >= largest - math.log(2.0), axis=-1)[..., None]
    logs = jax.nn.log_softmax(_swapped(logits, last), axis=-1)
    p, root = jnp.exp(logs), jnp.exp(logs[..., :-1] / 2)
    tails = jnp.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
    tail, next_tail = tails[..., :-1], tails[..., 1:]
    return last, p, root * jnp.sqrt(next_tail / tail), root / jnp.sqrt(tail * next_tail)


def _swapped(array: jax.Array, place: jax.Array) -> jax.Array:
    """The array with the entry at a place of its last axis and the last entry exchanged."""
    entry = jnp.take_along_axis(array, place, axis=-1)
    index = jax.lax.broadcasted_iota(place.dtype, array.shape, array.ndim - 1)
    with_last = jnp.where(index == place, array[..., -1:], array)
    return jnp.where(index == array.shape[-1] - 1, entry, with_last)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StoredRoot:
    """B = R R^T for a stored R (n, k, r)."""

    root: jax.Array

    def apply(self, u: jax.Array) -> jax.Array:
        return self.apply_root(self.apply_root_transposed(u))

    def apply_root(self, u: jax.Array) -> jax.Array:
        return jnp.einsum("nij,nj->ni", self.root, u, precision="highest")

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        return jnp.einsum("nji,nj->ni", self.root, u, precision="highest")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByDerivative:
    """B u as the derivative of the loss's gradient along u."""

    target: Target
    outputs: jax.Array

    def apply(self, u: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda f: loss_sum(self.target, f))
        image: jax.Array = jax.jvp(gradient, (self.outputs,), (u,))[1]
        return image

    def apply_root(self, u: jax.Array) -> jax.Array:
        return output_hessian(self.target, self.outputs, rooted=True).apply_root(u)

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        return output_hessian(self.target, self.outputs, rooted=True).apply_root_transposed(u)


def root_rows(target: Target | None, outputs: jax.Array) -> jax.Array:
    """R^T (r, k) of one sample with outputs (k,), the identity without a target.

    The target is that of one sample too.
    """
    if target is None:
        return jnp.eye(len(outputs), dtype=outputs.dtype)
    alone = jax.tree.map(lambda leaf: leaf[None], target)
    hessian = output_hessian(alone, outputs[None], rooted=True)
    unit = jnp.eye(target.rows, dtype=outputs.dtype)
    return jax.vmap(lambda row: hessian.apply_root(row[None])[0])(unit)


def formed_hessians(target: Target, outputs: jax.Array) -> jax.Array:
    """B (n, k, k) of a loss of the caller's, by differentiation."""

    def of_sample(f: jax.Array, part: Target) -> jax.Array:
        alone = jax.tree.map(lambda leaf: leaf[None], part)
        hessian: jax.Array = jax.hessian(lambda row: loss_sum(alone, row[None]))(f)
        return hessian

    return jax.vmap(of_sample)(outputs, target)


def _symmetric_root(hessian: jax.Array) -> jax.Array:
    """B^{1/2} (k, k), which, unlike a matrix of eigenvectors, is a continuous function of B.

    The root is zero in directions without curvature, and also where rounding made an eigenvalue
    negative.
    """
    values, vectors = jnp.linalg.eigh(hessian)
    roots = jnp.sqrt(values.clip(0))
    return jnp.matmul(vectors * roots[None, :], vectors.T, precision="highest")


def check_convex(target: Target, outputs: jax.Array) -> None:
    """Refuse a loss of the caller's whose output Hessian B is indefinite at these outputs.

    The smallest eigenvalue decides, or, for more outputs than ``LARGEST_ROOT``, the sign of
    u^T B u for a few random u.
    """
    if not callable(target.loss):
        return
    n, k = outputs.shape
    if k > LARGEST_ROOT:
        check_second_derivative("the loss", _smallest_and_largest_quotient, target, outputs)
        _check_curvatures(*_smallest_and_largest_quotient(target, outputs))
        return
    size = max(1, int(_CHECKED_AT_ONCE / k**2))
    for start in range(0, n, size):
        part = slice(start, start + size)
        some = jax.tree.map(lambda leaf, part=part: leaf[part], target)
        check_second_derivative("the loss", _smallest_and_largest, some, outputs[part])
        _check_curvatures(*_smallest_and_largest(some, outputs[part]))


@bounded_jit
def _smallest_and_largest(target: Target, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest eigenvalue of the B_i, and the largest absolute one."""
    values = jnp.linalg.eigvalsh(formed_hessians(target, outputs))
    return values.min(), jnp.abs(values).max()


@bounded_jit
def _smallest_and_largest_quotient(
    target: Target, outputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The smallest and the largest u^T B u / u^T u of a sample."""
    hessian = output_hessian(target, outputs, rooted=False)
    probes = jax.random.normal(jax.random.key(0), (_PROBES, *outputs.shape), outputs.dtype)
    images = jnp.stack([hessian.apply(u) for u in probes])
    quotients = (probes * images).sum(axis=-1) / jnp.square(probes).sum(axis=-1)
    return quotients.min(), jnp.abs(quotients).max()


def _check_curvatures(smallest: jax.Array, largest: jax.Array) -> None:
    if not (bool(jnp.isfinite(smallest)) and bool(jnp.isfinite(largest))):
        msg = (
            "the loss has an output Hessian with NaN or Inf at these outputs and targets; look for "
            "a square root or a logarithm of zero, a division by zero, or an overflow"
        )
        raise ValueError(msg)
    if float(smallest) < -_CONCAVE * max(float(largest), 1e-300):
        msg = (
            f"the loss is not convex in the outputs: an output Hessian has eigenvalue "
            f"{float(smallest):.3g}, and the Gauss-Newton matrix needs B_i >= 0; take a loss that "
            "is convex, or take gnjax.hessian, which needs none"
        )
        raise ValueError(msg)
