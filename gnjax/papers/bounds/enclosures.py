"""Bounds on extreme eigenvalues and singular values, for the theorems of the papers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from gnjax.numerics.certificate import MEASURED, PROVED, Error
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.outward import above, below, lowered, raised
from gnjax.numerics.rounding import (
    gamma,
    singular_errors,
    singular_values,
    spectral_error,
    unit_roundoff,
)
from gnjax.numerics.validation import check_covariance

_Array = NDArray[np.float64]

_LARGE = 200  # with so many rows, all singular values take longer than the extreme ones
_GRAM_CONDITION = 1e6
_FAR = 1e3  # the error of an eigenvalue above so many errors is less than a thousandth
_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True)
class ExtremeSingularValues:
    """The largest and smallest singular value as computed, and how far each can be from exact."""

    largest: float
    smallest: float
    error: float

    @property
    def above(self) -> float:
        """An upper bound on the largest."""
        return raised(self.largest + self.error)

    @property
    def below(self) -> float:
        """A lower bound on the smallest, not below 0."""
        return lowered(max(self.smallest - self.error, 0.0))

    @property
    def part(self) -> Error:
        """Their error, as a part of a certificate."""
        return Error(self.error, MEASURED, reason="rounding of LAPACK's singular values")


def extreme_singular_values(matrix: ArrayLike, stored_error: float = 0.0) -> ExtremeSingularValues:
    """The extreme singular values of an exact matrix, from ``matrix`` as it is stored.

    The two differ by at most ``stored_error`` in the 2-norm, which is added to the error of the
    singular values. The smallest one is 0 for a matrix with fewer columns than rows.
    """
    host = np.asarray(matrix, np.float64)
    rows, columns = host.shape
    extremes = _of_large(host) if columns >= rows > _LARGE else None  # which is faster
    if extremes is None:
        values = singular_values(host)
        error = float(singular_errors(values, max(rows, columns), _DOUBLE)[0])
        extremes = float(values[0]), float(values[-1]) if columns >= rows else 0.0, error
    largest, smallest, error = extremes
    return ExtremeSingularValues(largest, smallest, raised(error + stored_error))


def _of_large(matrix: _Array) -> tuple[float, float, float] | None:
    """The largest and the smallest singular value of ``matrix`` A, and the error of both.

    A has no more rows than columns. Both are roots of eigenvalues of A A^T, and None is returned
    where its condition number is so large that rounding, which is relative to the largest, leaves
    few digits of the smallest. A diagonal matrix has no error.
    """
    rows, columns = matrix.shape
    diagonal = np.abs(np.diagonal(matrix))
    if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
        return float(diagonal.max()), float(diagonal.min()), 0.0
    values = lapack.symmetric_eigenvalues(matrix @ matrix.T)
    least, top = float(values[0]), float(values[-1])
    if least * _GRAM_CONDITION <= top:
        return None
    rounding = (spectral_error(rows, _DOUBLE) + columns * unit_roundoff(_DOUBLE)) * top
    return math.sqrt(top), math.sqrt(least), rounding / math.sqrt(least)


@dataclass(frozen=True)
class Eigenvalues:
    """The eigenvalues of a symmetric matrix in ascending order, each within ``error``: proved."""

    values: _Array
    error: float

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """The lower and the upper end of each eigenvalue, rounded outwards."""
        if self.error == 0:
            return [(value, value) for value in self.values.tolist()]
        return [(below(v - self.error), above(v + self.error)) for v in self.values.tolist()]


def enclosed_eigenvalues(matrix: _Array) -> Eigenvalues:
    """Eigenvalues of a symmetric A with errors proved from the residual, without trust in LAPACK.

    With computed values D and vectors V, R = A V - V D and O = V^T V - I, the eigenvalues of
    V^T A V = D + O D + V^T R are within ||O|| ||D|| + ||V|| ||R|| of D (Weyl) and are those of A
    times numbers between 1 - ||O|| and 1 + ||O|| (Ostrowski). The norms of R and O include the
    rounding of their products. For ||O|| of 1/2 and more the error counts as infinite.
    """
    scale = float(np.abs(matrix).max())
    if scale == 0:
        return Eigenvalues(np.zeros(len(matrix)), 0.0)
    power = math.frexp(scale)[1]
    scaled = np.ldexp(matrix, -power)  # entries below 1, so that no square under- or overflows
    diagonal = np.diagonal(scaled)
    if not (scaled - np.diag(diagonal)).any():
        return Eigenvalues(np.sort(np.diagonal(matrix)), 0.0)
    values, vectors = lapack.eigenpairs(scaled)
    size, norm, length = len(matrix), _norm(scaled), _norm(vectors)
    largest = float(np.abs(values).max())
    residual = _norm(scaled @ vectors - vectors * values)
    residual += gamma(size + 3, _DOUBLE) * (norm + largest) * length
    defect = _norm(vectors.T @ vectors - np.eye(size)) + gamma(size + 2, _DOUBLE) * length**2
    if defect >= 0.5:
        return Eigenvalues(np.ldexp(values, power), math.inf)
    distance = defect * largest + length * residual
    error = (distance + defect * largest) / (1 - defect)
    return Eigenvalues(np.ldexp(values, power), raised(math.ldexp(error, power)))


def _norm(matrix: _Array) -> float:
    return raised(float(np.linalg.norm(matrix)) * (1 + gamma(matrix.size, _DOUBLE)))


@dataclass(frozen=True)
class Condition:
    """An upper bound on kappa(Sigma) on its range; nan with a reason where there is none."""

    value: float
    part: Error
    reason: str = ""
    singular: bool = False


def covariance_condition(covariance: ArrayLike | None, inputs: int) -> Condition:
    """An upper bound on kappa(Sigma) = lambda_max / lambda_r, for the rank r of Sigma (d, d).

    Without a covariance, Sigma is the identity on the ``inputs`` d dimensions. Rows of zeros are
    left out. Eigenvalues so small that they may be rounding errors of a zero are left out too; the
    rank then depends on that threshold and is not proved.
    """
    if covariance is None:
        return Condition(1.0, Error(0.0, PROVED, reason="whitened data"))
    check_covariance(covariance, inputs)
    sigma = np.asarray(covariance, np.float64)
    sigma = sigma if (sigma == sigma.T).all() else sigma / 2 + sigma.T / 2
    nonzero_rows = sigma.any(axis=1)
    if not nonzero_rows.any():
        part = Error(0.0, PROVED, reason="Sigma is zero")
        return Condition(math.nan, part, "Sigma is zero: there is no range to condition", True)
    spectrum = enclosed_eigenvalues(sigma[np.ix_(nonzero_rows, nonzero_rows)])
    values = spectrum.values
    rounding = unit_roundoff(_DOUBLE) * _norm(sigma) if spectrum.error else 0.0
    part = Error(spectrum.error + rounding, PROVED, reason="rounding of the eigenvalues of Sigma")
    threshold = max(8, inputs) * 2.0**-52 * values[-1] if spectrum.error else 0.0
    nonzero = values[values > threshold]
    if nonzero.size == 0:
        return Condition(math.nan, part, "no eigenvalue of Sigma exceeds its rounding", True)
    # The proved error is so large that no useful bound would be left: LAPACK's is taken.
    if nonzero[0] <= _FAR * part.value:
        measured_error = spectral_error(inputs, _DOUBLE) * float(values[-1]) + rounding
        part = Error(measured_error, MEASURED, reason="rounding of LAPACK's eigenvalues of Sigma")
    if len(nonzero) < len(values):
        reason = "the rank of Sigma is the number of eigenvalues above a threshold"
        part = part + Error(0.0, MEASURED, reason=reason)
    least = nonzero[0] - part.value
    if least <= 0:
        return Condition(math.nan, part, "Sigma is singular to working precision", True)
    value = raised((nonzero[-1] + part.value) / lowered(least))
    return Condition(max(1.0, value), part, singular=len(nonzero) < inputs)
