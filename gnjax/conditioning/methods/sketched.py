"""Both ends by products with A, preconditioned by the Cholesky factor of a matrix near A.

For A = J J^T the matrix is Y Y^T of a random sketch Y = J S, or J J^T in low precision where that
is cheaper, from one pass over the rows of J (:mod:`gnjax.spectra.preconditioned_ends`). The caller
may pass a matrix near A instead, for any operator.
"""

from __future__ import annotations

import numpy as np

from gnjax.conditioning.ends import FLOOR, GIVEN, Ends, Problem, bound_source
from gnjax.conditioning.methods import inverse
from gnjax.conditioning.methods.krylov import MISSED_AT_EITHER_END
from gnjax.conditioning.methods.method import Method
from gnjax.numerics.certificate import certificate
from gnjax.operators.facts import factorisation_of, symmetry_of
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.preconditioned_ends import Enclosed, End, certified
from gnjax.spectra.preconditioned_ends.cholesky_ends import largest_end, smallest_end
from gnjax.spectra.preconditioned_ends.plan import Plan, planned
from gnjax.spectra.preconditioned_ends.preconditioned_matrix import (
    PreconditionedMatrix,
    by_factor,
    by_products,
)
from gnjax.spectra.semidefinite import Enclosure

_OVERHEAD = 3e10  # the time of small steps, counted in multiplications
_SLOWER = 2.2  # how much longer its multiplications take than those of a matrix product, measured
_LARGEST_SHARE = 0.1  # of rtol, for the largest eigenvalue, which is far easier to separate
_LARGE = 1e11  # multiplications from which on the rank is asked for first, see _deficient
_WIDE = 2.0  # a factor with so many times more columns than rows has full rank, but for zero rows


def _plan(problem: Problem) -> Plan | None:
    """How the rows of the factor J would be held and multiplied; None without a factor."""
    factor = factorisation_of(problem.op)
    return None if factor is None else planned(factor, problem.limits)


def _refuses(problem: Problem) -> str:
    """Why the method does not apply, or ""."""
    has_preconditioner = problem.preconditioner is not None
    if not has_preconditioner and factorisation_of(problem.op) is None:
        return (
            "method='sketched' needs an operator that states a factor J with A = J J^T, or a "
            "matrix near A as preconditioner="
        )
    plan = _plan(problem)
    if problem.rank not in (None, problem.size) or _deficient(problem, plan):
        return (
            "method='sketched' answers for matrices of full rank alone; use 'factored' or "
            "'dense' for an assumed rank, or where structure allows no full rank"
        )
    if problem.size > problem.limits.matrix_rows:
        return (
            f"method='sketched' holds a triangle of {problem.size:,} rows, and limits allow "
            f"{problem.limits.matrix_rows:,}; pass limits=gnjax.Limits(matrix_rows={problem.size})"
        )
    return "" if plan is None or has_preconditioner else plan.refused


def _deficient(problem: Problem, plan: Plan | None) -> bool:
    """Whether structure proves that A = J J^T is singular, for a J of much work.

    A J with at least twice as many columns as rows counts as one of full rank: it is singular only
    if whole rows are zero, and to look for those takes a share of the time of computing J. With
    little work the method finds out itself.
    """
    factor = factorisation_of(problem.op)
    if plan is None or factor is None or plan.work <= _LARGE:
        return False
    rows, columns = factor.shape
    return columns < _WIDE * rows and problem.bound.value < problem.size


def _cost(problem: Problem) -> float:
    """Multiplications by the plan, counted by their time; infinite without a factor."""
    plan = _plan(problem)
    return np.inf if plan is None else _OVERHEAD + _SLOWER * plan.work


def _ends(problem: Problem) -> Ends | None:
    """Both ends of A; by method "inverse", from the formed matrix, where this one fails.

    It fails where the preconditioner has no Cholesky factor, or the smallest eigenvalue is not
    certified to be positive.
    """
    preconditioned: PreconditionedMatrix | None
    if problem.preconditioner is not None:
        preconditioned = by_products(problem.op, problem.preconditioner, problem.watch)
    else:
        factor, plan = factorisation_of(problem.op), _plan(problem)
        assert factor is not None
        assert plan is not None
        preconditioned = by_factor(factor, plan, problem.rtol, problem.seed, problem.watch)
    ends = None if preconditioned is None else _certified(problem, preconditioned)
    return inverse.METHOD.ends(problem) if ends is None else ends


def _certified(problem: Problem, preconditioned: PreconditionedMatrix) -> Ends | None:
    """Both ends of a matrix A with its preconditioner, by Lanczos from random blocks.

    Each bound fails with a probability of at most half of ``MISSED_AT_EITHER_END``. None where the
    smallest eigenvalue is not certified to be positive or the largest has no bound; where the
    caller has stopped the work, the ends so far.
    """

    def enclosed(end: End, rtol: float) -> Enclosed:
        """The Ritz value of one end and a bound beyond it, to within ``rtol`` if that can be."""
        return certified(
            end, rtol, MISSED_AT_EITHER_END / 2, problem.seed, problem.watch.is_stopped
        )

    # kappa is a quotient, so that the relative errors of both ends add up to problem.rtol at most
    top_rtol = _LARGEST_SHARE * problem.rtol
    matrix, block = preconditioned.matrix, preconditioned.block
    top = enclosed(largest_end(matrix, block), top_rtol)
    norm = top.ritz
    bottom_end = smallest_end(matrix, preconditioned.triangle, block, norm)
    bottom = enclosed(bottom_end, problem.rtol - 2 * top_rtol)
    # from bounds for the computed A to bounds for the exact one
    largest = Enclosure(top.ritz, *preconditioned.widened((top.ritz, top.bound), norm))
    low, high = preconditioned.widened((bottom.bound, bottom.ritz), norm)
    smallest = Enclosure(bottom.ritz, max(low, 0.0), high)
    certain = smallest.low > 0 and np.isfinite(largest.high)
    if not certain and not problem.watch.stopped:
        return None
    symmetry = symmetry_of(problem.op)
    source = bound_source(problem, problem.size) if certain else FLOOR
    missed = chance(top.missed + bottom.missed)
    return Ends(
        largest=largest,
        smallest=smallest,
        rank=problem.size,
        rank_source=source if problem.rank is None else GIVEN,
        floor=preconditioned.floor(norm),
        method="sketched",
        certificate=certificate(preconditioned.error(norm), missed, symmetry),
        products=top.products + bottom.products,
        finished=not problem.watch.stopped,
    )


METHOD = Method(
    "sketched",
    "Lanczos on products with A, preconditioned by a random sketch of a factor J; J J^T is not "
    "formed",
    "a factor J of full rank whose rows, in float32, fit in memory; or a matrix near A",
    _refuses,
    _cost,
    _ends,
)
