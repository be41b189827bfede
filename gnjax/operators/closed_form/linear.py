"""Networks whose Gauss-Newton matrix is known in closed form, as operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from gnjax.numerics.rounding import gamma, singular_values, spectral_error, unit_roundoff
from gnjax.numerics.validation import check_covariance, check_finite_number, check_weights
from gnjax.operators.base import KroneckerFactors, SumOfKroneckers
from gnjax.operators.closed_form.formation import probed_errors, worst_errors
from gnjax.operators.closed_form.staircase import numerical_rank

_SVD_UP_TO = 256
_BATCH_BYTES = 2**30

_Root = tuple[jax.Array | None, float, int]  # Sigma^{1/2} (None: identity), its error, its rank
_Products = tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]  # S_1 .. S_L and T_1 .. T_L


def linear_gauss_newton(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> SumOfKroneckers:
    """The Gauss-Newton matrix of a linear or residual network (Eqs 4, 5, 7).

    G = sum_l (W^{L:l+1} W^{l+1:L}) (x) (Sigma^{1/2} W^{1:l-1} W^{l-1:1} Sigma^{1/2}), k d x k d,
    which has the non-zero eigenvalues of (1/n) sum_i J_i^T J_i. A skip connection of strength
    beta around every layer puts W_l + beta I, with a rectangular identity, in place of W_l.

    Args:
      weights: W_1 .. W_L, W_l of shape (a_l, a_{l-1}).
      covariance: Sigma = X X^T / n, (d, d); None for whitened data (the identity).
      skip: beta.
    """
    return from_factors(linear_factors(weights, covariance, skip))


def linear_gauss_newtons(
    weights: Sequence[ArrayLike], skips: Sequence[float], covariance: ArrayLike | None = None
) -> Iterator[SumOfKroneckers]:
    """``linear_gauss_newton`` of the same weights at each beta of ``skips``, in their order.

    The products of all betas are one batched computation. Above a gigabyte, where a single product
    keeps the machine busy, they come one beta after the other, to hold one network at a time.
    """
    given = check_weights(weights)
    betas = [check_finite_number("skip", skip) for skip in skips]
    root = _square_root(covariance, given[0].shape[1], given[0].dtype)
    return map(from_factors, _factors_by_skip(given, betas, root))


def linear_factors(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> KroneckerFactors:
    """S_l = W^{L:l+1} and T_l = Sigma^{1/2} W^{1:l-1}, with their rounding and generic ranks."""
    given, skip = check_weights(weights), check_finite_number("skip", skip)
    root = _square_root(covariance, given[0].shape[1], given[0].dtype)
    return _factors(given, skip, root, _products(given, skip, root[0]))


def _factors_by_skip(
    weights: list[jax.Array], skips: list[float], root: _Root
) -> Iterator[KroneckerFactors]:
    if len(skips) * _product_bytes(weights) > _BATCH_BYTES:
        for skip in skips:
            yield _factors(weights, skip, root, _products(weights, skip, root[0]))
        return
    batch = _batched_products(weights, jnp.asarray(skips, weights[0].dtype), root[0])
    for index, skip in enumerate(skips):
        lefts, rights = batch
        products = tuple(s[index] for s in lefts), tuple(t[index] for t in rights)
        yield _factors(weights, skip, root, products)


def _product_bytes(weights: list[jax.Array]) -> int:
    """The memory of S_1 .. S_L and T_1 .. T_L."""
    outputs, inputs = weights[-1].shape[0], weights[0].shape[1]
    return weights[0].dtype.itemsize * sum(
        outputs * after + inputs * before for after, before in (w.shape for w in weights)
    )


def _factors(
    weights: list[jax.Array], skip: float, root: _Root, products: _Products
) -> KroneckerFactors:
    """The products with the bounds on their rounding and their generic ranks."""
    lefts, rights = products
    matrix, root_error, root_rank = root
    layers = [_with_skip(w, skip) for w in weights]
    ranks = [_rank(w) for w in layers]
    if max(min(w.shape) for w in layers) > _SVD_UP_TO:
        errors = probed_errors(weights, skip, matrix, root_error, lefts, rights)
    else:
        errors = worst_errors(layers, skip, matrix, root_error, lefts, rights)
    outputs = layers[-1].shape[0]
    return KroneckerFactors(
        lefts,
        rights,
        *errors,
        left_ranks=tuple(min([outputs, *ranks[layer:]]) for layer in range(1, len(ranks) + 1)),
        right_ranks=tuple(min([root_rank, *ranks[:layer]]) for layer in range(len(ranks))),
        whitened=matrix is None,
    )


def from_factors(factors: KroneckerFactors) -> SumOfKroneckers:
    """sum_l (S_l S_l^T) (x) (T_l T_l^T), with a bound on its rounding."""
    lefts, left_norms = zip(*(_gram(s) for s in factors.lefts), strict=True)
    rights, right_norms = zip(*(_gram(t) for t in factors.rights), strict=True)
    error = _sum_error(
        jnp.stack(lefts),
        jnp.stack(rights),
        _gram_errors(factors.lefts, factors.left_errors, left_norms),
        _gram_errors(factors.rights, factors.right_errors, right_norms),
    )
    return SumOfKroneckers(jnp.stack(lefts), jnp.stack(rights), error, factors)


def _rank(weight: jax.Array) -> int:
    """The rank of one matrix of the chain; of a large one, its shorter side.

    A large weight of lower rank is found out later: its smallest eigenvalue then falls below the
    floor and the answer is unresolved, never wrong.
    """
    shorter = min(weight.shape)
    if shorter > _SVD_UP_TO:
        return shorter
    values = singular_values(np.asarray(weight))
    return numerical_rank(values, max(weight.shape), float(jnp.finfo(weight.dtype).eps))


def _with_skip(weight: jax.Array, skip: float) -> jax.Array:
    """W_l + beta I with I of shape (a_l, a_{l-1})."""
    return weight if skip == 0.0 else _shifted(weight, skip)


@jax.jit
def _shifted(weight: jax.Array, skip: jax.Array | float) -> jax.Array:
    return weight + skip * jnp.eye(weight.shape[0], weight.shape[1], dtype=weight.dtype)


def _square_root(covariance: ArrayLike | None, inputs: int, dtype: jnp.dtype) -> _Root:
    """Sigma^{1/2}, a bound on ||stored - exact||, and the rank of Sigma; None is the identity.

    Eigenvalues below d eps lambda_max are zero. On the range the root moves by at most
    delta / sqrt(lambda_r) when Sigma moves by delta (||A^{1/2} - B^{1/2}|| <= ||A - B|| /
    (sqrt lambda_min(A) + sqrt lambda_min(B)) there).
    """
    if covariance is None:
        return None, 0.0, inputs
    sigma = np.asarray(check_covariance(covariance, inputs))
    if not (sigma - np.diag(np.diagonal(sigma))).any():
        return _diagonal_root(np.diagonal(sigma), dtype)
    # MRRR, the default, was seen to be off by 40 eps in an eigenvalue that is zero.
    values, vectors = scipy.linalg.eigh(sigma, driver="evd")
    eps = float(jnp.finfo(dtype).eps)
    kept = values > max(8, inputs) * eps * max(values[-1], 0.0)
    if not kept.any():
        return jnp.zeros((inputs, inputs), dtype), 0.0, 0
    roots = np.where(kept, np.sqrt(np.where(kept, values, 0.0)), 0.0)
    moved = spectral_error(inputs, dtype) * values[-1]
    error = moved / roots[kept].min() + spectral_error(inputs, dtype) * roots.max()
    return jnp.asarray((vectors * roots) @ vectors.T, dtype), float(error), int(kept.sum())


def _diagonal_root(variances: np.ndarray, dtype: jnp.dtype) -> _Root:
    """Sigma^{1/2} for data in its principal axes: the eigenvalues are given, not computed."""
    eps = float(jnp.finfo(dtype).eps)
    kept = variances > max(8, len(variances)) * eps * variances.max()
    roots = np.where(kept, np.sqrt(np.where(kept, variances, 0.0)), 0.0)
    error = unit_roundoff(dtype) * float(roots.max())
    return jnp.asarray(np.diag(roots), dtype), error, int(kept.sum())


def _products(weights: list[jax.Array], skip: float, root: jax.Array | None) -> _Products:
    layers = [_with_skip(w, skip) for w in weights]
    return _left_products(layers), _right_products(layers, root)


@jax.jit
def _batched_products(
    weights: list[jax.Array], skips: jax.Array, root: jax.Array | None
) -> _Products:
    """S_l and T_l at every beta, with the betas as their leading axis."""

    def at(skip: jax.Array) -> _Products:
        layers = [_shifted(w, skip) for w in weights]
        return _left_products(layers), _right_products(layers, root)

    return jax.vmap(at)(skips)


def _left_products(layers: list[jax.Array]) -> tuple[jax.Array, ...]:
    """S_l = W^{L:l+1} for l = 1 .. L, S_L = I."""
    last = layers[-1]
    products = [jnp.eye(last.shape[0], dtype=last.dtype)]
    for depth, w in enumerate(layers[:0:-1]):
        products.append(_times(products[-1], w) if depth else w)
    return tuple(products[::-1])


def _right_products(layers: list[jax.Array], root: jax.Array | None) -> tuple[jax.Array, ...]:
    """T_l = Sigma^{1/2} W^{1:l-1} for l = 1 .. L, T_1 = Sigma^{1/2}."""
    first = layers[0]
    products = [jnp.eye(first.shape[1], dtype=first.dtype) if root is None else root]
    for depth, w in enumerate(layers[:-1]):
        first_factor = depth == 0 and root is None
        products.append(w.T if first_factor else _times_transposed(products[-1], w))
    return tuple(products)


@jax.jit
def _times(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision="highest")


@jax.jit
def _times_transposed(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right.T, precision="highest")


@jax.jit
def _gram(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F F^T and ||F||_F."""
    return jnp.matmul(factor, factor.T, precision="highest"), jnp.linalg.norm(factor)


def _gram_errors(
    factors: tuple[jax.Array, ...], errors: jax.Array, norms: tuple[jax.Array, ...]
) -> jax.Array:
    """||fl(F F^T) - exact|| <= (2 ||F|| + e) e + gamma ||F||^2, in Frobenius norms."""
    size = jnp.stack(norms)
    units = jnp.asarray([gamma(f.shape[1], f.dtype) for f in factors], size.dtype)
    return (2 * size + errors) * errors + units * size**2


@jax.jit
def _sum_error(
    lefts: jax.Array, rights: jax.Array, left_errors: jax.Array, right_errors: jax.Array
) -> jax.Array:
    """sum_l (||A_l|| + a_l) b_l + a_l ||B_l||, and one rounding for each term of the sum."""
    left_norms = jnp.linalg.norm(lefts, axis=(1, 2))
    right_norms = jnp.linalg.norm(rights, axis=(1, 2))
    formed = (left_norms + left_errors) * right_errors + left_errors * right_norms
    summed = gamma(lefts.shape[0] + 1, lefts.dtype) * left_norms * right_norms
    return jnp.sum(formed + summed)
