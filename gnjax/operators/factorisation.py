"""A factor of an operator, J with J J^T = A, as a fact that an operator can state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnjax.numerics.certificate import MEASURED, Error, weakest
from gnjax.numerics.rounding import spectral_error, unit_roundoff
from gnjax.numerics.triangular import triangular_factor

if TYPE_CHECKING:
    from gnjax.operators.kroneckers import KroneckerFactors


@dataclass(frozen=True)
class Factorisation:
    """J (n, p) with J J^T = A.

    Attributes:
      shape: of J.
      form: forms J in host memory, in float64.
      error: returns a bound on ||J formed - J||_2.
    """

    shape: tuple[int, int]
    form: Callable[[], np.ndarray]
    error: Callable[[], Error]

    @property
    def size_in_bytes(self) -> float:
        return 8.0 * self.shape[0] * self.shape[1]


def gram_error(norm: float, moved: Error) -> Error:
    """How far J J^T moves when J, with ||J J^T||_2 about ``norm``, moves by ``moved``.

    ||(J + E)(J + E)^T - J J^T|| <= (2 ||J|| + ||E||) ||E||.
    """
    return moved.to((2 * abs(float(norm)) ** 0.5 + moved.value) * moved.value)


def of_kroneckers(factors: KroneckerFactors) -> Factorisation:
    """J = [S_1 (x) T_1, .., S_L (x) T_L], so that J J^T = sum_l S_l S_l^T (x) T_l T_l^T.

    A factor S or T with more columns than rows is replaced by the triangular factor of its
    transpose, which has the same product with its own transpose.
    """
    pairs = list(zip(factors.lefts, factors.rights, strict=True))
    rows = pairs[0][0].shape[0] * pairs[0][1].shape[0]
    columns = sum(min(s.shape) * min(t.shape) for s, t in pairs)

    def form() -> np.ndarray:
        small = ((compact(np.asarray(s)), compact(np.asarray(t))) for s, t in pairs)
        return np.concatenate([np.kron(s, t) for s, t in small], axis=1).astype(float)

    return Factorisation((rows, columns), form, lambda: _kronecker_error(factors))


def _kronecker_error(factors: KroneckerFactors) -> Error:
    """The root of the sum of squares of the errors of all S_l (x) T_l."""
    squared, compacted = 0.0, False
    sides = zip(
        factors.lefts, factors.rights, factors.left_errors, factors.right_errors, strict=True
    )
    for left, right, left_error, right_error in sides:
        s_norm, t_norm = (float(np.linalg.norm(np.asarray(f))) for f in (left, right))
        s_error = float(left_error) + compaction_error(left.shape, left.dtype, s_norm)
        t_error = float(right_error) + compaction_error(right.shape, right.dtype, t_norm)
        rounding = unit_roundoff(left.dtype) * s_norm * t_norm
        moved = s_error * t_norm + (s_norm + s_error) * t_error + rounding
        squared += moved**2
        compacted |= left.shape[1] > left.shape[0] or right.shape[1] > right.shape[0]
    kind = weakest(factors.evidence, MEASURED) if compacted else factors.evidence
    return Error(squared**0.5, kind, factors.failure, "rounding of the products of layers")


def compact(factor: np.ndarray) -> np.ndarray:
    """A factor C with C C^T = F F^T and no more columns than rows: the transposed R of F^T = Q R.

    A factor F that has no more columns than rows is returned as it is.
    """
    rows, columns = factor.shape
    if columns <= rows:
        return factor
    return triangular_factor(factor.T).T


def compaction_error(shape: tuple[int, ...], dtype: np.dtype, norm: float) -> float:
    """The error of :func:`compact` for F of a shape and a norm; LAPACK's constant is measured."""
    rows, columns = shape
    return 0.0 if columns <= rows else spectral_error(columns, dtype) * norm
