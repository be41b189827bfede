"""Block Lanczos on sums of Kronecker products, with a preconditioner made of their factors."""

from __future__ import annotations

from typing import Any

from gnjax.conditioning.ends import FLOOR, GIVEN, Ends, Problem, bound_source
from gnjax.conditioning.methods import Method, inverse
from gnjax.conditioning.methods.krylov import MISSED_AT_EITHER_END, OVERHEAD
from gnjax.numerics.certificate import Error, certificate
from gnjax.operators.facts import symmetry_of
from gnjax.papers.kronecker import kronecker_ends
from gnjax.papers.kronecker.on_range import OnRange
from gnjax.papers.kronecker.operator import product_rounding
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.semidefinite import Enclosure

_FAR = 4.0  # times its error: an eigenvalue is distinguished from zero from there on
_PRODUCTS = 600.0  # the number of products that a run is assumed to make, to estimate its cost


def _refuses(problem: Problem) -> str:
    """Why the method has no answer, or ""."""
    if problem.rank in (None, problem.bound.value):
        return ""
    return (
        f"method='krylov' finds the end of the range, whose rank is at most {problem.bound.value}; "
        f"for an assumed rank of {problem.rank} use method='factored' or 'dense'"
    )


def _cost(problem: Problem) -> float:
    """About how many operations the runs take, with A_l (k, k) and B_l (d, d), l = 1 .. depth."""
    op: Any = problem.op
    depth, k, _ = op.lefts.shape
    d = op.rights.shape[-1]
    return OVERHEAD + _PRODUCTS * depth * k * d * (k + d) + 10.0 * d**3


def _ends(problem: Problem) -> Ends | None:
    """The largest and the smallest non-zero eigenvalue of G = sum_l A_l (x) B_l, with bounds.

    G is restricted to the largest range that structure allows, of dimension ``bound.value``. Where
    the terms are far from their mean, the rounding of preconditioned products can hide that the
    smallest eigenvalue is positive; then a factorisation of the matrix answers, if that is small
    enough. None where no eigenvalue exceeds its error.
    """
    if problem.bound.value == 0:
        return None
    op: Any = problem.op
    small: OnRange = op.on_range()
    rounding = product_rounding(small.operator)
    error = small.error(0.0) + Error(rounding, reason="rounding of a product")
    top, bottom = kronecker_ends.ends(
        small, rtol=problem.rtol, missed=MISSED_AT_EITHER_END / 2, seed=problem.seed
    )
    if top.ritz <= error.value:
        return None
    hidden = bottom.bound <= error.value and bottom.ritz > _FAR * error.value
    if hidden and not inverse.METHOD.refuses(problem):
        return inverse.METHOD.ends(problem)
    smallest = Enclosure(
        bottom.ritz, max(bottom.bound - error.value, 0.0), bottom.ritz + error.value
    )
    source = FLOOR if smallest.low <= 0 else bound_source(problem, problem.bound.value)
    return Ends(
        Enclosure(top.ritz, top.ritz - error.value, top.bound + error.value),
        smallest,
        problem.bound.value,
        source if problem.rank is None else GIVEN,
        error.value,
        "krylov",
        certificate(error, chance(top.missed + bottom.missed), symmetry_of(op)),
        top.products + bottom.products,
    )


METHOD = Method(
    "krylov",
    "block Lanczos on products of the factors, preconditioned by the mean of the terms; certified "
    "by the chance that a random start misses an eigenvalue",
    "the largest rank that the layers allow",
    _refuses,
    _cost,
    _ends,
)
