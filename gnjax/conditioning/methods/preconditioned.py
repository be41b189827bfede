"""Both ends by products with a factor J, A = J J^T, preconditioned by a sketch of J or by J J^T.

J J^T need not be formed. One pass over the rows of J holds them and makes Y = J S, S a random
sparse embedding; the Cholesky factor L of Y Y^T, or of J J^T in the precision in which J is held
where that is cheaper, is a preconditioner whatever the condition number is. Then few products with
A find both ends, and few more certify them (:mod:`gnjax.spectra.pencil`).
"""

from __future__ import annotations

import numpy as np

from gnjax.conditioning.ends import (
    FLOOR,
    GIVEN,
    Enclosure,
    Ends,
    Problem,
    bound_source,
)
from gnjax.conditioning.methods import inverse
from gnjax.conditioning.methods.base import Method
from gnjax.conditioning.methods.krylov import MISSED, chance
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.rounding import LAPACK, gamma
from gnjax.operators.facts import factorisation_of
from gnjax.spectra.krylov.host_products import check_products
from gnjax.spectra.pencil import Enclosed, End, certified
from gnjax.spectra.pencil.ends import largest_end, smallest_end
from gnjax.spectra.pencil.plan import Plan, planned
from gnjax.spectra.pencil.prepared import Prepared, prepared

_OVERHEAD = 3e10  # the time of small steps, counted in multiplications
_LARGEST_SHARE = 0.1  # of rtol, for the largest eigenvalue, which is far easier to separate
_LOST = 0.25  # the largest share of rtol that holding J in float32 may cost


def _plan(problem: Problem) -> Plan | None:
    factor = factorisation_of(problem.op)
    return None if factor is None else planned(factor, problem.limits)


def _refuses(problem: Problem) -> str:
    if factorisation_of(problem.op) is None:
        return "method='preconditioned' needs an operator that states a factor J with A = J J^T"
    if problem.rank not in (None, problem.size) or problem.rank_bound < problem.size:
        return (
            "method='preconditioned' answers for matrices of full rank alone; use 'factored' or "
            "'dense' for an assumed rank, or where structure allows no full rank"
        )
    if problem.size > problem.limits.matrix_rows:
        return (
            f"method='preconditioned' holds a triangle of {problem.size:,} rows, and limits allow "
            f"{problem.limits.matrix_rows:,}; pass limits=gnjax.Limits(matrix_rows={problem.size})"
        )
    return "" if (plan := _plan(problem)) is None else plan.refused


def _cost(problem: Problem) -> float:
    plan = _plan(problem)
    return np.inf if plan is None else _OVERHEAD + plan.work


def _ends(problem: Problem) -> Ends | None:
    """Both ends, or those of Cholesky and Lanczos on the matrix where J does not resolve them."""
    factor, plan = factorisation_of(problem.op), _plan(problem)
    assert factor is not None
    assert plan is not None
    ready = prepared(factor, plan, problem.seed, problem.watch)
    if ready is not None and not ready.factor.exact:
        least = ready.factor.lost / max(ready.least, np.finfo(float).tiny) ** 0.5
        if 2 * least > _LOST * problem.rtol and plan.wide_fits:
            ready = prepared(factor, plan.wide(), problem.seed, problem.watch)
    ends = None if ready is None else _certified(problem, ready, factor.error())
    return inverse.METHOD.ends(problem) if ends is None else ends


def _certified(problem: Problem, ready: Prepared, stated: Error) -> Ends | None:
    """Both ends, or None where the smallest cannot be told from zero or is not certified."""
    check_products(ready.factor.squared)
    matrix, share = ready.matrix(problem.watch), (1 - 2 * _LARGEST_SHARE) * problem.rtol

    def enclosed(end: End, rtol: float) -> Enclosed:
        return certified(end, rtol, MISSED / 2, problem.seed, problem.watch.is_stopped)

    top = enclosed(largest_end(matrix, ready.block), _LARGEST_SHARE * problem.rtol)
    bottom = enclosed(smallest_end(matrix, ready.triangle, ready.block), share)
    rounding = gamma(max(ready.factor.shape), np.dtype(float)) * ready.factor.squared**0.5
    error = (
        stated
        + Error(ready.factor.lost, reason=f"J is held in {ready.factor.dtype}")
        + LAPACK.to(rounding)
    )
    smallest = _squared(bottom.ritz, bottom.bound, bottom.ritz, error.value)
    certain = smallest.low > 0 and np.isfinite(top.bound)
    if not certain and not problem.watch.stopped:
        return None
    highest = _squared(top.ritz, top.ritz, top.bound, error.value)
    source = bound_source(problem) if certain else FLOOR
    source = source if problem.rank is None else GIVEN
    return Ends(
        highest,
        smallest,
        problem.size,
        source,
        (3 + 2 * 2**0.5) * error.value**2,
        "preconditioned",
        certificate(error, chance(_missed(top, bottom))),
        top.products + bottom.products,
        finished=not problem.watch.stopped,
    )


def _missed(top: Enclosed, bottom: Enclosed) -> float:
    return max(top.missed + bottom.missed, np.finfo(float).tiny)


def _squared(value: float, low: float, high: float, error: float) -> Enclosure:
    """The square of a singular value known to ``error``, whose square without it is enclosed."""
    least = max(max(low, 0.0) ** 0.5 - error, 0.0)
    return Enclosure(value, least**2, (max(high, 0.0) ** 0.5 + error) ** 2)


METHOD = Method(
    "preconditioned",
    "Lanczos on products with a factor J, preconditioned by a random sketch of J; J J^T is not "
    "formed",
    "a factor J of full rank whose rows, in float32, fit in memory",
    _refuses,
    _cost,
    _ends,
)
