"""Networks whose Gauss-Newton matrix is known in closed form, as operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import weakest
from gnjax.numerics.host import (
    all_finite,
    by_numpy,
    identity,
    on_device,
    stacked,
    times,
)
from gnjax.numerics.outward import frobenius_norm, raised, stored_bound, underflow
from gnjax.numerics.rounding import gamma
from gnjax.numerics.validation import check_finite_number
from gnjax.papers.closed_form.formation import probed_errors, worst_errors
from gnjax.papers.closed_form.gauss_newton import LinearGaussNewton
from gnjax.papers.closed_form.layer_weights import (
    CovarianceRoot,
    Layers,
    checked_layers,
    square_root,
)
from gnjax.papers.closed_form.patterns import path_counts, pattern, transposed
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.papers.kronecker.operator import sum_error

_WORST_CASE_UP_TO = 256

_Products = tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]  # S_1 .. S_L and T_1 .. T_L


def linear_gauss_newton(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> LinearGaussNewton:
    """The Gauss-Newton matrix of a linear or residual network (Eqs 4, 5, 7).

    G = sum_l (W^{L:l+1} W^{l+1:L}) (x) (Sigma^{1/2} W^{1:l-1} W^{l-1:1} Sigma^{1/2}), k d x k d,
    where W^{L:l+1} = W_L .. W_{l+1}, W^{l+1:L} is its transpose, and W^{l-1:1} = W_{l-1} .. W_1. It
    has the non-zero eigenvalues of (1/n) sum_i J_i^T J_i for the Jacobians J_i of the outputs on
    each sample. A skip connection of strength
    beta around every layer puts W_l + beta I, with a rectangular identity, in place of W_l.

    Args:
      weights: W_1 .. W_L, W_l of shape (a_l, a_{l-1}).
      covariance: Sigma = X X^T / n, (d, d); None for whitened data (the identity).
      skip: beta.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> op = gnjax.papers.linear_gauss_newton(weights)  # whitened inputs
    >>> op.shape, op.facts().rank().value
    ((12, 12), 12)
    >>> skipped = gnjax.papers.linear_gauss_newton(weights, np.diag([4.0, 3.0, 2.0, 1.0]), skip=1.0)
    >>> gnjax.condition_number(skipped).resolved
    True
    """
    return from_factors(linear_factors(weights, covariance, skip))


def linear_gauss_newtons(
    weights: Sequence[ArrayLike], skips: Sequence[float], covariance: ArrayLike | None = None
) -> Iterator[LinearGaussNewton]:
    """``linear_gauss_newton`` of the same weights at each beta of ``skips``, in their order.

    Each network is formed when it is asked for, so that only one is stored at a time.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> first, second = gnjax.papers.linear_gauss_newtons(weights, skips=(0.0, 1.0))
    >>> alone = gnjax.papers.linear_gauss_newton(weights, skip=1.0)
    >>> np.allclose(second.as_matrix(), alone.as_matrix())
    True
    """
    layers = checked_layers(weights)
    betas = [check_finite_number("skip", skip) for skip in skips]
    root = square_root(covariance, layers.inputs, layers.dtype)
    return (from_factors(_factors(layers, beta, root)) for beta in betas)


def linear_factors(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> KroneckerFactors:
    """S_l = W_L .. W_{l+1} and T_l = Sigma^{1/2} (W_{l-1} .. W_1)^T, with rounding and rank bounds.

    The W_l are ``weights`` with beta = ``skip`` times the identity added, and Sigma is
    ``covariance``, by default the identity.
    """
    layers, skip = checked_layers(weights), check_finite_number("skip", skip)
    root = square_root(covariance, layers.inputs, layers.dtype)
    return _factors(layers, skip, root)


def _factors(layers: Layers, skip: float, root: CovarianceRoot) -> KroneckerFactors:
    """S_l and T_l as of :func:`linear_factors`, refused where they have Inf or NaN.

    The rounding is bounded by the worst case for narrow layers, and else measured with random
    vectors.
    """
    lefts, rights = _products(layers.stored, skip, root.matrix)
    if not all(map(all_finite, (*lefts, *rights))):
        msg = (
            f"the products of layers are beyond the largest {layers.dtype}; divide the weights by "
            "a power of two"
        )
        raise ValueError(msg)
    left_ranks, right_ranks = _rank_bounds(layers, skip, root)
    narrow = max(min(w.shape) for w in layers.stored) <= _WORST_CASE_UP_TO
    errors = (worst_errors if narrow else probed_errors)(layers, skip, root, lefts, rights)
    return KroneckerFactors(
        lefts,
        rights,
        stored_bound(errors.lefts, layers.dtype),
        stored_bound(errors.rights, layers.dtype),
        left_ranks,
        right_ranks,
        whitened=root.matrix is None,
        assumed=root.assumed,
        evidence=weakest(errors.evidence, root.evidence),
        failure=errors.failure,
    )


def _rank_bounds(layers: Layers, skip: float, root: CovarianceRoot) -> tuple[tuple[int, ...], ...]:
    """Bounds (L,) on the ranks of S_l and T_l: the numbers of disjoint paths, and Sigma's rank."""
    edges = [pattern(np.asarray(w), skip) for w in layers.originals]
    outputs = np.ones(layers.stored[-1].shape[0], bool)
    lefts = path_counts([transposed(e) for e in edges[:0:-1]], outputs)[::-1]
    rights = path_counts(edges[:-1], root.inputs)
    return lefts, tuple(min(root.rank, count) for count in rights)


def from_factors(factors: KroneckerFactors) -> LinearGaussNewton:
    """G = sum_l (S_l S_l^T) (x) (T_l T_l^T) of a linear network."""
    lefts = tuple(times(s, s, transposed=True) for s in factors.lefts)
    first, *later = factors.rights
    first = first if factors.whitened else times(first, first, transposed=True)  # I I^T = I
    rights = (first, *(times(t, t, transposed=True) for t in later))
    error = sum_error(
        [frobenius_norm(a) for a in lefts],
        [frobenius_norm(b) for b in rights],
        _gram_errors(factors.lefts, factors.left_errors),
        _gram_errors(factors.rights, factors.right_errors),
        lefts[0].dtype,
    )
    stored_error = stored_bound(error, lefts[0].dtype)
    return LinearGaussNewton(stacked(lefts), stacked(rights), stored_error, factors)


def _products(weights: list[jax.Array], skip: float, root: jax.Array | None) -> _Products:
    """S_l = W_L .. W_{l+1} and T_l = Sigma^{1/2} (W_{l-1} .. W_1)^T, with beta I added to each W_l.

    beta is ``skip``, and ``root`` Sigma^{1/2}; without it T_1 is the identity.
    """
    layers = weights
    if skip:
        layers = [on_device(by_numpy(w) + skip * np.eye(*w.shape, dtype=w.dtype)) for w in weights]
    first, last = layers[0], layers[-1]
    lefts = [identity(last.shape[0], last.dtype)]
    for w in layers[:0:-1]:
        lefts.append(w if len(lefts) == 1 else times(lefts[-1], w))
    rights = [identity(first.shape[1], first.dtype) if root is None else root]
    for w in layers[:-1]:
        copied = root is None and len(rights) == 1  # nothing is to be multiplied
        rights.append(on_device(by_numpy(w).T) if copied else times(rights[-1], w, transposed=True))
    return tuple(lefts[::-1]), tuple(rights)


def _gram_errors(factors: tuple[jax.Array, ...], errors: jax.Array) -> list[float]:
    """||fl(F F^T) - exact|| <= (2 ||F|| + e) e + gamma ||F||_F^2 plus underflow, for each F."""
    bounds = []
    for factor, error in zip(factors, np.asarray(errors, np.float64), strict=True):
        norm, columns = frobenius_norm(factor), factor.shape[1]
        flushed = underflow(columns, len(factor) ** 2, factor.dtype)
        with np.errstate(over="ignore"):  # an infinite bound of a matrix that overflows as well
            distance = (2 * norm + error) * error + gamma(columns, factor.dtype) * (norm * norm)
        bounds.append(raised(distance + flushed))
    return bounds
