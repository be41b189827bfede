"""Whole spectra: by LAPACK from the matrix, or from the singular values of a factor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnjax.numerics.certificate import MEASURED, Error, certificate
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import underflow
from gnjax.numerics.rounding import (
    LAPACK_ROUNDING,
    iteration_errors,
    singular_values,
    spectral_error,
)
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.facts import error_of, factorisation_of, facts_of, symmetry_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvectors import angles, left_singular_rows
from gnjax.spectra.krylov.host_products import refuse_nonfinite
from gnjax.spectra.spectrum import Spectrum, spectrum_of_values, squares, with_zeros


def whole_spectrum(op: Operator, limits: Limits = LIMITS) -> Spectrum:
    """Every eigenvalue: stated ones, or from a factor that fits in memory, or from the matrix."""
    if (spectrum := stated_spectrum(op)) is not None:
        return spectrum
    factor = factorisation_of(op)
    if factor is not None and factor.size_in_bytes <= limits.factor_bytes:
        return factored_spectrum(op)
    return dense_spectrum(op, limits)


def check_whole(op: Operator, limits: Limits, instead: str, *, vectors: bool = False) -> None:
    """Refuse a whole spectrum for which there is no room, before any work.

    ``instead`` is what the error tells the caller to do; ``vectors`` says whether eigenvectors are
    wanted as well.
    """
    size, factor = op.shape[0], factorisation_of(op)
    is_stated = facts_of(op).eigenvalues is not None
    factor_fits = factor is not None and factor.size_in_bytes <= limits.factor_bytes
    if size <= limits.matrix_rows or (not vectors and (is_stated or factor_fits)):
        return
    msg = (
        f"all eigenvalues of {size:,} rows take their matrix of {8e-9 * size**2:,.0f} GB, and "
        f"limits allow {limits.matrix_rows:,} rows ({8e-9 * limits.matrix_rows**2:,.1f} GB); "
        f"{instead}, or pass limits=gnjax.Limits(matrix_rows={size:_}) if there is the memory"
    )
    raise ValueError(msg)


def stated_spectrum(op: Operator) -> Spectrum | None:
    """The spectrum that the operator states, all values with one error; None if it states none."""
    eigenvalues = facts_of(op).eigenvalues
    if eigenvalues is None:
        return None
    values, error = eigenvalues()
    return spectrum_of_values(values, error.value, "stated", certificate(error))


def dense_spectrum(op: Operator, limits: Limits = LIMITS) -> Spectrum:
    """Every eigenvalue from the matrix by LAPACK, all with the same error, by Weyl's theorem."""
    matrix, asymmetry = host_matrix(op, limits)
    values = lapack.symmetric_eigenvalues(matrix)
    norm = float(np.abs(values).max())
    error = dense_error(op, norm)
    total = (error + asymmetry).value
    return spectrum_of_values(values, total, "dense", certificate(error, asymmetry))


def spectrum_with_vectors(op: Operator, limits: Limits = LIMITS) -> Spectrum:
    """Every eigenvalue with its vector, from a factor that fits in memory or from the matrix.

    The vectors of A = J J^T are the left singular vectors of J. The residuals of the computed
    vectors bound their angles and are added to the errors of the values, as LAPACK's drivers with
    vectors are a little less accurate than those that were measured.
    """
    refused = why_not_dense(op.shape[0], limits)
    if refused:
        raise ValueError(refused)
    factor = factorisation_of(op)
    if factor is not None and factor.size_in_bytes <= limits.factor_bytes:
        matrix = factor.form()
        refuse_nonfinite(matrix)
        sigma, vectors, residuals = left_singular_rows(matrix)  # u in rows
        # (u, v) and (u, -v), over 2^{1/2}, are approximate eigenvectors of [[0, J], [J^T, 0]] with
        # a residual of at most the larger of ||J v - sigma u|| and ||J^T u - sigma v||. Both count
        # in the norm of all residuals: hence 2^{1/2}.
        of_vectors = LAPACK_ROUNDING.to(float(np.linalg.norm(2**0.5 * residuals)))
        error = _factored_error(op, factor, sigma[0]) + of_vectors
        errors = error.value + iteration_errors(sigma)
        spectrum = squares(sigma, errors, "factored", certificate(error))
        spectrum = with_zeros(spectrum, op.shape[0])
        # [[0, J], [J^T, 0]] has zeros among its eigenvalues, and the sine of the angle of u alone
        # may be 2^{1/2} times that of (u, v).
        bounds = angles(sigma, 2**0.5 * (residuals + errors), errors, below=0.0)
        # Nothing is known of the vectors of a null space with several dimensions.
        bounds = np.pad(bounds, (0, len(spectrum) - len(bounds)), constant_values=np.inf)
        return replace(spectrum, vectors=vectors, angles=bounds)
    matrix, asymmetry = host_matrix(op, limits)
    values, columns = lapack.eigenpairs(matrix)  # ascending; from here on the largest goes first
    vectors = np.ascontiguousarray(columns.T[::-1])
    residuals = np.linalg.norm(vectors @ matrix - values[::-1, None] * vectors, axis=1)
    of_vectors = LAPACK_ROUNDING.to(float(np.linalg.norm(residuals)))
    rounding = dense_error(op, float(np.abs(values).max())) + of_vectors
    error = rounding + asymmetry
    spectrum = spectrum_of_values(values, error.value, "dense", certificate(rounding, asymmetry))
    bounds = angles(spectrum.values, residuals + error.value, spectrum.errors)
    return replace(spectrum, vectors=vectors, angles=bounds)


def dense_error(op: Operator, norm: float) -> Error:
    """How far an eigenvalue computed from the matrix can be from that of the operator.

    It is the rounding of LAPACK for a matrix of the 2-norm ``norm``, and the error that the
    operator states. A norm of zero may come of products that have underflowed, unless the operator
    states its own magnitude.
    """
    size, norm_of_a = op.shape[0], abs(float(norm))
    rounding = spectral_error(size, op.dtype) * norm_of_a
    total = LAPACK_ROUNDING.to(rounding) + error_of(op, norm)
    if norm_of_a or facts_of(op).magnitude is not None:
        return total
    lost = underflow(size, size, op.dtype)
    return total + Error(lost, MEASURED, reason="underflow inside of the products")


def error_and_level(op: Operator, norm: float) -> tuple[Error, float]:
    """:func:`dense_error`, and how large a zero may become by rounding in a product with A.

    That is the same number, or the rounding of LAPACK where the error is unknown.
    """
    error = dense_error(op, norm)
    known = np.isfinite(error.value)
    return error, error.value if known else spectral_error(op.shape[0], op.dtype) * norm


def host_matrix(op: Operator, limits: Limits = LIMITS) -> tuple[np.ndarray, Error]:
    """The symmetric part of the matrix (n, n) in float64, and an error for the skew part.

    An operator that states that it is symmetric is believed: its matrix is returned unchanged, with
    an error of zero that carries the operator's evidence of symmetry. Otherwise the error is the
    norm of the skew part (A - A^T) / 2, which is left out. Raises a ValueError if the matrix would
    not fit in memory, has an entry that is not finite, or is far from symmetric.
    """
    refused = why_not_dense(op.shape[0], limits)
    if refused:
        raise ValueError(refused)
    matrix = np.asarray(op.as_matrix(), np.float64)
    refuse_nonfinite(matrix)
    if facts_of(op).symmetric:
        return matrix, symmetry_of(op)
    skew = float(np.linalg.norm(matrix - matrix.T)) / 2
    if skew > 1e-5 * float(np.linalg.norm(matrix)):
        msg = (
            "as_matrix of the operator is not a symmetric matrix of finite numbers: its skew part "
            f"has the norm {skew:.3g}; pass an operator with A = A^T"
        )
        raise ValueError(msg)
    return (matrix + matrix.T) / 2, Error(skew, reason="the skew part of the matrix")


def why_not_dense(size: int, limits: Limits = LIMITS) -> str:
    """Why a matrix of so many rows is not formed, or "" where it is."""
    if size <= limits.matrix_rows:
        return ""
    return f"a dense {size} x {size} matrix needs {8e-9 * size**2:.0f} GB; use method='krylov'"


def factored_spectrum(op: Operator) -> Spectrum:
    """Squares of the singular values of J with A = J J^T; the operator states J, which has room.

    If a singular value is known to e, sigma^2 is known to 2 sigma e + e^2. So eigenvalues are
    resolved down to about (eps ||J||)^2, and from the matrix itself only down to eps ||J||^2.
    """
    factor = factorisation_of(op)
    assert factor is not None
    matrix = factor.form()
    refuse_nonfinite(matrix)
    sigma = singular_values(matrix)
    error = _factored_error(op, factor, sigma[0])
    errors = error.value + iteration_errors(sigma)
    return with_zeros(squares(sigma, errors, "factored", certificate(error)), op.shape[0])


def _factored_error(op: Operator, factor: Factorisation, norm: float) -> Error:
    """How far a computed singular value of J is off, for ||J|| = ``norm``, but for iterations."""
    return LAPACK_ROUNDING.to(spectral_error(max(factor.shape), op.dtype) * norm) + factor.error()


def why_not_factored(factor: Factorisation | None, limits: Limits = LIMITS) -> str:
    """Why the singular values of a factor are not computed, or "" where they are."""
    if factor is None:
        return (
            "method='factored' needs a factor J with G = J J^T, and this operator states none; "
            "use gnjax.factored(J), or method='dense'"
        )
    if factor.size_in_bytes <= limits.factor_bytes:
        return ""
    return (
        f"the factor, {factor.shape[0]} x {factor.shape[1]}, needs "
        f"{factor.size_in_bytes / 1e9:.0f} GB; use method='krylov'"
    )
