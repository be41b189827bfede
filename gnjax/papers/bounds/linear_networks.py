"""Bounds on kappa(G) of deep linear networks (Lemmas 1 and 2, Eq 7)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Certificate, Error, certificate
from gnjax.numerics.outward import lowered, raised
from gnjax.papers.bounds.enclosures import (
    Condition,
    ExtremeSingularValues,
    covariance_condition,
    extreme_singular_values,
)
from gnjax.papers.closed_form.from_weights import linear_factors
from gnjax.papers.closed_form.gauss_newton import LinearGaussNewton
from gnjax.papers.kronecker.factors import KroneckerFactors

_MARGIN = 2.0**-40  # as in gnjax.numerics.outward
_Side = list[ExtremeSingularValues]  # of S_1 .. S_L or of T_1 .. T_L


@dataclass(frozen=True, repr=False)
class LinearBound(Result):
    """Lemma 2: kappa(G) <= kappa(Sigma) sum_l gamma_l t_l <= kappa(Sigma) max_l t_l.

    Attributes:
      convex, maximum: both bounds, with the factor kappa(Sigma); None where the lemma does not
        apply.
      terms: t_l = kappa^2(W^{L:l+1}) kappa^2(W^{1:l-1}), (L,), moved up by its rounding; infinite
        where a product is rank deficient to working precision.
      weights: gamma_l = alpha_l / sum alpha with alpha_l = sigma_min^2(W^{L:l+1})
        sigma_min^2(W^{1:l-1}), (L,).
      covariance_condition: kappa(Sigma) on its range, moved up by its rounding.
      left_largest, left_smallest: singular values of W^{L:l+1}; right_*: of W^{1:l-1}.
      applicable: whether every partial product is proved to have full rank, rounding included.
      reason: why the lemma does not apply, or "".
      certificate: what both bounds rest on.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> bound = gnjax.papers.bounds.linear(weights)
    >>> bound.convex <= bound.maximum, bound.terms.shape, bound.weights.sum().round(6).item()
    (True, (2,), 1.0)
    """

    convex: float | None
    maximum: float | None
    terms: np.ndarray
    weights: np.ndarray
    covariance_condition: float
    left_largest: np.ndarray
    left_smallest: np.ndarray
    right_largest: np.ndarray
    right_smallest: np.ndarray
    applicable: bool
    reason: str
    certificate: Certificate


def linear(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> LinearBound:
    """A bound on kappa(G) of a linear network: Lemma 1 (two layers) and Lemma 2 (any depth).

    With beta = ``skip``, W_l + beta I takes the place of W_l (Eq 7). G = sum_l A_l (x) B_l with the
    products of the layers after and before the l-th, and Sigma is the covariance of the inputs, by
    default the identity. The convex bound is computed as sum_l max_l / sum_l min_l, where max_l and
    min_l are the extreme eigenvalues of A_l (x) B_l. That is the same as sum_l gamma_l t_l. Each
    singular value is moved outwards by its rounding error, so that the bound holds in floating
    point. Sigma may be singular, because Sigma^{1/2} B Sigma^{1/2} >= lambda_min(B) Sigma on its
    range.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> kappa = gnjax.condition_number(gnjax.papers.linear_gauss_newton(weights))
    >>> bound = gnjax.papers.bounds.linear(weights)
    >>> kappa.value <= bound.convex <= bound.maximum
    True
    """
    return linear_on_each(weights, (covariance,), skip)[0]


def linear_on_each(
    weights: Sequence[ArrayLike], covariances: Iterable[ArrayLike | None], skip: float = 0.0
) -> tuple[LinearBound, ...]:
    """The bounds of :func:`linear` on kappa(G) for one network on data of each covariance.

    The singular values of the products of weights do not depend on the data: they are taken once.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> whitened, raw = gnjax.papers.bounds.linear_on_each(weights, (None, np.diag([4., 3, 2, 1])))
    >>> raw.convex == gnjax.papers.bounds.linear(weights, np.diag([4., 3, 2, 1])).convex
    True
    """
    return _bounds_of(linear_factors(weights, None, skip), covariances)


def of_operator(op: LinearGaussNewton) -> LinearBound:
    """The bound of :func:`linear` on kappa(G), for the operator G of a network on whitened data.

    It uses the products of weights that the operator holds.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> op = gnjax.papers.linear_gauss_newton(weights)
    >>> gnjax.papers.bounds.of_operator(op).convex == gnjax.papers.bounds.linear(weights).convex
    True
    """
    if not isinstance(op, LinearGaussNewton) or not op.factors.whitened:
        msg = "this needs the operator of a linear network on whitened data; use bounds.linear"
        raise ValueError(msg)
    (bound,) = _bounds_of(op.factors, (None,))
    return bound


def _bounds_of(
    factors: KroneckerFactors, covariances: Iterable[ArrayLike | None]
) -> tuple[LinearBound, ...]:
    """The bounds of Lemma 2 on kappa(G) on data of each covariance Sigma, by its kappa alone.

    ``factors`` are those of whitened data, S_l = W_L .. W_{l+1} and T_l^T = W_{l-1} .. W_1.
    """
    conditions = [covariance_condition(c, factors.rights[0].shape[0]) for c in covariances]
    lefts, rights = (
        [extreme_singular_values(product, float(e)) for product, e in zip(*side, strict=True)]
        for side in (
            (factors.lefts, factors.left_errors),
            (factors.rights, factors.right_errors),
        )
    )
    rounding = max(float(np.max(e)) for e in (factors.left_errors, factors.right_errors))
    product_error = Error(
        rounding, factors.evidence, factors.failure, "rounding of the products of layers"
    )
    return tuple(_bound(lefts, rights, sigma, product_error) for sigma in conditions)


def _bound(lefts: _Side, rights: _Side, sigma: Condition, product_error: Error) -> LinearBound:
    """The bounds of Lemma 2 on kappa(G), from extreme singular values.

    With M_l and m_l the products of the largest and of the smallest of S_l and T_l, the convex
    bound is kappa(Sigma) sum_l M_l^2 / sum_l m_l^2, the maximum kappa(Sigma) max_l M_l^2 / m_l^2.
    """
    tops, bottoms = _products_of_ends(lefts, rights)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        terms = np.where(bottoms > 0, (tops / bottoms) ** 2 * (1 + _MARGIN), np.inf)
        convex = raised(sigma.value * (tops**2).sum() / lowered((bottoms**2).sum()))
        maximum = max(convex, raised(sigma.value * terms.max()))
        # log alpha_l, which does not under- or overflow
        logs = 2 * np.log([[e.smallest for e in side] for side in (lefts, rights)]).sum(axis=0)
    shares = np.exp(logs - logs.max()) if np.isfinite(logs.max()) else np.zeros(len(logs))
    weights = shares / shares.sum() if shares.any() else np.full(len(logs), np.nan)
    reason = _why_not_applicable(lefts, rights) or sigma.reason
    if not reason and not math.isfinite(maximum):
        reason = "the bound is too large for a float64 number"
    return LinearBound(
        None if reason else convex,
        None if reason else maximum,
        terms,
        weights,
        sigma.value,
        *(np.array([e.largest for e in lefts]), np.array([e.smallest for e in lefts])),
        *(np.array([e.largest for e in rights]), np.array([e.smallest for e in rights])),
        applicable=not reason,
        reason=reason,
        certificate=certificate(product_error, *(e.part for e in (*lefts, *rights)), sigma.part),
    )


def _products_of_ends(lefts: _Side, rights: _Side) -> tuple[np.ndarray, np.ndarray]:
    """Bounds above sigma_max(S_l) sigma_max(T_l) and below sigma_min(S_l) sigma_min(T_l): (L,).

    Both are divided by one power of two, so that their squares do not under- or overflow.
    """
    tops = bottoms = np.ones(len(lefts))
    for side in (lefts, rights):
        largest = max(e.above for e in side)
        power = math.frexp(largest)[1] if math.isfinite(largest) else 0
        tops = tops * [math.ldexp(e.above, -power) for e in side]
        bottoms = bottoms * [math.ldexp(e.below, -power) for e in side]
    return tops * (1 + _MARGIN), bottoms / (1 + _MARGIN)


def _why_not_applicable(lefts: _Side, rights: _Side) -> str:
    """Which products of layers may have no full rank, so that Lemma 2 does not apply; or ""."""
    for name, side in (("W^{L:l+1}", lefts), ("W^{1:l-1}", rights)):
        layers = [str(layer) for layer, extremes in enumerate(side, start=1) if extremes.below == 0]
        if layers:
            return (
                f"{name} is rank deficient, exactly or to working precision, at l = "
                f"{', '.join(layers)}; Lemma 2 needs hidden layers wider than max(d, k) and "
                "sigma_min > 0"
            )
    return ""
