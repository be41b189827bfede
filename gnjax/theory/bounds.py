"""Bounds on condition numbers, one function for each theorem of paper A."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate
from gnjax.numerics.outward import above, below, frobenius_norm, lowered, raised
from gnjax.numerics.result import Result
from gnjax.numerics.rounding import gamma, singular_values, spectral_error, unit_roundoff
from gnjax.numerics.validation import check_matrix
from gnjax.operators.closed_form.leaky_relu import leaky_layer
from gnjax.operators.closed_form.linear import linear_factors
from gnjax.operators.kroneckers import KroneckerFactors, SumOfKroneckers
from gnjax.theory.enclosures import (
    Condition,
    Eigenvalues,
    ExtremeSingularValues,
    covariance_condition,
    eigenvalues,
    extreme_singular_values,
)
from gnjax.theory.initial_bounds import InitBound, asymptotic, gaussian_init

__all__ = [
    "FunctionalHessianBound",
    "InitBound",
    "LeakyReluBound",
    "LinearBound",
    "Sides",
    "asymptotic",
    "functional_hessian",
    "gaussian_init",
    "leaky_relu",
    "linear",
    "of_operator",
    "weyl",
]

_MARGIN = 2.0**-40  # as in gnjax.numerics.outward
_Side = list[ExtremeSingularValues]  # of S_1 .. S_L or of T_1 .. T_L


@dataclass(frozen=True, repr=False)
class LinearBound(Result):
    """Lemma 2: kappa(G) <= kappa(Sigma) sum_l gamma_l t_l <= kappa(Sigma) max_l t_l.

    Attributes:
      convex, maximum: both bounds, with the factor kappa(Sigma); None where the lemma is silent.
      terms: t_l = kappa^2(W^{L:l+1}) kappa^2(W^{1:l-1}), (L,), moved up by its rounding; infinite
        where a product is rank deficient to working precision.
      weights: gamma_l = alpha_l / sum alpha with alpha_l = sigma_min^2(W^{L:l+1})
        sigma_min^2(W^{1:l-1}), (L,).
      covariance_condition: kappa(Sigma) on its range, moved up by its rounding.
      left_largest, left_smallest: singular values of W^{L:l+1}; right_*: of W^{1:l-1}.
      applicable: whether every partial product has full rank, proved against rounding.
      reason: why not, or "".
      certificate: what both bounds rest on.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> found = gnjax.bounds.linear(weights)
    >>> found.convex <= found.maximum, found.terms.shape, found.weights.sum().round(6).item()
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
    """Lemma 1 (two layers), Lemma 2 (any depth) and Eq 7 (W_l + beta I in place of W_l).

    With gamma_l inside, the convex bound is sum_l max_l / sum_l min_l for max_l and min_l the
    extreme eigenvalues of A_l (x) B_l, which is how it is computed. Each singular value is moved
    outwards by its rounding error, so that the bound holds in floating point. Sigma may be
    singular: on its range, Sigma^{1/2} B Sigma^{1/2} >= lambda_min(B) Sigma.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> kappa = gnjax.condition_number(gnjax.linear_gauss_newton(weights))
    >>> found = gnjax.bounds.linear(weights)
    >>> kappa.value <= found.convex <= found.maximum
    True
    """
    factors = linear_factors(weights, None, skip)
    return _from_factors(factors, covariance_condition(covariance, factors.rights[0].shape[0]))


def of_operator(op: SumOfKroneckers) -> LinearBound:
    """``linear`` for the operator of a network on whitened data, from the products it holds.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> op = gnjax.linear_gauss_newton(weights)
    >>> gnjax.bounds.of_operator(op).convex == gnjax.bounds.linear(weights).convex
    True
    """
    if op.factors is None or not op.factors.whitened:
        msg = "this needs the operator of a linear network on whitened data; use bounds.linear"
        raise ValueError(msg)
    return _from_factors(op.factors, covariance_condition(None, op.factors.rights[0].shape[0]))


def _from_factors(factors: KroneckerFactors, sigma: Condition) -> LinearBound:
    left_errors, right_errors = np.asarray(factors.left_errors), np.asarray(factors.right_errors)
    lefts, rights = (
        [extreme_singular_values(product, float(e)) for product, e in zip(*side, strict=True)]
        for side in ((factors.lefts, left_errors), (factors.rights, right_errors))
    )
    tops, bottoms = _products_of_ends(lefts, rights)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        terms = np.where(bottoms > 0, (tops / bottoms) ** 2 * (1 + _MARGIN), np.inf)
        convex = raised(sigma.value * (tops**2).sum() / lowered((bottoms**2).sum()))
        maximum = max(convex, raised(sigma.value * terms.max()))
    reason = _why_not_applicable(lefts, rights) or sigma.reason
    if not reason and not math.isfinite(maximum):
        reason = "the bound is too large for a float64 number"
    formed = Error(
        float(max(left_errors.max(), right_errors.max())),
        factors.evidence,
        factors.failure,
        "rounding of the products of layers",
    )
    return LinearBound(
        None if reason else convex,
        None if reason else maximum,
        terms,
        _layer_weights(lefts, rights),
        sigma.value,
        *(np.array([e.largest for e in lefts]), np.array([e.smallest for e in lefts])),
        *(np.array([e.largest for e in rights]), np.array([e.smallest for e in rights])),
        applicable=not reason,
        reason=reason,
        certificate=certificate(formed, *(e.part for e in (*lefts, *rights)), sigma.part),
    )


def _products_of_ends(lefts: _Side, rights: _Side) -> tuple[np.ndarray, np.ndarray]:
    """Bounds above sigma_max(S_l) sigma_max(T_l) and below sigma_min(S_l) sigma_min(T_l): (L,).

    Both are divided by one power of two, so that their squares do not under- or overflow.
    """
    left_power, right_power = (_exponent(side) for side in (lefts, rights))
    tops, bottoms = [], []
    for left, right in zip(lefts, rights, strict=True):
        tops.append(math.ldexp(left.above, -left_power) * math.ldexp(right.above, -right_power))
        bottoms.append(math.ldexp(left.below, -left_power) * math.ldexp(right.below, -right_power))
    return np.array(tops) * (1 + _MARGIN), np.array(bottoms) / (1 + _MARGIN)


def _exponent(side: _Side) -> int:
    largest = max(e.above for e in side)
    return math.frexp(largest)[1] if math.isfinite(largest) else 0


def _layer_weights(lefts: _Side, rights: _Side) -> np.ndarray:
    """alpha_l / sum alpha, by logarithms."""
    with np.errstate(divide="ignore"):
        logs = 2 * np.log([[e.smallest for e in side] for side in (lefts, rights)]).sum(axis=0)
    peak = logs.max()
    shares = np.exp(logs - peak) if np.isfinite(peak) else np.zeros(len(logs))
    return shares / shares.sum() if shares.any() else np.full(len(logs), np.nan)


def _why_not_applicable(lefts: _Side, rights: _Side) -> str:
    for name, side in (("W^{L:l+1}", lefts), ("W^{1:l-1}", rights)):
        layers = [str(layer) for layer, found in enumerate(side, start=1) if found.below == 0]
        if layers:
            return (
                f"{name} is rank deficient, exactly or to working precision, at l = "
                f"{', '.join(layers)}; Lemma 2 needs hidden widths above max(d, k) and "
                "sigma_min > 0"
            )
    return ""


@dataclass(frozen=True, repr=False)
class LeakyReluBound(Result):
    """Lemma 4: kappa(G) <= value = largest / smallest for G of Eq 10.

    Attributes:
      value: Eq 11; None where the lemma is silent.
      estimate: the paper's second bound, through Eqs 25 and 26, which kappa can exceed; None where
        its denominator is 0.
      largest, smallest: what Eq 11 puts above lambda_max(G) and below lambda_min(G).
      applicable: whether ``smallest`` is positive, proved against rounding.
      reason: why not, or "".
      certificate: what ``value`` rests on; ``estimate`` has none.

    >>> v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((9, 3), (2, 9), (3, 3)))
    >>> found = gnjax.bounds.leaky_relu(v, w, x, slope=0.5)
    >>> kappa = gnjax.condition_number(gnjax.leaky_relu_gauss_newton(v, w, x, slope=0.5))
    >>> found.applicable, kappa.interval[0] <= found.value
    (True, True)
    """

    value: float | None
    estimate: float | None
    largest: float
    smallest: float
    applicable: bool
    reason: str
    certificate: Certificate


def leaky_relu(V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float) -> LeakyReluBound:
    """Eq 11, for F(x) = W sigma(V x) with V (m, d), W (k, m), X (d, n), samples as columns.

    (s_max^2(X) s_max^2(W) + lambda_max(Gamma))
    / (slope^2 s_min^2(X) s_min^2(W) + lambda_min(Gamma)), Gamma = sigma(V X)^T sigma(V X), with
    s_min(X) on the side of the samples and s_min(W) on that of the outputs: 0 where n > d or
    k > m. Each singular value is moved outwards by its rounding error.

    ``estimate`` has X^T V^T V X in place of Gamma above, and slope^2 times it below. Eqs 25 and 26
    would need one Lambda for all units: with slope 1/2, X = I and V = [[-2, 1/2], [1, -1]], Gamma
    is singular and V is not; with slope 0, X = I and V = [[1, 1], [1, -1]], lambda_max(Gamma) =
    2.618 exceeds lambda_max(V^T V) = 2.

    >>> v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((9, 3), (2, 9), (3, 3)))
    >>> gnjax.bounds.leaky_relu(v, w, x, slope=0.5).applicable
    True
    """
    layer = leaky_layer(V, W, X, slope)
    data = extreme_singular_values(layer.inputs.T, layer.inputs_error)
    outer = extreme_singular_values(layer.outer, layer.outer_error)
    hidden = extreme_singular_values(layer.hidden.T, layer.hidden_error)
    largest = raised((data.above * outer.above) ** 2 + hidden.above**2)
    smallest = lowered((layer.slope * data.below * outer.below) ** 2 + hidden.below**2)
    reason = ""
    if smallest == 0:
        (units, samples), outputs = layer.hidden.shape, layer.outer.shape[0]
        reason = (
            "Lemma 4 bounds lambda_min from below by 0: Gamma is singular, exactly or to working "
            f"precision (n={samples}, m={units}), and slope^2 s_min^2(X) s_min^2(W) is 0 "
            f"(slope={layer.slope}, d={layer.inputs.shape[0]}, k={outputs})"
        )
    value = None if reason else raised(largest / smallest)
    estimate = _printed_estimate(layer.slope, data, outer, extreme_singular_values(layer.before.T))
    parts = certificate(data.part, outer.part, hidden.part)
    return LeakyReluBound(value, estimate, largest, smallest, not reason, reason, parts)


def _printed_estimate(slope: float, *parts: ExtremeSingularValues) -> float | None:
    """Eqs 25, 26 from the singular values of X, W and V X; a value below its error counts as 0."""
    data, outer, linear = (part.largest**2 for part in parts)
    least = [part.smallest**2 if part.below > 0 else 0.0 for part in parts]
    below = slope**2 * (least[0] * least[1] + least[2])
    return (data * outer + linear) / below if below > 0 else None


@dataclass(frozen=True, repr=False)
class Sides(Result):
    """lower <= kappa <= upper; None for a side that the theorem does not give.

    >>> found = gnjax.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> found.lower <= 5 / 3 <= found.upper  # kappa of the sum
    True
    """

    lower: float
    upper: float | None
    certificate: Certificate


def weyl(a: ArrayLike, b: ArrayLike) -> Sides:
    """Eq 12: kappa(A + B) from the extreme eigenvalues of symmetric A and B, A + B >= 0.

    Weyl: lambda_max(A + B) <= lambda_max(A) + lambda_max(B), and at least
    lambda_max(A) + lambda_min(B); dual Weyl: lambda_min(A + B) >= lambda_min(A) + lambda_min(B),
    and at most lambda_min(A) + lambda_max(B); and with A and B exchanged. Eigenvalues are moved
    outwards by their error first, so that ``upper`` is None unless A + B is proved non-singular by
    this theorem.

    >>> found = gnjax.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> round(found.lower, 9), round(found.upper, 9)
    (1.666666667, 1.666666667)
    """
    first, second = (_symmetric_eigenvalues(m) for m in (a, b))
    if first.values.shape != second.values.shape:
        sizes = len(first.values), len(second.values)
        msg = f"A and B must have the same size, got {sizes[0]} and {sizes[1]}"
        raise ValueError(msg)
    (a_low, a_top), (b_low, b_top) = first.largest, second.largest
    (a_least, a_small), (b_least, b_small) = first.smallest, second.smallest
    top = max(below(a_low + b_least), below(a_least + b_low))
    bottom = min(above(a_small + b_top), above(a_top + b_small))
    least, most = below(a_least + b_least), above(a_top + b_top)
    lower = max(1.0, below(top / bottom)) if bottom > 0 else 1.0
    upper = max(1.0, above(most / least)) if least > 0 and math.isfinite(most) else None
    part = Error(raised(first.error + second.error), reason="rounding of the eigenvalues")
    return Sides(lower, upper, certificate(part))


def _symmetric_eigenvalues(matrix: ArrayLike) -> Eigenvalues:
    check_matrix("A and B", matrix)
    host = np.asarray(matrix, np.float64)
    if host.shape[0] != host.shape[1] or np.abs(host - host.T).max() > 1e-8 * np.abs(host).max():
        msg = f"A and B must be symmetric matrices, got shape {host.shape}"
        raise ValueError(msg)
    if (host == host.T).all():
        return eigenvalues(host)
    found = eigenvalues(host / 2 + host.T / 2)
    rounding = unit_roundoff(host.dtype) * frobenius_norm(host)
    return Eigenvalues(found.values, raised(found.error + rounding))


@dataclass(frozen=True, repr=False)
class FunctionalHessianBound(Result):
    """Eq 18, with the pseudo-condition number that it bounds.

    >>> w, v, z = np.eye(2), np.diag([3.0, 2.0]), np.eye(2)
    >>> found = gnjax.bounds.functional_hessian(w, v, z, np.eye(2))
    >>> round(found.kappa, 9), found.kappa <= found.value
    (2.0, True)
    """

    value: float | None
    kappa: float
    applicable: bool
    reason: str
    certificate: Certificate


def functional_hessian(
    w: ArrayLike, v: ArrayLike, z: ArrayLike, covariance: ArrayLike
) -> FunctionalHessianBound:
    """Eqs 17, 18: kappa(H_F) <= kappa(W V - Z) kappa(Sigma) for F(x) = W V x and teacher Z.

    The non-zero eigenvalues of H_F, which is [[0, Omega], [Omega^T, 0]] for each hidden unit,
    are plus and minus the singular values of Omega = (W V - Z) Sigma. H_F is singular unless
    k = d, so kappa is the pseudo-condition number sigma_max(Omega) / sigma_r(Omega). With
    R = W V - Z and a non-singular Sigma, |Sigma R^T y| >= sigma_min(Sigma) |R^T y| for y in the
    column space of R, so sigma_r(R Sigma) >= sigma_r(R) sigma_min(Sigma) and the bound holds. For
    a singular Sigma it can fail: R = diag(1, 1, 0) and the projector on (1, 0, 0) and (0, e, 1)
    have pseudo-condition number 1 both, their product about 1 / e.

    r counts the singular values of R above their rounding. Unless that is all of them, r was read
    off, and the certificate says so.

    >>> w, v, z = np.eye(2), np.diag([3.0, 2.0]), np.eye(2)
    >>> found = gnjax.bounds.functional_hessian(w, v, z, covariance=np.diag([1.0, 3.0]))
    >>> round(found.kappa, 9), round(found.value, 9)
    (1.5, 6.0)
    """
    for name, given in (("W", w), ("V", v), ("Z", z)):
        check_matrix(name, given)
    outer, inner, teacher = (np.asarray(given, np.float64) for given in (w, v, z))
    if outer.shape[1] != inner.shape[0] or teacher.shape != (outer.shape[0], inner.shape[1]):
        msg = (
            f"W {outer.shape}, V {inner.shape} and Z {teacher.shape} must be (k, m), (m, d) and "
            "(k, d)"
        )
        raise ValueError(msg)
    sigma = covariance_condition(covariance, inner.shape[1])
    residual = outer @ inner - teacher
    values, error, part = _residual_values(outer, inner, teacher, residual)
    kept = values[values > error]
    omega = singular_values(residual @ np.asarray(covariance, np.float64))
    rank = _count(omega) if sigma.singular else len(kept)
    kappa = float(omega[0] / omega[rank - 1]) if rank and omega[rank - 1] > 0 else math.nan
    parts = certificate(part, sigma.part)
    reason = "Sigma is singular, where Eq 18 can fail" if sigma.singular else ""
    if not kept.size:
        reason = "W V = Z, exactly or to working precision: the functional Hessian is zero"
    if reason:
        return FunctionalHessianBound(None, kappa, False, reason, parts)
    ratio = raised((kept[0] + error) / lowered(kept[-1] - error))
    return FunctionalHessianBound(raised(ratio * sigma.value), kappa, True, "", parts)


def _residual_values(
    outer: np.ndarray, inner: np.ndarray, teacher: np.ndarray, residual: np.ndarray
) -> tuple[np.ndarray, float, Error]:
    """The singular values of W V - Z, how far they can be from exact, and what that rests on."""
    values = singular_values(residual)
    formed = gamma(outer.shape[1] + 1, residual.dtype) * (
        frobenius_norm(outer) * frobenius_norm(inner) + frobenius_norm(teacher)
    )
    error = raised(formed + spectral_error(max(residual.shape), residual.dtype) * values[0])
    reason = "rounding of LAPACK's singular values"
    if not (values > error).all():
        reason = "the rank of W V - Z was read off its rounding"
    return values, error, Error(error, MEASURED, reason=reason)


def _count(values: np.ndarray) -> int:
    return int((values > len(values) * np.finfo(float).eps * values[0]).sum())
