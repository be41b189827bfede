"""A matrix A with a preconditioner: by a factor J in memory, or by products and a matrix near A."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.rounding import LAPACK_ROUNDING, gamma
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.host_products import host_product, refuse_nonfinite
from gnjax.spectra.krylov.orthogonal import random_rows
from gnjax.spectra.preconditioned_ends.cholesky_ends import Matrix
from gnjax.spectra.preconditioned_ends.one_end import Products
from gnjax.spectra.preconditioned_ends.plan import TOGETHER, Plan
from gnjax.spectra.preconditioned_ends.prepared import prepared
from gnjax.spectra.preconditioned_ends.triangle import Triangle, cholesky
from gnjax.spectra.watch import Watch
from gnjax.spectra.whole import dense_error

_LOST = 0.25  # the largest share of rtol that holding J in float32 may cost

Interval = tuple[float, float]


@dataclass(frozen=True)
class PreconditionedMatrix:
    """A by its products, and L with L L^T near A.

    Attributes:
      matrix: the products with A.
      triangle: L.
      block: how many vectors are multiplied together.
      error: the part of a certificate that says how well A is known, from the norm of A.
      widened: bounds on a true eigenvalue from bounds on that of the computed A and its norm.
      floor: the smallest eigenvalue that can be distinguished from zero, from the norm of A.
    """

    matrix: Matrix
    triangle: Triangle
    block: int
    error: Callable[[float], Error]
    widened: Callable[[Interval, float], Interval]
    floor: Callable[[float], float]


def by_products(op: Operator, near: np.ndarray, watch: Watch) -> PreconditionedMatrix:
    """A by the products of the operator, and L with L L^T the caller's matrix at the scale of A.

    ``near`` (n, n) is to be a symmetric positive definite matrix near a multiple of A, the caller's
    ``preconditioner``. A bad one costs steps, and the bounds hold nevertheless. The products of the
    operator count as those in full precision, and their error widens every bound on an eigenvalue.
    """
    multiply, size = watch(host_product(op)), op.shape[0]
    # Rounding in C is compared with 1, so that L L^T is to be as large as A. The sizes of both are
    # compared by their products with one random vector.
    row = random_rows(size, 1, seed=0)
    size_near, size_of_a = np.abs(row @ near).max(), np.abs(multiply(row)).max()
    has_sizes = size_near > 0 and size_of_a > 0
    triangle = cholesky(near / size_near * size_of_a if has_sizes else np.array(near))
    if triangle is None:
        msg = (
            "preconditioner= is not positive definite: it is to be a symmetric positive definite "
            "matrix near the operator's"
        )
        raise ValueError(msg)

    def full(rows: np.ndarray) -> Products:
        images = multiply(rows)
        return Products(images, images @ rows.T)

    def widened(bounds: Interval, norm: float) -> Interval:
        error = dense_error(op, norm).value
        return bounds[0] - error, bounds[1] + error

    def lost(longest: float, inverse: float, energy: float, norm: float) -> float:
        del energy  # the error of A w is proportional to ||A|| |w|, whatever w^T A w is
        return inverse * dense_error(op, norm).value * longest

    return PreconditionedMatrix(
        matrix=Matrix(size, full, multiply, exact=True, lost=lost),
        triangle=triangle,
        block=min(TOGETHER, max(size // 4, 1)),
        error=lambda norm: dense_error(op, norm),
        widened=widened,
        floor=lambda norm: dense_error(op, norm).value,
    )


def by_factor(
    factor: Factorisation,
    plan: Plan,
    rtol: float,
    seed: int,
    watch: Watch,
) -> PreconditionedMatrix | None:
    """A = J J^T by a factor J in memory, and a preconditioner from one pass over its rows.

    If J was stored in float32 by the ``plan``, and that is too coarse for the tolerance ``rtol`` of
    an eigenvalue, J is read again and stored in float64, where that fits in memory. None where no
    matrix near J J^T is positive definite.

    An error e of J moves a singular value sigma by at most e, and sigma^2 by at most
    2 sigma e + e^2. That is less than sigma^2, so that it can be distinguished from zero, for
    sigma > (1 + 2^{1/2}) e.
    """
    prepared_factor = prepared(factor, plan, seed, watch)
    if prepared_factor is not None and plan.wide_fits:
        least_sigma = max(prepared_factor.least, np.finfo(float).tiny) ** 0.5
        # prepared_factor.factor.lost, the error e of J, moves sigma^2 by a fraction of 2 e / sigma.
        if 2 * prepared_factor.factor.lost / least_sigma > _LOST * rtol:
            prepared_factor = prepared(
                factor, replace(plan, dtype=np.dtype(np.float64)), seed, watch
            )
    if prepared_factor is None:
        return None
    stored_factor = prepared_factor.factor
    refuse_nonfinite(stored_factor.squared)
    rounding = gamma(max(stored_factor.shape), np.dtype(float)) * stored_factor.squared**0.5
    lost = Error(stored_factor.lost, reason=f"J is held in {stored_factor.dtype}")
    error = factor.error() + lost + LAPACK_ROUNDING.to(rounding)
    return PreconditionedMatrix(
        matrix=prepared_factor.matrix(watch),
        triangle=prepared_factor.triangle,
        block=plan.block,
        error=lambda norm: error,  # whatever the norm of A is
        widened=lambda bounds, norm: _squares(bounds, error.value),
        floor=lambda norm: (3 + 2 * 2**0.5) * error.value * error.value,  # (1 + 2^{1/2})^2 e^2
    )


def _squares(bounds: Interval, error: float) -> Interval:
    """Bounds on sigma^2 for the exact J, from ``bounds`` on it for a J within ``error`` in norm."""
    least_sigma = max(max(bounds[0], 0.0) ** 0.5 - error, 0.0)
    largest_sigma = max(bounds[1], 0.0) ** 0.5 + error
    return least_sigma * least_sigma, largest_sigma * largest_sigma
