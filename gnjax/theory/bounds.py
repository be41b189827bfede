"""Bounds on condition numbers, one function a theorem of paper A."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from gnjax.numerics.rounding import singular_values, spectral_error
from gnjax.numerics.validation import check_covariance, check_finite_number, check_matrix
from gnjax.operators.base import KroneckerFactors, SumOfKroneckers
from gnjax.operators.closed_form.leaky_relu import leaky_layer
from gnjax.operators.closed_form.linear import linear_factors

_GRAM_FROM = 200
_GRAM_CONDITION = 1e6


@dataclass(frozen=True)
class LinearBound:
    """Lemma 2: kappa(G) <= kappa(Sigma) sum_l gamma_l t_l <= kappa(Sigma) max_l t_l.

    Attributes:
      convex, maximum: both bounds, with the factor kappa(Sigma); None where the lemma is silent.
      terms: t_l = kappa^2(W^{L:l+1}) kappa^2(W^{1:l-1}), (L,).
      weights: gamma_l = alpha_l / sum alpha with alpha_l = sigma_min^2(W^{L:l+1})
        sigma_min^2(W^{1:l-1}), (L,).
      covariance_condition: kappa(Sigma) on its range.
      left_largest, left_smallest: singular values of W^{L:l+1}; right_*: of W^{1:l-1}.
      applicable: whether every partial product has full rank, proved against rounding.
      reason: why not, or "".
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


def linear(
    weights: Sequence[ArrayLike], covariance: ArrayLike | None = None, skip: float = 0.0
) -> LinearBound:
    """Lemma 1 (two layers), Lemma 2 (any depth) and Eq 7 (W_l + beta I in place of W_l).

    With gamma_l inside, the convex bound is sum_l max_l / sum_l min_l for max_l and min_l the
    extreme eigenvalues of A_l (x) B_l, which is how it is computed. Each singular value is moved
    outwards by its rounding error, so that the bound holds in floating point. Sigma may be
    singular: on its range, Sigma^{1/2} B Sigma^{1/2} >= lambda_min(B) Sigma.
    """
    factors = linear_factors(weights, None, skip)
    return _from_factors(factors, _covariance_condition(covariance, factors.rights[0].shape[0]))


def of_operator(op: SumOfKroneckers) -> LinearBound:
    """``linear`` for the operator of a network on whitened data, from the products it holds."""
    if op.factors is None or not op.factors.whitened:
        msg = "this needs the operator of a linear network on whitened data; use bounds.linear"
        raise ValueError(msg)
    return _from_factors(op.factors, 1.0)


def _from_factors(factors: KroneckerFactors, covariance_condition: float) -> LinearBound:
    sides = [_extremes(f, e) for f, e in _sides(factors)]
    depth = len(factors.lefts)
    left_largest, left_smallest, left_errors = np.array(sides[:depth]).T
    right_largest, right_smallest, right_errors = np.array(sides[depth:]).T
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = ((left_largest / left_smallest) * (right_largest / right_smallest)) ** 2
    logs = 2 * (_log(left_smallest) + _log(right_smallest))
    reason = _why_silent(left_smallest, left_errors, right_smallest, right_errors)
    peak = logs.max()
    shares = np.exp(logs - peak) if np.isfinite(peak) else np.zeros(depth)
    gamma = shares / shares.sum() if shares.any() else np.full(depth, np.nan)
    convex = maximum = None
    if not reason:
        top = ((left_largest + left_errors) * (right_largest + right_errors)) ** 2
        bottom = ((left_smallest - left_errors) * (right_smallest - right_errors)) ** 2
        convex = float(covariance_condition * top.sum() / bottom.sum())
        maximum = max(convex, float(covariance_condition * (top / bottom).max()))
    return LinearBound(
        convex,
        maximum,
        terms,
        gamma,
        covariance_condition,
        left_largest,
        left_smallest,
        right_largest,
        right_smallest,
        applicable=not reason,
        reason=reason,
    )


def _sides(factors: KroneckerFactors) -> list[tuple[jax.Array, float]]:
    """The partial products, left ones first, with the bound on the rounding of each."""
    errors = [*np.asarray(factors.left_errors), *np.asarray(factors.right_errors)]
    products = (*factors.lefts, *factors.rights)
    return [(p, float(e)) for p, e in zip(products, errors, strict=True)]


def _extremes(product: jax.Array, formed: float) -> tuple[float, float, float]:
    """The largest and smallest singular value on the side of k or d, and their error.

    A factor with fewer columns than rows has smallest value 0. A large well-conditioned product
    goes through its Gram matrix, whose smallest eigenvalue then still has nine digits.
    """
    rows, columns = product.shape
    host = np.asarray(product)
    if rows > _GRAM_FROM and columns >= rows:
        eigenvalues = scipy.linalg.eigvalsh(host @ host.T, check_finite=False)
        least, top = float(eigenvalues[0]), float(eigenvalues[-1])
        if least * _GRAM_CONDITION > top:
            moved = (spectral_error(rows, product.dtype) + columns * 1.2e-16) * top
            return math.sqrt(top), math.sqrt(least), moved / math.sqrt(least) + formed
    values = singular_values(host)
    error = spectral_error(max(rows, columns), product.dtype) * values[0] + formed
    least = float(values[-1]) if columns >= rows else 0.0
    return float(values[0]), least, float(error)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _why_silent(
    left: np.ndarray, left_errors: np.ndarray, right: np.ndarray, right_errors: np.ndarray
) -> str:
    for name, smallest, errors in (
        ("W^{L:l+1}", left, left_errors),
        ("W^{1:l-1}", right, right_errors),
    ):
        layers = [str(layer) for layer in np.flatnonzero(smallest <= errors) + 1]
        if layers:
            return (
                f"{name} is rank deficient, exactly or to working precision, at l = "
                f"{', '.join(layers)}; Lemma 2 needs hidden widths above max(d, k) and "
                "sigma_min > 0"
            )
    return ""


def _covariance_condition(covariance: ArrayLike | None, inputs: int) -> float:
    """kappa(Sigma) on its range, moved up by its rounding."""
    if covariance is None:
        return 1.0
    sigma = check_covariance(covariance, inputs)
    values = np.linalg.eigvalsh(np.asarray(sigma))
    eps = float(jnp.finfo(sigma.dtype).eps)
    kept = values[values > max(8, inputs) * eps * values[-1]]
    if kept.size == 0:
        return math.nan
    error = spectral_error(inputs, sigma.dtype) * values[-1]
    return float((kept[-1] + error) / (kept[0] - error))


@dataclass(frozen=True)
class LeakyReluBound:
    """Lemma 4: kappa(G) <= value = largest / smallest for G of Eq 10.

    Attributes:
      value: Eq 11; None where the lemma is silent.
      estimate: the paper's second bound, through Eqs 25 and 26, which kappa can exceed; None where
        its denominator is 0.
      largest, smallest: what Eq 11 puts above lambda_max(G) and below lambda_min(G).
      applicable: whether ``smallest`` is positive, proved against rounding.
      reason: why not, or "".
    """

    value: float | None
    estimate: float | None
    largest: float
    smallest: float
    applicable: bool
    reason: str


def leaky_relu(V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float) -> LeakyReluBound:
    """Eq 11, for F(x) = W sigma(V x) with V (m, d), W (k, m), X (d, n), one column a sample.

    (s_max^2(X) s_max^2(W) + lambda_max(Gamma))
    / (slope^2 s_min^2(X) s_min^2(W) + lambda_min(Gamma)), Gamma = sigma(V X)^T sigma(V X), with
    s_min(X) on the side of the samples and s_min(W) on that of the outputs: 0 where n > d or
    k > m. Each singular value is moved outwards by its rounding error.

    ``estimate`` has X^T V^T V X in place of Gamma above, and slope^2 times it below. Eqs 25 and 26
    would need one Lambda for all units: with slope 1/2, X = I and V = [[-2, 1/2], [1, -1]], Gamma
    is singular and V is not; with slope 0, X = I and V = [[1, 1], [1, -1]], lambda_max(Gamma) =
    2.618 exceeds lambda_max(V^T V) = 2.
    """
    layer = leaky_layer(V, W, X, slope)
    data, outer = _extremes(layer.inputs.T, 0.0), _extremes(layer.outer, 0.0)
    hidden = _extremes(layer.hidden.T, layer.hidden_error)
    largest = _above(data) * _above(outer) + _above(hidden)
    smallest = layer.slope**2 * _below(data) * _below(outer) + _below(hidden)
    reason = ""
    if smallest == 0:
        (units, samples), outputs = layer.hidden.shape, layer.outer.shape[0]
        reason = (
            "Lemma 4 bounds lambda_min from below by 0: Gamma is singular, exactly or to working "
            f"precision (n={samples}, m={units}), and slope^2 s_min^2(X) s_min^2(W) is 0 "
            f"(slope={layer.slope}, d={layer.inputs.shape[0]}, k={outputs})"
        )
    value = None if reason else float(largest / smallest)
    estimate = _second(layer.slope, data, outer, _extremes(layer.before.T, 0.0))
    return LeakyReluBound(value, estimate, largest, smallest, not reason, reason)


def _second(slope: float, *parts: tuple[float, float, float]) -> float | None:
    """Eqs 25, 26 from the extremes of X, W and V X; a value below its error counts as 0."""
    data, outer, linear = (largest**2 for largest, _, _ in parts)
    least = [smallest**2 if smallest > error else 0.0 for _, smallest, error in parts]
    below = slope**2 * (least[0] * least[1] + least[2])
    return (data * outer + linear) / below if below > 0 else None


def _above(extremes: tuple[float, float, float]) -> float:
    """The square of the largest singular value, moved up by its error."""
    return (extremes[0] + extremes[2]) ** 2


def _below(extremes: tuple[float, float, float]) -> float:
    """The square of the smallest singular value, moved down by its error but not below 0."""
    return max(extremes[1] - extremes[2], 0.0) ** 2


@dataclass(frozen=True)
class Sides:
    """lower <= kappa <= upper; None for a side that the theorem does not give."""

    lower: float
    upper: float | None


def weyl(a: ArrayLike, b: ArrayLike) -> Sides:
    """Eq 12: kappa(A + B) from the extreme eigenvalues of symmetric A and B, A + B >= 0.

    Weyl: lambda_max(A + B) <= lambda_max(A) + lambda_max(B), and at least
    lambda_max(A) + lambda_min(B); dual Weyl: lambda_min(A + B) >= lambda_min(A) + lambda_min(B),
    and at most lambda_min(A) + lambda_max(B); and with A and B exchanged.
    """
    first, second = (np.linalg.eigvalsh(_symmetric(m)) for m in (a, b))
    if first.shape != second.shape:
        msg = f"A and B must have the same size, got {len(first)} and {len(second)}"
        raise ValueError(msg)
    top = max(first[-1] + second[0], first[0] + second[-1])
    bottom = min(first[0] + second[-1], first[-1] + second[0])
    least = first[0] + second[0]
    lower = max(1.0, top / bottom) if bottom > 0 else 1.0
    return Sides(float(lower), float((first[-1] + second[-1]) / least) if least > 0 else None)


def _symmetric(matrix: ArrayLike) -> np.ndarray:
    host = np.asarray(check_matrix("A and B", matrix))
    if host.shape[0] != host.shape[1] or not np.allclose(host, host.T, rtol=1e-8, atol=0):
        msg = f"A and B must be symmetric matrices, got shape {host.shape}"
        raise ValueError(msg)
    return host


@dataclass(frozen=True)
class InitBound:
    """A bound that holds with probability at least ``probability`` over the initial weights."""

    value: float | None
    probability: float
    applicable: bool
    reason: str


def gaussian_init(
    d: int, k: int, m: int, var_v: float, var_w: float, cov_cond: float, t: float
) -> InitBound:
    """Lemma 7: kappa(G) for F(x) = W V x with Gaussian V (m, d) and W (k, m), m >= max(d, k).

    kappa(Sigma) (var_w (sqrt m + sqrt k + t)^2 + var_v (sqrt m + sqrt d + t)^2)
    / (var_w (sqrt m - sqrt k - t)^2 + var_v (sqrt m - sqrt d - t)^2), with probability at least
    1 - 8 exp(-t^2 / 2). The lemma squares sqrt m - sqrt d - t, which bounds sigma_min from below
    only while it is positive: a negative difference counts as 0 here.
    """
    _check_sizes(d, k, m)
    _check_scales(var_v, var_w, cov_cond)
    root = math.sqrt(m)
    t = check_finite_number("t", t)
    if t < 0:
        msg = f"t must not be negative, got {t}"
        raise ValueError(msg)
    above = var_w * (root + math.sqrt(k) + t) ** 2 + var_v * (root + math.sqrt(d) + t) ** 2
    below = var_w * max(root - math.sqrt(k) - t, 0.0) ** 2
    below += var_v * max(root - math.sqrt(d) - t, 0.0) ** 2
    probability = max(0.0, 1 - 8 * math.exp(-(t**2) / 2))
    reason = ""
    if m < max(d, k):
        reason = f"Lemma 7 needs m >= max(d, k), got m={m} < {max(d, k)}"
    elif below == 0:
        reason = f"t={t} is too large for m={m}: both lower bounds on singular values vanish"
    value = None if reason else cov_cond * above / below
    return InitBound(value, probability, not reason, reason)


def asymptotic(d: int, k: int, m: int, var_v: float, var_w: float, cov_cond: float) -> InitBound:
    """Eq 22: the limit of Lemma 1 for Gaussian weights as d, k, m grow in proportion.

    kappa(Sigma) (var_w (1 + sqrt(k/m))^2 + var_v (1 + sqrt(d/m))^2)
    / (var_w (1 - sqrt(k/m))^2 + var_v (1 - sqrt(d/m))^2), almost surely in the limit.
    """
    _check_sizes(d, k, m)
    _check_scales(var_v, var_w, cov_cond)
    outer, inner = math.sqrt(k / m), math.sqrt(d / m)
    above = var_w * (1 + outer) ** 2 + var_v * (1 + inner) ** 2
    below = var_w * (1 - outer) ** 2 + var_v * (1 - inner) ** 2
    reason = ""
    if m < max(d, k):
        reason = f"Eq 22 needs m >= max(d, k), got m={m} < {max(d, k)}"
    elif below == 0:
        reason = "d = k = m: the limit of the smallest singular values is 0"
    return InitBound(None if reason else cov_cond * above / below, 1.0, not reason, reason)


@dataclass(frozen=True)
class FunctionalHessianBound:
    """Eq 18, with the pseudo-condition number that it bounds."""

    value: float | None
    kappa: float
    applicable: bool
    reason: str


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
    """
    outer, inner, teacher = (
        np.asarray(check_matrix(name, x)) for name, x in (("W", w), ("V", v), ("Z", z))
    )
    if outer.shape[1] != inner.shape[0] or teacher.shape != (outer.shape[0], inner.shape[1]):
        msg = (
            f"W {outer.shape}, V {inner.shape} and Z {teacher.shape} must be (k, m), (m, d) and "
            "(k, d)"
        )
        raise ValueError(msg)
    sigma = np.asarray(check_covariance(covariance, inner.shape[1]))
    residual = outer @ inner - teacher
    kappa = _pseudo_condition(singular_values(residual @ sigma))
    cov = singular_values(sigma)
    singular = cov[-1] <= len(cov) * np.finfo(float).eps * cov[0]
    reason = "Sigma is singular, where Eq 18 can fail" if singular else ""
    if not residual.any():
        reason = "W V = Z: the functional Hessian is zero"
    value = None if reason else _pseudo_condition(singular_values(residual)) * cov[0] / cov[-1]
    return FunctionalHessianBound(value, kappa, not reason, reason)


def _pseudo_condition(values: np.ndarray) -> float:
    kept = values[values > len(values) * np.finfo(float).eps * values[0]]
    return float(kept[0] / kept[-1]) if kept.size else math.nan


def _check_sizes(d: int, k: int, m: int) -> None:
    if min(d, k, m) < 1:
        msg = f"d, k and m must be at least 1, got d={d}, k={k}, m={m}"
        raise ValueError(msg)


def _check_scales(var_v: float, var_w: float, cov_cond: float) -> None:
    for name, value in (("var_v", var_v), ("var_w", var_w)):
        if check_finite_number(name, value) < 0:
            msg = f"{name} is a variance and must not be negative, got {value}"
            raise ValueError(msg)
    if check_finite_number("cov_cond", cov_cond) < 1:
        msg = f"cov_cond is a condition number and must be at least 1, got {cov_cond}"
        raise ValueError(msg)
