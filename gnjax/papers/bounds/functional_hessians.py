"""The bound on the pseudo-condition number of the functional Hessian (Eqs 17 and 18)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate
from gnjax.numerics.outward import frobenius_norm, lowered, raised
from gnjax.numerics.rounding import gamma, singular_errors, singular_values
from gnjax.numerics.validation import check_matrix
from gnjax.papers.bounds.enclosures import covariance_condition


@dataclass(frozen=True, repr=False)
class FunctionalHessianBound(Result):
    """The bound ``value`` of Eq 18, and the pseudo-condition number ``kappa`` that it bounds.

    ``value`` is None where the bound does not apply, and ``reason`` then says why.

    >>> w, v, z = np.eye(2), np.diag([3.0, 2.0]), np.eye(2)
    >>> bound = gnjax.papers.bounds.functional_hessian(w, v, z, np.eye(2))
    >>> round(bound.kappa, 9), bound.kappa <= bound.value
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

    H_F is the functional Hessian, the part of the Hessian of the squared error that comes from
    second derivatives of F. W is (k, m), V (m, d), Z (k, d) and Sigma, the covariance of x, (d, d).
    With Omega = (W V - Z) Sigma, H_F has one block [[0, Omega], [Omega^T, 0]] for each hidden unit.
    Its non-zero eigenvalues are plus and minus the singular values of Omega. H_F is singular unless
    k = d, so kappa is the pseudo-condition number sigma_max(Omega) / sigma_r(Omega).

    Proof for a non-singular Sigma: with R = W V - Z, |Sigma R^T y| >= sigma_min(Sigma) |R^T y| for
    y in the column space of R, so sigma_r(R Sigma) >= sigma_r(R) sigma_min(Sigma). For a singular
    Sigma the bound can fail: R = diag(1, 1, 0) and the projector onto the span of (1, 0, 0) and
    (0, e, 1) both have the pseudo-condition number 1, and their product has about 1 / e.

    r is the number of singular values of R above their rounding errors. If that is not all of them,
    the rank is no proved number, and the certificate says so.

    >>> w, v, z = np.eye(2), np.diag([3.0, 2.0]), np.eye(2)
    >>> bound = gnjax.papers.bounds.functional_hessian(w, v, z, covariance=np.diag([1.0, 3.0]))
    >>> round(bound.kappa, 9), round(bound.value, 9)
    (1.5, 6.0)
    """
    for name, matrix in (("W", w), ("V", v), ("Z", z)):
        check_matrix(name, matrix)
    outer, inner, teacher = (np.asarray(matrix, np.float64) for matrix in (w, v, z))
    if outer.shape[1] != inner.shape[0] or teacher.shape != (outer.shape[0], inner.shape[1]):
        msg = (
            f"W {outer.shape}, V {inner.shape} and Z {teacher.shape} must be (k, m), (m, d) and "
            "(k, d)"
        )
        raise ValueError(msg)
    sigma = covariance_condition(covariance, inner.shape[1])
    residual = outer @ inner - teacher
    values, error, part = _residual_values(outer, inner, teacher, residual)
    nonzero = values[values > error]
    omega = singular_values(residual @ np.asarray(covariance, np.float64))
    above_rounding = omega > len(omega) * np.finfo(float).eps * omega[0]
    rank = int(above_rounding.sum()) if sigma.singular else len(nonzero)
    kappa = float(omega[0] / omega[rank - 1]) if rank and omega[rank - 1] > 0 else math.nan
    parts = certificate(part, sigma.part)
    reason = "Sigma is singular, where Eq 18 can fail" if sigma.singular else ""
    if not nonzero.size:
        reason = "W V = Z, exactly or to working precision: the functional Hessian is zero"
    if reason:
        return FunctionalHessianBound(None, kappa, False, reason, parts)
    ratio = raised((nonzero[0] + error) / lowered(nonzero[-1] - error))
    return FunctionalHessianBound(raised(ratio * sigma.value), kappa, True, "", parts)


def _residual_values(
    outer: np.ndarray, inner: np.ndarray, teacher: np.ndarray, residual: np.ndarray
) -> tuple[np.ndarray, float, Error]:
    """The singular values of ``residual`` = W V - Z, their error, and the same with its reason.

    ``outer``, ``inner`` and ``teacher`` are W, V and Z. The error is the rounding of the product
    and the difference, gamma (||W||_F ||V||_F + ||Z||_F), and that of LAPACK.
    """
    values = singular_values(residual)
    product_rounding = gamma(outer.shape[1] + 1, residual.dtype) * (
        frobenius_norm(outer) * frobenius_norm(inner) + frobenius_norm(teacher)
    )
    error = raised(
        product_rounding + singular_errors(values, max(residual.shape), residual.dtype)[0]
    )
    reason = "rounding of LAPACK's singular values"
    if not (values > error).all():
        reason = "the rank of W V - Z is the number of singular values above rounding"
    return values, error, Error(error, MEASURED, reason=reason)
