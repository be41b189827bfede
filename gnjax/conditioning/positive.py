"""What a Cholesky factorisation that succeeds proves about a stored matrix."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gnjax.conditioning.ends import Problem
from gnjax.numerics.certificate import PROVED, Error
from gnjax.numerics.rounding import gamma
from gnjax.operators.base import Operator
from gnjax.operators.facts import kroneckers_of
from gnjax.spectra import kronecker
from gnjax.spectra.eigenvalues import host_matrix


def matrix_on_range(problem: Problem) -> tuple[np.ndarray, Operator, Error]:
    """The matrix on the range that structure allows, the operator that it is of, and its error."""
    known = kroneckers_of(problem.op)
    if known is None:
        matrix, asymmetry = host_matrix(problem.op, problem.limits)
        return matrix, problem.op, asymmetry
    reduced = kronecker.reduce(known)
    return kronecker.packed_matrix(reduced), reduced.operator, Error(0.0)


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """The lower factor, or None where the factorisation meets a pivot that is not positive."""
    try:
        # transposed, which changes nothing but the layout that LAPACK would copy it to
        return scipy.linalg.cho_factor(matrix.T, lower=True, check_finite=False)[0]
    except np.linalg.LinAlgError:
        return None


def least_if_factored(matrix: np.ndarray, shift: float) -> Error | None:
    """If fl(M - shift I) has a Cholesky factor, lambda_min(M) > shift - error; None if it has not.

    The computed factor L satisfies L L^T = A + E with |E| <= gamma_{n+1} |L| |L|^T (Higham,
    Accuracy and Stability of Numerical Algorithms, Theorem 10.3), and || |L| |L|^T ||_2 is at most
    trace(L L^T). So A is at least -gamma_{n+1} / (1 - gamma_{n+1}) trace(A). The subtraction of the
    shift rounds each diagonal entry once more.
    """
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] -= shift
    if cholesky(shifted) is None:
        return None
    share = gamma(len(matrix) + 2, np.dtype(float))
    diagonal = np.abs(np.diagonal(shifted))
    rounding = share / (1 - share) * float(diagonal.sum()) * (1 + share)
    rounding += float(np.finfo(float).eps) * float(diagonal.max() + abs(shift))
    return Error(rounding, PROVED, 0.0, "rounding of a Cholesky factorisation")
