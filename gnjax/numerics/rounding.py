"""Bounds on rounding errors, from which the certificates are made.

The words of certificates are explained in ``docs/reference/evidence.md``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.decompositions.lapack import interruptibly
from gnjax.numerics.decompositions.triangular import triangular_factor

_ITERATION_ERROR = 200 * float(np.finfo(float).eps)  # of a singular value, relative to it

LAPACK_ROUNDING = Error(0.0, MEASURED, 0.0, "LAPACK's rounding, by a constant found in practice")
"""What :func:`spectral_error` rests on; ``LAPACK_ROUNDING.to(value)`` is the error itself."""


@lru_cache
def unit_roundoff(dtype: jnp.dtype) -> float:
    """u = eps / 2, the relative error of one rounding."""
    return float(jnp.finfo(dtype).eps) / 2


def gamma(terms: int, dtype: jnp.dtype) -> float:
    """gamma_n = n u / (1 - n u): |fl(x.y) - x.y| <= gamma_n |x|.|y| for vectors of length n.

    It is infinite for n u >= 1, where nothing is left of the digits.
    """
    n_u = terms * unit_roundoff(dtype)
    return n_u / (1 - n_u) if n_u < 1 else math.inf


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth), for arrays of NumPy or JAX."""
    total = a + b
    b_in_total = total - a
    return total, (a - (total - b_in_total)) + (b - b_in_total)


def added(total: Any, lost: Any, part: Any) -> tuple[Any, Any]:
    """fl(total + part), and ``lost`` with what the rounding of this sum takes from it.

    ``lost`` is None where nothing was added before. At the end :func:`with_lost` puts it back.
    """
    after, rounded = two_sum(total, part)
    return after, rounded if lost is None else lost + rounded


def with_lost(total: Any, lost: Any) -> Any:
    """``total + lost``; ``total`` alone where it is infinite, as what is lost is nan there."""
    xp = np if isinstance(total, np.ndarray) else jnp
    return xp.where(xp.isfinite(lost), total + lost, total)


def spectral_error(size: int, dtype: jnp.dtype) -> float:
    """The error of an eigenvalue or singular value from LAPACK, relative to the 2-norm.

    The matrix has n = ``size`` rows. The proofs give a polynomial of n times eps. Held-out matrices
    of up to 40 rows, computed in many digits, had errors of up to 1.45 max(4, sqrt n) eps; three
    times max(4, sqrt n) eps is taken.
    """
    return 3 * max(4.0, size**0.5) * float(jnp.finfo(dtype).eps)


def singular_errors(values: np.ndarray, size: int, dtype: jnp.dtype) -> np.ndarray:
    """Bounds on the errors of singular values from LAPACK, which are sorted from the largest down.

    They are the sum of two: :func:`spectral_error` of ``size`` rows times the largest value, and
    what LAPACK's iterations leave, which end once a value is known to about 50 eps of itself.
    Held-out matrices of up to 160 rows with repeated singular values had errors of up to 64 eps of
    a value; 200 eps is taken.
    """
    return spectral_error(size, dtype) * values[0] + iteration_errors(values)


def iteration_errors(values: np.ndarray) -> np.ndarray:
    """What LAPACK's iterations leave of the error: a part of each singular value."""
    return _ITERATION_ERROR * values


def singular_values(matrix: np.ndarray) -> np.ndarray:
    """Singular values, largest first; a long matrix is first replaced by R of its QR factorisation.

    R has the same singular values. With 1.5 times as many rows as columns this takes 0.7 of the
    time, because QR consists of products of matrices with matrices, and LAPACK's reduction to a
    bidiagonal matrix of products with vectors.
    """
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    if 2 * tall.shape[0] > 3 * tall.shape[1]:
        tall = triangular_factor(tall)
    return interruptibly(tall, lambda: np.linalg.svd(tall, compute_uv=False))  # by gesdd
