"""Bounds at Gaussian initial weights (Lemmas 6 and 7, Eqs 19 to 22 of paper A)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import PROBABLE, Certificate, Error, certificate
from gnjax.numerics.outward import above, below, lowered, raised
from gnjax.numerics.scale import exponent_of
from gnjax.numerics.validation import check_finite_number

_LARGEST = 1e100  # of a size or of t, whose squares are finite


@dataclass(frozen=True, repr=False)
class InitBound(Result):
    """A bound that holds with probability at least ``probability`` over the initial weights.

    >>> bound = gnjax.papers.bounds.gaussian_init(10, 5, 4000, 1.0, 1.0, cov_cond=1.0, t=5.0)
    >>> bound.applicable, bound.probability > 0.99
    (True, True)
    """

    value: float | None
    probability: float
    applicable: bool
    reason: str
    certificate: Certificate


def gaussian_singular_values(rows: int, columns: int, t: float) -> tuple[float, float, float]:
    """Lemma 6, Eq 19: an interval that holds the singular values of a Gaussian (N, n) matrix.

    N = ``rows`` is at least n = ``columns``, and the entries are independent standard normal. With
    probability at least 1 - 2 exp(-t^2 / 2) all n singular values lie between
    sqrt N - sqrt n - t and sqrt N + sqrt n + t. A negative lower end says nothing and counts as 0.

    Returns:
      The lower and the upper end, rounded outwards, and the probability, rounded down.

    >>> low, high, probability = gnjax.papers.bounds.gaussian_singular_values(400, 100, t=3.0)
    >>> round(low, 9), round(high, 9), probability > 0.97
    (7.0, 33.0, True)
    """
    if min(rows, columns) < 1:
        msg = f"a matrix needs rows and columns, got {rows} x {columns}"
        raise ValueError(msg)
    t = _check_t(t)
    # A square root is correctly rounded: the next number is beyond the exact one.
    wide, narrow = above(math.sqrt(rows)), below(math.sqrt(rows))
    root = above(math.sqrt(columns))
    low = max(below(below(narrow - root) - t), 0.0)
    return low, raised(wide + root + t), max(0.0, below(1 - raised(2 * math.exp(-(t**2) / 2))))


def gaussian_init(
    d: int, k: int, m: int, var_v: float, var_w: float, cov_cond: float, t: float
) -> InitBound:
    """Lemma 7: kappa(G) for F(x) = W V x with Gaussian V (m, d) and W (k, m), m >= max(d, k).

    G is the Gauss-Newton matrix, ``var_v`` and ``var_w`` are the variances of the entries of V and
    W, and ``cov_cond`` is kappa(Sigma) for the covariance Sigma of x. With probability at least
    1 - 8 exp(-t^2 / 2), kappa(G) is at most

        kappa(Sigma) (var_w (sqrt m + sqrt k + t)^2 + var_v (sqrt m + sqrt d + t)^2)
        / (var_w (sqrt m - sqrt k - t)^2 + var_v (sqrt m - sqrt d - t)^2).

    The lemma squares both differences, which bound a smallest singular value from below only while
    they are positive. A negative difference counts as 0 here.

    >>> bound = gnjax.papers.bounds.gaussian_init(10, 5, 4000, 1.0, 1.0, cov_cond=1.0, t=5.0)
    >>> 1 < bound.value < 3
    True
    >>> gnjax.papers.bounds.gaussian_init(10, 5, 20, 1.0, 1.0, cov_cond=1.0, t=5.0).value is None
    True
    """
    var_v, var_w, cov_cond = _checked(d, k, m, var_v, var_w, cov_cond)
    t = _check_t(t)
    intervals = [gaussian_singular_values(m, n, t) for n in (k, d)]  # of W, then of V
    bottoms, tops = ([interval[side] ** 2 for interval in intervals] for side in (0, 1))
    most = raised(var_w * tops[0] + var_v * tops[1])
    least = lowered(var_w * bottoms[0] + var_v * bottoms[1])
    failure = min(1.0, raised(8 * math.exp(-(t**2) / 2)))
    reason = ""
    if m < max(d, k):
        reason = f"Lemma 7 needs m >= max(d, k), got m={m} < {max(d, k)}"
    elif least == 0:
        reason = f"t={t} is too large for m={m}: both lower bounds on singular values vanish"
    value = None if reason else max(cov_cond, raised(cov_cond * most / least))
    part = Error(0.0, PROBABLE, failure, "Lemma 7, over the Gaussian weights")
    return InitBound(value, max(0.0, below(1 - failure)), not reason, reason, certificate(part))


def asymptotic(d: int, k: int, m: int, var_v: float, var_w: float, cov_cond: float) -> InitBound:
    """Eq 22: the limit of the bound on kappa(G) for F(x) = W V x as d, k, m grow in proportion.

    V (m, d) and W (k, m) are Gaussian with the variances ``var_v`` and ``var_w``, and ``cov_cond``
    is kappa(Sigma). Almost surely, the limit of the bound of Lemma 1 is

        kappa(Sigma) (var_w (1 + sqrt(k/m))^2 + var_v (1 + sqrt(d/m))^2)
        / (var_w (1 - sqrt(k/m))^2 + var_v (1 - sqrt(d/m))^2).

    The value is rounded up, so that it is not below the limit. It proves nothing about a network of
    finite width.

    >>> round(gnjax.papers.bounds.asymptotic(100, 100, 10_000, 1.0, 1.0, cov_cond=1.0).value, 6)
    1.493827
    """
    var_v, var_w, cov_cond = _checked(d, k, m, var_v, var_w, cov_cond)
    ratios = [above(math.sqrt(above(n / m))) for n in (k, d)]
    bottoms = [
        0.0 if n == m else max(below(1 - r), 0.0) ** 2 for n, r in zip((k, d), ratios, strict=True)
    ]
    most = raised(var_w * (1 + ratios[0]) ** 2 + var_v * (1 + ratios[1]) ** 2)
    least = lowered(var_w * bottoms[0] + var_v * bottoms[1])
    reason = ""
    if m < max(d, k):
        reason = f"Eq 22 needs m >= max(d, k), got m={m} < {max(d, k)}"
    elif least == 0:
        reason = "d = k = m: the limit of the smallest singular values is 0"
    value = None if reason else max(cov_cond, raised(cov_cond * most / least))
    part = Error(0.0, reason="Eq 22: the limit of wide networks, no bound on a finite one")
    return InitBound(value, 1.0, not reason, reason, certificate(part))


def wide_init(d: int, m: int, cov_cond: float, t: float) -> float:
    """Eq 21: what the bound of Lemma 7 comes near to with Kaiming's variances for m >> d >> k.

    The network is F(x) = W V x with V (m, d) of the variance 1/d and W (k, m) of 1/m. Eq 20 is
    Lemma 7 at these variances, ``gaussian_init(d, k, m, 1 / d, 1 / m, cov_cond, t)``. The terms of
    W, with d / m times the weight of those of V, are left out, which leaves
    kappa(Sigma) (sqrt m + sqrt d + t)^2 / (sqrt m - sqrt d - t)^2: an approximation, no bound. It
    goes to kappa(Sigma) as m grows.

    >>> round(gnjax.papers.bounds.wide_init(100, 10_000, cov_cond=2.0, t=0.0), 6)
    2.987654
    """
    _, _, cov_cond = _checked(d, 1, m, 1.0, 1.0, cov_cond)
    most, least = (math.sqrt(m) + sign * (math.sqrt(d) + _check_t(t)) for sign in (1, -1))
    return cov_cond * (most / least) ** 2 if least > 0 else math.inf


def _check_t(t: float) -> float:
    if not 0 <= check_finite_number("t", t) <= _LARGEST:
        msg = f"t must not be negative, and at most {_LARGEST:g}, got {t}"
        raise ValueError(msg)
    return float(t)


def _checked(
    d: int, k: int, m: int, var_v: float, var_w: float, cov_cond: float
) -> tuple[float, float, float]:
    """The variances of the weights and kappa(Sigma) as floats, or why an argument is refused.

    Both variances are divided by one power of two near the larger, which no bound depends on.
    """
    if min(d, k, m) < 1 or max(d, k, m) > _LARGEST:
        msg = f"d, k and m must be at least 1 and at most {_LARGEST:g}, got d={d}, k={k}, m={m}"
        raise ValueError(msg)
    for name, value in (("var_v", var_v), ("var_w", var_w)):
        if check_finite_number(name, value) < 0:
            msg = f"{name} is a variance and must not be negative, got {value}"
            raise ValueError(msg)
    if check_finite_number("cov_cond", cov_cond) < 1:
        msg = f"cov_cond is a condition number and must be at least 1, got {cov_cond}"
        raise ValueError(msg)
    exponent = exponent_of(float(max(var_v, var_w))) or 0
    scaled_v, scaled_w = (math.ldexp(float(value), -exponent) for value in (var_v, var_w))
    return scaled_v, scaled_w, float(cov_cond)
