"""Both ends by products with A, preconditioned by the Cholesky factor of a matrix near A.

Where A = J J^T is known by a factor, J J^T need not be formed. One pass over the rows of J holds
them and makes Y = J S, S a random sparse embedding; the Cholesky factor L of Y Y^T, or of J J^T in
the precision in which J is held where that is cheaper, is a preconditioner whatever the condition
number is. Then few products with A find both ends, and few more certify them
(:mod:`gnjax.spectra.pencil`). The caller may pass a matrix near A instead, for any operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnjax.conditioning.ends import FLOOR, GIVEN, Enclosure, Ends, Problem, bound_source
from gnjax.conditioning.methods import inverse
from gnjax.conditioning.methods.base import Method
from gnjax.conditioning.methods.krylov import MISSED, chance
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.rounding import LAPACK, gamma
from gnjax.operators.facts import SYMMETRIC, evidence_for, factorisation_of
from gnjax.spectra.krylov.host_products import check_products, host_product
from gnjax.spectra.pencil import Enclosed, End, Products, certified
from gnjax.spectra.pencil.ends import Matrix, largest_end, smallest_end
from gnjax.spectra.pencil.plan import BLOCK, Plan, planned
from gnjax.spectra.pencil.prepared import Prepared, prepared, triangle_of
from gnjax.spectra.whole import dense_error

_OVERHEAD = 3e10  # the time of small steps, counted in multiplications
_SLOWER = 4.0  # how much longer its multiplications take than those of a matrix product, measured
_LARGEST_SHARE = 0.1  # of rtol, for the largest eigenvalue, which is far easier to separate
_LARGE = 1e11  # multiplications from which on the rank is looked at before, see _deficient
_WIDE = 2.0  # a factor with so many times more columns than rows has full rank, but for zero rows
_LOST = 0.25  # the largest share of rtol that holding J in float32 may cost


@dataclass(frozen=True)
class _Ready:
    """A by its products, and L with L L^T near A.

    ``widened`` is given an eigenvalue of the computed A with its bounds and the norm of A, and
    returns bounds on the true one, ``error`` the part of the certificate.
    """

    matrix: Matrix
    triangle: np.ndarray
    block: int
    error: Callable[[float], Error]
    widened: Callable[[Enclosure, float], Enclosure]
    floor: Callable[[float], float]


def _plan(problem: Problem) -> Plan | None:
    factor = factorisation_of(problem.op)
    return None if factor is None else planned(factor, problem.limits)


def _refuses(problem: Problem) -> str:
    given = problem.preconditioner is not None
    if not given and factorisation_of(problem.op) is None:
        return (
            "method='preconditioned' needs an operator that states a factor J with A = J J^T, or a "
            "matrix near A as preconditioner="
        )
    plan = _plan(problem)
    if problem.rank not in (None, problem.size) or _deficient(problem, plan):
        return (
            "method='preconditioned' answers for matrices of full rank alone; use 'factored' or "
            "'dense' for an assumed rank, or where structure allows no full rank"
        )
    if problem.size > problem.limits.matrix_rows:
        return (
            f"method='preconditioned' holds a triangle of {problem.size:,} rows, and limits allow "
            f"{problem.limits.matrix_rows:,}; pass limits=gnjax.Limits(matrix_rows={problem.size})"
        )
    return "" if plan is None or given else plan.refused


def _deficient(problem: Problem, plan: Plan | None) -> bool:
    """Whether structure allows no full rank; asked where that costs far less than the answer.

    A factor that is far wider than tall has full rank unless whole rows are zero, and trials for
    that would cost a share of the rows themselves.
    """
    factor = factorisation_of(problem.op)
    if plan is None or factor is None or plan.work <= _LARGE:
        return False
    rows, columns = factor.shape
    return columns < _WIDE * rows and problem.rank_bound < problem.size


def _cost(problem: Problem) -> float:
    plan = _plan(problem)
    return np.inf if plan is None else _OVERHEAD + _SLOWER * plan.work


def _ends(problem: Problem) -> Ends | None:
    """Both ends, or those of Cholesky and Lanczos on the matrix where J does not resolve them."""
    ready = _by_products(problem) if problem.preconditioner is not None else _by_factor(problem)
    ends = None if ready is None else _certified(problem, ready)
    return inverse.METHOD.ends(problem) if ends is None else ends


def _by_products(problem: Problem) -> _Ready | None:
    """A by the products of the operator, with the matrix of the caller."""
    assert problem.preconditioner is not None
    triangle = triangle_of(problem.preconditioner)
    if triangle is None:
        msg = (
            "preconditioner= is not positive definite: it is to be a symmetric positive definite "
            "matrix near the operator's"
        )
        raise ValueError(msg)
    multiply = problem.watch(host_product(problem.op))

    def full(rows: np.ndarray) -> Products:
        images = multiply(rows)
        return Products(images, images @ rows.T)

    def error(norm: float) -> Error:
        return dense_error(problem.op, norm)

    return _Ready(
        Matrix(problem.size, full, multiply, exact=True),
        triangle,
        min(BLOCK, max(problem.size // 4, 1)),
        error,
        lambda end, norm: end.widened(error(norm).value),
        lambda norm: error(norm).value,
    )


def _by_factor(problem: Problem) -> _Ready | None:
    """A = J J^T by a factor J in memory, and a preconditioner from one pass over its rows."""
    factor, plan = factorisation_of(problem.op), _plan(problem)
    assert factor is not None
    assert plan is not None
    ready = prepared(factor, plan, problem.seed, problem.watch)
    if ready is not None and _loses(ready, problem.rtol) and plan.wide_fits:
        ready = prepared(factor, plan.wide(), problem.seed, problem.watch)
    if ready is None:
        return None
    held = ready.factor
    check_products(held.squared)
    rounding = gamma(max(held.shape), np.dtype(float)) * held.squared**0.5
    lost = Error(held.lost, reason=f"J is held in {held.dtype}")
    error = factor.error() + lost + LAPACK.to(rounding)
    return _Ready(
        ready.matrix(problem.watch),
        ready.triangle,
        ready.block,
        lambda norm: error,
        lambda end, norm: _squared(end, error.value),
        lambda norm: (3 + 2 * 2**0.5) * error.value**2,
    )


def _loses(ready: Prepared, rtol: float) -> bool:
    """Whether the precision in which J is held is too low for the tolerance."""
    least = max(ready.least, np.finfo(float).tiny) ** 0.5
    return 2 * ready.factor.lost / least > _LOST * rtol


def _certified(problem: Problem, ready: _Ready) -> Ends | None:
    """Both ends, or None where the smallest cannot be told from zero or is not certified."""

    def enclosed(end: End, rtol: float) -> Enclosed:
        return certified(end, rtol, MISSED / 2, problem.seed, problem.watch.is_stopped)

    share = _LARGEST_SHARE * problem.rtol
    top = enclosed(largest_end(ready.matrix, ready.block), share)
    bottom_end = smallest_end(ready.matrix, ready.triangle, ready.block)
    bottom = enclosed(bottom_end, problem.rtol - 2 * share)
    norm = top.ritz
    largest = ready.widened(Enclosure(top.ritz, top.ritz, top.bound), norm)
    smallest = ready.widened(Enclosure(bottom.ritz, bottom.bound, bottom.ritz), norm)
    smallest = Enclosure(smallest.value, max(smallest.low, 0.0), smallest.high)
    certain = smallest.low > 0 and np.isfinite(largest.high)
    if not certain and not problem.watch.stopped:
        return None
    symmetry = evidence_for(problem.op, SYMMETRIC)
    source = bound_source(problem, problem.size) if certain else FLOOR
    return Ends(
        largest,
        smallest,
        problem.size,
        source if problem.rank is None else GIVEN,
        ready.floor(norm),
        "preconditioned",
        certificate(ready.error(norm), chance(top.missed + bottom.missed), symmetry),
        top.products + bottom.products,
        finished=not problem.watch.stopped,
    )


def _squared(end: Enclosure, error: float) -> Enclosure:
    """The square of a singular value known to ``error``, whose square without it is enclosed."""
    least = max(max(end.low, 0.0) ** 0.5 - error, 0.0)
    return Enclosure(end.value, least**2, (max(end.high, 0.0) ** 0.5 + error) ** 2)


METHOD = Method(
    "preconditioned",
    "Lanczos on products with A, preconditioned by a random sketch of a factor J; J J^T is not "
    "formed",
    "a factor J of full rank whose rows, in float32, fit in memory; or a matrix near A",
    _refuses,
    _cost,
    _ends,
)
