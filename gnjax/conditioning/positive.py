"""What a Cholesky factorisation that succeeds proves about a stored matrix."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gnjax.conditioning.ends import INDEFINITE, Enclosure, Problem
from gnjax.numerics.certificate import Error
from gnjax.numerics.rounding import gamma
from gnjax.operators.facts import on_range
from gnjax.operators.protocol import Operator
from gnjax.spectra.whole import host_matrix

_STREAM = 7919
_ITERATIONS = 6


def matrix_on_range(problem: Problem) -> tuple[np.ndarray, Operator, Error]:
    """The matrix on the largest range that structure allows, as an array and as an operator.

    The third value is the norm of the skew-symmetric part of the array, which was left out; where
    symmetry is a fact, it is the evidence for it.
    """
    small = on_range(problem.op)
    matrix, asymmetry = host_matrix(small, problem.limits)
    return matrix, small, asymmetry


def lower_factor(matrix: np.ndarray) -> np.ndarray | None:
    """The lower factor, or None where the factorisation meets a pivot that is not positive."""
    try:
        # The transpose is the same matrix in the memory layout that LAPACK needs without a copy.
        return scipy.linalg.cho_factor(matrix.T, lower=True, check_finite=False)[0]
    except np.linalg.LinAlgError:
        return None


def shifted_copy(matrix: np.ndarray, shift: float) -> np.ndarray:
    """A copy of M - s I."""
    copy = matrix.copy()
    copy[np.diag_indices_from(copy)] -= shift
    return copy


def is_semidefinite(matrix: np.ndarray, error: float) -> bool:
    """Whether no eigenvalue is too negative to be a rounding error of a matrix known to ``error``.

    It says what :func:`gnjax.conditioning.ends.check_semidefinite` says of computed eigenvalues.
    """
    return lower_factor(shifted_copy(matrix, -INDEFINITE * error)) is not None


def least_eigenvalue(matrix: np.ndarray, guess: float, rtol: float) -> Enclosure | None:
    """Proved bounds on lambda_min(M) around a guess, or None where the guess is too high.

    From below: if fl(M - s I) has a Cholesky factor L for the shift s = guess - rtol |guess|, then
    lambda_min(M) > s - error. The computed factor satisfies L L^T = A + E with
    |E| <= gamma_{n+1} |L| |L|^T (Higham, Accuracy and Stability of Numerical Algorithms,
    Theorem 10.3), and || |L| |L|^T ||_2 is at most trace(L L^T), so that A is at least
    -gamma_{n+1} / (1 - gamma_{n+1}) trace(A). The subtraction rounds each diagonal entry once more.

    From above: x^T M x / x^T x for the x that inverse iteration with L finds, with the rounding of
    the quotient.
    """
    unit = 2.0 ** np.floor(np.log2(np.abs(matrix).max()))  # powers of two divide without rounding
    bounds = _least_of_scaled(matrix / unit, guess / unit, rtol)
    if bounds is None:
        return None
    return Enclosure(
        bounds.value * unit, _outwards(bounds.low, unit, -1), _outwards(bounds.high, unit, 1)
    )


def _outwards(bound: float, unit: float, way: int) -> float:
    """bound * unit, moved in the direction ``way`` where the product is not exact."""
    product = bound * unit
    return product if product / unit == bound else float(np.nextafter(product, way * np.inf))


def _least_of_scaled(matrix: np.ndarray, guess: float, rtol: float) -> Enclosure | None:
    """:func:`least_eigenvalue` for entries of size one, so that nothing under- or overflows."""
    shift = guess - rtol * abs(guess)
    shifted_matrix = shifted_copy(matrix, shift)
    factor = lower_factor(shifted_matrix)
    if factor is None:
        return None
    size = len(matrix)
    share = gamma(size + 2, np.dtype(float))
    diagonal = np.abs(np.diagonal(shifted_matrix))
    rounding = share / (1 - share) * float(diagonal.sum()) * (1 + share)
    rounding += float(np.finfo(float).eps) * float(diagonal.max() + abs(shift))
    x = np.random.default_rng(_STREAM).standard_normal(size)
    for _ in range(_ITERATIONS):
        x = scipy.linalg.cho_solve((factor, True), x, check_finite=False)
        x /= np.linalg.norm(x)
    quotient = float(x @ (matrix @ x))
    slack = 3 * gamma(2 * size + 2, np.dtype(float)) * float(np.linalg.norm(matrix))
    return Enclosure(min(guess, quotient + slack), shift - rounding, quotient + slack)
