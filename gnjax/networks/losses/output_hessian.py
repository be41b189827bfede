"""The output Hessian B of a loss, applied and never formed, and its factor R with R R^T = B.

For the squared error B is the diagonal of the weights, for the binary cross-entropy the diagonal of
p (1 - p), and for the cross-entropy diag(p) - p p^T for every token, p = softmax(f). For a loss of
the caller's B u is a derivative of its gradient, and R is the symmetric root of B, which is formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.derivatives import check_second_derivative
from gnjax.networks.losses.targets import Target, loss_sum
from gnjax.numerics.bounded_jit import bounded_jit

LARGEST_ROOT = 512  # outputs k of a sample, up to which B (k, k) of a caller's loss is formed
# Rounding makes eigenvalues this negative, as a share of the largest one, in units of eps; the most
# for thirteen convex losses of 2 to 100 outputs, written with care and without, was 19.
_CONCAVE = 64
_PROBES = 4  # random vectors u for the sign of u^T B u where B is not formed
_NUMBERS_AT_ONCE = 1e7  # entries of the formed B_i of all samples that are checked at once


class OutputHessian(Protocol):
    """Products with B (k, k) and with R (k, r), R R^T = B, for each of n samples."""

    def apply(self, u: jax.Array) -> jax.Array:
        """B u for u (n, k)."""
        return self.apply_root(self.apply_root_transposed(u))

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u for u (n, r)."""
        ...

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R^T u for u (n, k)."""
        ...


def has_root(target: Target | None) -> bool:
    """Whether R with R R^T = B can be applied, which operators of the size of the outputs need.

    It cannot for a loss of the caller's with so many outputs that B is never formed.
    """
    return target is None or not callable(target.loss) or target.outputs.k <= LARGEST_ROOT


def output_hessian(target: Target, outputs: jax.Array, *, rooted: bool) -> OutputHessian:
    """The output Hessian B: the second derivative of each sample's weighted loss at outputs (n, k).

    For a loss of the caller's own its factor R is formed here if ``rooted``, and otherwise anew for
    every product with it. The other losses apply R without forming it.
    """
    # the weights of n samples as (n, 1), and those of their terms as (n, terms)
    weights = None if target.weights is None else target.weights.reshape(len(outputs), -1)
    if target.loss == "cross_entropy":
        *tokens, classes = target.outputs.shape  # the last axis runs over the classes
        return Softmax(outputs.reshape(len(outputs), math.prod(tokens), classes), weights)
    if target.loss == "binary_cross_entropy":
        # B = p (1 - p) for the sigmoid p; its logarithm keeps its digits where p rounds to 1
        log_curvature = jax.nn.log_sigmoid(outputs) + jax.nn.log_sigmoid(-outputs)
        root = jnp.exp(log_curvature / 2)
        return DiagonalHessian(root if weights is None else root * jnp.sqrt(weights))
    if not callable(target.loss):  # the squared error, B = w I
        ones = jnp.ones((len(outputs), 1), outputs.dtype)
        return DiagonalHessian(ones if weights is None else jnp.sqrt(weights))
    if not rooted:
        return ByDerivative(target, outputs)
    # R = B^{1/2} (k, k), which, unlike a matrix of eigenvectors, is a continuous function of B; it
    # is zero where rounding made an eigenvalue negative
    values, vectors = jnp.linalg.eigh(formed_hessians(target, outputs))
    roots = jnp.sqrt(values.clip(0))[:, None, :]
    return StoredRoot(jnp.matmul(vectors * roots, vectors.mT, precision="highest"))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalHessian(OutputHessian):
    """B = diag(root^2), and R = R^T = diag(root)."""

    root: jax.Array  # (n, k) or (n, 1)

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u = root u, entry by entry."""
        return self.root * u

    apply_root_transposed = apply_root  # R^T = R


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Softmax:
    """B = w (diag(p) - p p^T), p = softmax(f), for the v logits f and the weight w of a token."""

    logits: jax.Array  # (n, t, v) for n samples of t tokens
    weights: jax.Array | None  # (n, t) or (n, 1); None: all are 1

    def apply(self, u: jax.Array) -> jax.Array:
        """w p (u - <p, u>) for each token, without cancellation, for u (n, t v).

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
        likeliest = jnp.argmax(f, axis=-1)[..., None]
        # the likeliest class has the probability 1 / total
        shift = jnp.where(total < 2, jnp.take_along_axis(u, likeliest, axis=-1), 0)
        f, u, *constants = jax.lax.optimization_barrier((f, u, largest, jnp.log(total), shift))
        largest, log_total, shift = constants
        mean = (jnp.exp(f - largest - log_total) * (u - shift)).sum(axis=-1, keepdims=True)
        f, u, mean = jax.lax.optimization_barrier((f, u, mean))
        weight = 1 if self.weights is None else self.weights[..., None]
        product = weight * (jnp.exp(f - largest - log_total) * (u - shift - mean))
        return product.reshape(len(product), -1)

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u (n, t v) for u (n, t (v - 1)), with R of :func:`_elimination` for each token.

        (R u)_i = diagonal_i u_i - p_i sum_{j < i} below_j u_j. B has rank v - 1, as it maps the
        vector of ones to zero, so that R (v, v - 1) has one column fewer than there are classes.
        """
        class_swapped_last, p, diagonal, below = _elimination(self.logits)
        u = self._times_root_of_weights(u.reshape(*self.logits.shape[:-1], -1))
        sums_before = jnp.cumsum(below * u, axis=-1)
        zero = jnp.zeros_like(u[..., :1])
        from_diagonal = jnp.concatenate([diagonal * u, zero], axis=-1)  # row v has no diagonal
        image = from_diagonal - p * jnp.concatenate([zero, sums_before], axis=-1)
        return _swapped(image, class_swapped_last).reshape(len(image), -1)

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R^T u (n, t (v - 1)) for u (n, t v), with R of :func:`_elimination` for each token.

        (R^T u)_j = diagonal_j u_j - below_j sum_{i > j} p_i u_i.
        """
        class_swapped_last, p, diagonal, below = _elimination(self.logits)
        u = _swapped(u.reshape(self.logits.shape), class_swapped_last)
        sums_behind = jnp.cumsum((p * u)[..., :0:-1], axis=-1)[..., ::-1]
        image = self._times_root_of_weights(diagonal * u[..., :-1] - below * sums_behind)
        return image.reshape(len(image), -1)

    def _times_root_of_weights(self, u: jax.Array) -> jax.Array:
        """sqrt(w) u for u (n, t, ..), w being the weight of each token."""
        return u if self.weights is None else jnp.sqrt(self.weights)[..., None] * u


def _elimination(logits: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The Cholesky factor R (v, v - 1) of diag(p) - p p^T, p = softmax(f), in closed form.

    f are the logits (..., v) of a token. With the tail sums q_j = sum_{i >= j} p_i, elimination of
    one class after the other gives

        R_jj = sqrt(p_j q_{j+1} / q_j),   R_ij = -p_i sqrt(p_j / (q_j q_{j+1})) for i > j.

    Only positive numbers are added and multiplied, so every entry of R has a relative error of a
    few eps (times the size of the logits), for saturated outputs too. The columns are multiples of
    e_j - pi_j for probabilities pi_j over the classes behind j, which are independent whatever the
    probabilities are, so that singular values have small relative errors as well.

    A likely class comes last, so that no q_j is small, nor the relative errors of R R^T large. It
    is the first class that has at least half the probability of the likeliest, which itself would
    change with the rounding of logits that are equal, and R with it.

    Returns:
      The class that changes places with the last one (..., 1); p (..., v) in that order; R_jj
      (..., v - 1); and -R_ij / p_i (..., v - 1), which is the same for all i > j.
    """
    largest = logits.max(axis=-1, keepdims=True)
    class_swapped_last = jnp.argmax(logits >= largest - math.log(2.0), axis=-1)[..., None]
    log_p = jax.nn.log_softmax(_swapped(logits, class_swapped_last), axis=-1)
    p, root_p = jnp.exp(log_p), jnp.exp(log_p[..., :-1] / 2)
    tails = jnp.cumsum(p[..., ::-1], axis=-1)[..., ::-1]  # q_j
    tail, next_tail = tails[..., :-1], tails[..., 1:]
    diagonal, below = root_p * jnp.sqrt(next_tail / tail), root_p / jnp.sqrt(tail * next_tail)
    return class_swapped_last, p, diagonal, below


def _swapped(array: jax.Array, chosen: jax.Array) -> jax.Array:
    """The array (..., v) with its entry of index ``chosen`` (..., 1) and its last one exchanged.

    Both entries are written by masks, without a scatter.
    """
    chosen_entry = jnp.take_along_axis(array, chosen, axis=-1)
    indices = jax.lax.broadcasted_iota(chosen.dtype, array.shape, array.ndim - 1)
    with_last = jnp.where(indices == chosen, array[..., -1:], array)
    return jnp.where(indices == array.shape[-1] - 1, chosen_entry, with_last)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StoredRoot(OutputHessian):
    """B = R R^T for a stored R (n, k, r)."""

    root: jax.Array

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R_i u_i (n, k) for each sample i, for u (n, r)."""
        return jnp.einsum("nij,nj->ni", self.root, u, precision="highest")

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R_i^T u_i (n, r) for each sample i, for u (n, k)."""
        return jnp.einsum("nji,nj->ni", self.root, u, precision="highest")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByDerivative:
    """B u as the derivative along u of the gradient of the caller's loss, without forming B."""

    target: Target
    outputs: jax.Array  # (n, k)

    def apply(self, u: jax.Array) -> jax.Array:
        """B u for u (n, k), a forward derivative of the gradient by the outputs."""
        gradient = jax.grad(lambda f: loss_sum(self.target, f))
        image: jax.Array = jax.jvp(gradient, (self.outputs,), (u,))[1]
        return image

    def apply_root(self, u: jax.Array) -> jax.Array:
        """R u; R is formed for this product alone, and not kept."""
        return output_hessian(self.target, self.outputs, rooted=True).apply_root(u)

    def apply_root_transposed(self, u: jax.Array) -> jax.Array:
        """R^T u; R is formed for this product alone, and not kept."""
        return output_hessian(self.target, self.outputs, rooted=True).apply_root_transposed(u)


def root_rows(target: Target | None, outputs: jax.Array) -> jax.Array:
    """R^T (r, k) of one sample with outputs (k,), where R R^T is its output Hessian B.

    The arrays of ``target`` are those of this sample, without an axis for samples. Without a
    target B and R are the identity.
    """
    if target is None:
        return jnp.eye(len(outputs), dtype=outputs.dtype)
    one_sample_target = jax.tree.map(lambda array: array[None], target)
    hessian = output_hessian(one_sample_target, outputs[None], rooted=True)
    unit_vectors = jnp.eye(target.rows, dtype=outputs.dtype)
    # R maps the j-th unit vector to the j-th column of R, the j-th row of R^T
    return jax.vmap(lambda unit: hessian.apply_root(unit[None])[0])(unit_vectors)


def formed_hessians(target: Target, outputs: jax.Array) -> jax.Array:
    """The second derivative B (n, k, k) of each sample's weighted loss at the outputs (n, k)."""

    def of_sample(f: jax.Array, sample_target: Target) -> jax.Array:
        one_sample_target = jax.tree.map(lambda array: array[None], sample_target)
        hessian: jax.Array = jax.hessian(lambda row: loss_sum(one_sample_target, row[None]))(f)
        return hessian

    return jax.vmap(of_sample)(outputs, target)


def check_convex(target: Target, outputs: jax.Array) -> None:
    """Refuse a loss of the caller's whose output Hessian B is indefinite at these outputs.

    With up to ``LARGEST_ROOT`` outputs a sample, B (k, k) is formed and its smallest eigenvalue
    decides; with more, the sign of u^T B u for a few random u. A loss for which JAX has no second
    derivative is refused as well.
    """
    n, k = outputs.shape
    if k > LARGEST_ROOT:
        check_second_derivative("the loss", _extreme_quotients, target, outputs)
        _check_curvatures(*_extreme_quotients(target, outputs))
        return
    samples_at_once = max(1, int(_NUMBERS_AT_ONCE / k**2))
    for start in range(0, n, samples_at_once):
        part = slice(start, start + samples_at_once)
        part_target = jax.tree.map(lambda array, part=part: array[part], target)
        check_second_derivative("the loss", _extreme_eigenvalues, part_target, outputs[part])
        _check_curvatures(*_extreme_eigenvalues(part_target, outputs[part]))


@bounded_jit
def _extreme_eigenvalues(target: Target, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest eigenvalue of the output Hessians B_i, and the largest absolute one."""
    values = jnp.linalg.eigvalsh(formed_hessians(target, outputs))
    return values.min(), jnp.abs(values).max()


@bounded_jit
def _extreme_quotients(target: Target, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest quotient u^T B_i u / u^T u of samples i and a few random u, and the largest."""
    hessian = output_hessian(target, outputs, rooted=False)
    probes = jax.random.normal(jax.random.key(0), (_PROBES, *outputs.shape), outputs.dtype)
    images = jnp.stack([hessian.apply(u) for u in probes])
    quotients = (probes * images).sum(axis=-1) / jnp.square(probes).sum(axis=-1)
    return quotients.min(), jnp.abs(quotients).max()


def _check_curvatures(smallest: jax.Array, largest: jax.Array) -> None:
    """Refuse output Hessians with NaN, or with a negative eigenvalue that is no rounding error.

    ``smallest`` is the smallest eigenvalue, and ``largest`` the largest absolute one. A negative
    one beyond 64 eps ``largest`` is refused however small it is, because a damping or a metric may
    make it the one that decides.
    """
    if not (bool(jnp.isfinite(smallest)) and bool(jnp.isfinite(largest))):
        msg = (
            "the loss has an output Hessian with NaN or Inf at these outputs and targets; look for "
            "a square root or a logarithm of zero, a division by zero, or an overflow"
        )
        raise ValueError(msg)
    tolerance = _CONCAVE * float(jnp.finfo(smallest.dtype).eps)
    # below 1e-300 numbers underflow, and a negative one says nothing
    if float(smallest) < -tolerance * max(float(largest), 1e-300):
        msg = (
            f"the loss is not convex in the outputs: an output Hessian has eigenvalue "
            f"{float(smallest):.3g}, and the Gauss-Newton matrix needs B_i >= 0; take a loss that "
            "is convex, or take gnjax.hessian, which needs none"
        )
        raise ValueError(msg)
