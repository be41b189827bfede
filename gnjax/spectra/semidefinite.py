"""Positive semidefinite matrices: the refusal of others, and bounds on the smallest eigenvalue.

A Cholesky factorisation that succeeds proves that a stored matrix is positive definite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from gnjax.numerics.certificate import Error
from gnjax.numerics.limits import Limits
from gnjax.numerics.rounding import gamma
from gnjax.operators.facts import on_range
from gnjax.operators.protocol import Operator
from gnjax.spectra.whole import host_matrix

_INDEFINITE = 100.0  # an eigenvalue below -100 times its error is no rounding error
_SEED = 7919  # of the start of inverse iteration
_ITERATIONS = 6  # steps of inverse iteration


@dataclass(frozen=True)
class Enclosure:
    """An eigenvalue: the computed value, and bounds on the true one."""

    value: float
    low: float
    high: float

    def widened(self, error: float) -> Enclosure:
        """Bounds that also hold if the matrix has an error of ``error`` in the 2-norm."""
        return Enclosure(self.value, self.low - error, self.high + error)


def nonnegative(value: float, error: float) -> Enclosure:
    """An eigenvalue of a semidefinite matrix, with bounds that are not below zero."""
    return Enclosure(max(float(value), 0.0), max(float(value - error), 0.0), float(value + error))


def check_semidefinite(least: float, largest: float, error: float, *, answer: str) -> None:
    """Raise a ValueError if the least eigenvalue is too negative to be a rounding error.

    ``answer`` names in it what was asked for, such as "kappa".
    """
    if least < -_INDEFINITE * error:
        msg = (
            f"the operator is not positive semidefinite: its eigenvalues run from {least:.3g} to "
            f"{largest:.3g}, and {answer} is defined for Gauss-Newton matrices and kernels; "
            "gnjax.eigenvalues gives the spectrum of a Hessian"
        )
        raise ValueError(msg)


def matrix_on_range(op: Operator, limits: Limits) -> tuple[np.ndarray, Operator, Error]:
    """The matrix on the smallest space that structure proves to hold its range, and its error.

    It comes as a symmetric array in host memory and as an operator. The error is that of the array:
    the skew-symmetric part that was left out.
    """
    operator_on_range = on_range(op)
    matrix, asymmetry = host_matrix(operator_on_range, limits)
    return matrix, operator_on_range, asymmetry


def lower_factor(matrix: np.ndarray) -> np.ndarray | None:
    """L with L L^T = M, by Cholesky, on and below the diagonal; None without one."""
    try:
        # The transpose is the same matrix in the memory layout that LAPACK needs without a copy.
        return scipy.linalg.cho_factor(matrix.T, lower=True, check_finite=False)[0]
    except np.linalg.LinAlgError:
        return None


def least_eigenvalue(matrix: np.ndarray, guess: float, rtol: float) -> Enclosure | None:
    """Proved bounds on lambda_min(M) around a guess, or None where the guess is too high.

    From below: let s = guess - rtol |guess|, and A = fl(M - s I) the shifted matrix as computed. If
    a Cholesky factorisation of A succeeds, then lambda_min(M) > s - error, where the error is the
    sum of two. The computed factor L satisfies L L^T = A + E with |E| <= gamma_{n+1} |L| |L|^T
    (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 10.3), and || |L| |L|^T ||_2 is
    at most trace(L L^T), so that lambda_min(A) is at least
    -gamma_{n+1} / (1 - gamma_{n+1}) trace(A). And the subtraction rounds each diagonal entry once.

    From above: x^T M x / x^T x for the x that inverse iteration with L finds, with the rounding of
    the quotient. M is divided by a power of two near its largest entry, so that nothing under- or
    overflows.
    """
    unit = 2.0 ** np.floor(np.log2(np.abs(matrix).max()))  # powers of two divide without rounding
    matrix, guess = matrix / unit, guess / unit
    shift = guess - rtol * abs(guess)
    shifted_matrix = matrix.copy()
    shifted_matrix[np.diag_indices_from(matrix)] -= shift
    factor = lower_factor(shifted_matrix)
    if factor is None:
        return None
    size = len(matrix)
    gamma_n = gamma(size + 2, np.dtype(float))
    diagonal = np.abs(np.diagonal(shifted_matrix))
    # gamma / (1 - gamma) trace, with 1 + gamma for the rounding of the trace itself.
    rounding = gamma_n / (1 - gamma_n) * float(diagonal.sum()) * (1 + gamma_n)
    # That of the subtraction of s from the diagonal.
    rounding += float(np.finfo(float).eps) * float(diagonal.max() + abs(shift))
    x = np.random.default_rng(_SEED).standard_normal(size)
    for _ in range(_ITERATIONS):
        x = scipy.linalg.cho_solve((factor, True), x, check_finite=False)
        x /= np.linalg.norm(x)
    quotient = float(x @ (matrix @ x))
    # of M x, of x . (M x), and of the length of x, each at most gamma ||M||_F
    quotient_error = 3 * gamma(2 * size + 2, np.dtype(float)) * float(np.linalg.norm(matrix))
    upper = quotient + quotient_error
    low, high = _outwards(shift - rounding, unit, -1), _outwards(upper, unit, 1)
    return Enclosure(min(guess, upper) * unit, low, high)


def _outwards(bound: float, unit: float, way: int) -> float:
    """bound * unit, moved down (way -1) or up (way 1) where the product is not exact."""
    product = bound * unit
    return product if product / unit == bound else float(np.nextafter(product, way * np.inf))
