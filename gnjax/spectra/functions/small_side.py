"""(A + s I)^{-1} of a matrix that fits in memory, from its Cholesky factor or that of a twin.

For A = F F^T with F (n, q) and q < n, the identity of Woodbury needs a matrix of q rows alone:

    (F F^T + s I)^{-1} = (I - F (F^T F + s I)^{-1} F^T) / s.

Both lose digits where A + s I is badly conditioned. Residuals are therefore computed and bounded,
and solutions are corrected by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg

from gnjax.numerics.certificate import Error
from gnjax.numerics.decompositions.lapack import interruptibly
from gnjax.numerics.limits import Limits
from gnjax.numerics.outward import raised
from gnjax.operators.factorisation import gram_error
from gnjax.operators.facts import error_of, factorisation_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.functions.definite import Definite
from gnjax.spectra.krylov.host_products import refuse_nonfinite
from gnjax.spectra.whole import host_matrix

_CORRECTIONS = 5


class SmallSide(Protocol):
    """A + s I in memory, in float64, with a factor of it.

    ``norm`` is a bound on ||A||, ``error`` bounds how far the matrix in memory is from A.
    """

    @property
    def method(self) -> str: ...

    @property
    def norm(self) -> float: ...

    @property
    def error(self) -> Error: ...

    def times(self, x: np.ndarray) -> np.ndarray:
        """(A + s I) X for columns X."""
        ...

    def solved(self, b: np.ndarray) -> np.ndarray:
        """(A + s I)^{-1} B for columns B, up to rounding."""
        ...

    def inverse_diagonal(self) -> np.ndarray:
        """diag((A + s I)^{-1}), up to rounding."""
        ...


def small_side(problem: Definite, limits: Limits) -> SmallSide | None:
    """The cheaper of both sides that fits; None where the matrix and its twin are too large."""
    if _has_narrow_factor(problem.op, problem.shift, limits):
        return _by_factor(problem)
    return _by_matrix(problem, limits) if problem.op.shape[0] <= limits.whole_rows else None


def has_small_side(op: Operator, shift: float, limits: Limits) -> bool:
    """Whether the matrix of A + s I or F^T F fits, for A = F F^T = ``op``; it takes no work."""
    return op.shape[0] <= limits.whole_rows or _has_narrow_factor(op, shift, limits)


def _has_narrow_factor(op: Operator, shift: float, limits: Limits) -> bool:
    """Whether A = F F^T has few columns in F, which fits in memory, so that F^T F is smaller."""
    factor = factorisation_of(op)
    if factor is None or not shift > 0:
        return False
    is_narrow = factor.shape[1] < op.shape[0] and factor.shape[1] <= limits.whole_rows
    return is_narrow and factor.size_in_bytes <= limits.factor_bytes


def _by_matrix(problem: Definite, limits: Limits) -> SmallSide:
    """A + s I as a matrix."""
    matrix, asymmetry = host_matrix(problem.op, limits)
    norm = _norm_bound(matrix)
    error = error_of(problem.op, norm) + asymmetry
    return _Matrix(matrix, problem.shift, norm, error, _cholesky(matrix, problem.shift))


def _by_factor(problem: Definite) -> SmallSide:
    """F F^T + s I, from the factor that the operator states."""
    stated = factorisation_of(problem.op)
    assert stated is not None
    factor = stated.form()
    refuse_nonfinite(factor)
    gram = factor.T @ factor
    norm = _norm_bound(gram)
    error = gram_error(norm, stated.error())
    return _Factor(factor, problem.shift, norm, error, _cholesky(gram, problem.shift))


def _norm_bound(matrix: np.ndarray) -> float:
    """A bound on the 2-norm of a symmetric matrix: the largest sum of sizes in a row."""
    return raised(float(np.abs(matrix).sum(axis=1).max()))


def _cholesky(matrix: np.ndarray, shift: float) -> np.ndarray:
    """The lower L with L L^T = M + s I; refused where it is not positive definite."""
    shifted = matrix + shift * np.eye(len(matrix))
    try:
        return interruptibly(shifted, lambda: np.linalg.cholesky(shifted))
    except np.linalg.LinAlgError as error:
        msg = (
            f"A + {shift:g} I is not positive definite up to the rounding of its {len(matrix)} "
            "rows; pass a larger damping"
        )
        raise ValueError(msg) from error


@dataclass(frozen=True)
class _Matrix:
    """A + s I from its matrix M and the Cholesky factor L of M + s I."""

    matrix: np.ndarray
    shift: float
    norm: float
    error: Error
    lower: np.ndarray
    method = "dense"

    def times(self, x: np.ndarray) -> np.ndarray:
        return self.matrix @ x + self.shift * x

    def solved(self, b: np.ndarray) -> np.ndarray:
        return _cholesky_solved(self.lower, b)

    def inverse_diagonal(self) -> np.ndarray:
        """The squared lengths of the columns of L^{-1}."""
        size = len(self.lower)
        inverse = scipy.linalg.solve_triangular(self.lower, np.eye(size), lower=True)
        return np.asarray(np.einsum("ij,ij->j", inverse, inverse))


@dataclass(frozen=True)
class _Factor:
    """F F^T + s I from F (n, q) and the Cholesky factor L of F^T F + s I (q, q)."""

    factor: np.ndarray
    shift: float
    norm: float
    error: Error
    lower: np.ndarray
    method = "factored"

    def times(self, x: np.ndarray) -> np.ndarray:
        return self.factor @ (self.factor.T @ x) + self.shift * x

    def solved(self, b: np.ndarray) -> np.ndarray:
        inside = _cholesky_solved(self.lower, self.factor.T @ b)
        return np.asarray((b - self.factor @ inside) / self.shift)

    def inverse_diagonal(self) -> np.ndarray:
        """(1 - |L^{-1} f_i|^2) / s for the rows f_i of F."""
        scaled = scipy.linalg.solve_triangular(self.lower, self.factor.T, lower=True)
        return np.asarray((1 - np.einsum("ij,ij->j", scaled, scaled)) / self.shift)


def _cholesky_solved(lower: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(scipy.linalg.cho_solve((lower, True), b, check_finite=False))


def corrected(side: SmallSide, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x with (A + s I) x = b for columns b, corrected by residuals, and the lengths of these."""
    x = side.solved(b)
    residual = b - side.times(x)
    for _ in range(_CORRECTIONS):
        better = x + side.solved(residual)
        left = b - side.times(better)
        improved = np.linalg.norm(left, axis=0) < np.linalg.norm(residual, axis=0)
        if not improved.any():
            break
        x, residual = np.where(improved, better, x), np.where(improved, left, residual)
    return x, np.linalg.norm(residual, axis=0)
