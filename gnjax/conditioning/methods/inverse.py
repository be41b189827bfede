"""A factorisation, then Lanczos on the inverse for lambda_min and on the matrix for lambda_max.

A matrix of full rank is factorised by Cholesky. In one that is singular to working precision
lambda_min is the least eigenvalue above the floor s, the error of the eigenvalues of the matrix:
A - s I = L D L^T says how many are above s, and Lanczos on its inverse finds the nearest one. For
10,000 rows that takes a fraction of the time of all eigenvalues.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from gnjax.conditioning.ends import (
    GAP,
    GIVEN,
    Enclosure,
    Ends,
    Problem,
    bound_source,
    open_at_floor,
    source_of_count,
)
from gnjax.conditioning.indefinite import indefinite
from gnjax.conditioning.methods import dense
from gnjax.conditioning.methods.krylov import MISSED_AT_EITHER_END
from gnjax.conditioning.methods.method import Method
from gnjax.conditioning.positive import is_semidefinite, lower_factor, matrix_on_range
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.host import HostProduct
from gnjax.operators.facts import facts_of, forming_work
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.whole import dense_error

_MANY = 1000  # with fewer rows all eigenvalues take less than a second
_BLOCK = 8  # vectors in one product: eight cost little more than four, as A is read once
_OVERHEAD = 2e10  # the time of the calls for a small matrix, counted in multiplications
_FORMING = 1e6  # cost of one entry of a matrix that is slow to form: too high to be chosen


def _refuses(problem: Problem) -> str:
    """Why the method does not apply: the matrix is too large, or another rank was given."""
    refused = dense.METHOD.refuses(problem)
    if not refused and problem.rank is not None and problem.rank != problem.rank_bound:
        return (
            "method='inverse' answers for the whole range that structure allows, of rank "
            f"{problem.rank_bound}; for an assumed rank of {problem.rank} use 'factored' or 'dense'"
        )
    return refused


def _cost(problem: Problem) -> float:
    """Multiplications: those of a Cholesky factorisation, of forming the matrix, and a constant."""
    cost_of_entry = 1.0 if facts_of(problem.op).forms_cheaply else _FORMING
    work = problem.size**3 / 3 + cost_of_entry * problem.size**2
    return _OVERHEAD + work + forming_work(problem.op)


def _ends(problem: Problem) -> Ends | None:
    """Both ends by Lanczos on the matrix and on an inverse; else those of the dense method.

    The inverse is that of the matrix, if it has a Cholesky factor and a smallest eigenvalue above
    its error: rounding lets a factorisation succeed for a singular matrix, and only the eigenvalue
    proves full rank. Otherwise it is that of the matrix less the floor, by :func:`_above_floor`.
    """
    matrix, stored, asymmetry = matrix_on_range(problem)
    size = len(matrix)
    factor = lower_factor(matrix) if problem.rank in (None, size) else None
    may_count = problem.rank is None and size >= _MANY  # whether to count eigenvalues above it
    if factor is None and not may_count:
        return dense.METHOD.ends(problem)
    top = _largest(lambda rows: rows @ matrix, size, problem.rtol / 4, problem.seed)
    if not np.isfinite(top.high):
        return dense.METHOD.ends(problem)
    errors = dense_error(stored, top.high), asymmetry
    ends = None if factor is None else _of_full_rank(problem, factor, top, errors)
    del factor  # which takes as much memory as the matrix, before the next factorisation
    if ends is None and may_count:
        ends = _above_floor(problem, matrix, top, errors)
    return ends or dense.METHOD.ends(problem)


_Errors = tuple[Error, Error]
"""The error of the stored matrix with LAPACK's eigenvalues, and that of taking it as symmetric."""


def _of_full_rank(
    problem: Problem, factor: np.ndarray, top: Enclosure, errors: _Errors
) -> Ends | None:
    """The ends of a matrix M with this Cholesky factor and with the largest eigenvalue ``top``.

    lambda_min(M) is 1 / lambda_max(M^{-1}), which Lanczos finds. None where it is below its error.
    """

    def solve(rows: np.ndarray) -> np.ndarray:
        """M^{-1} v for each row v."""
        return scipy.linalg.cho_solve((factor, True), rows.T, check_finite=False).T

    size = len(factor)
    inverse = _largest(solve, size, problem.rtol / 2, problem.seed)
    if not np.isfinite(inverse.high):
        return None
    least = Enclosure(1 / inverse.value, 1 / inverse.high, 1 / inverse.low)
    source = GIVEN if problem.rank is not None else bound_source(problem, size)
    ends = _ends_between(top, least, size, source, errors)
    return ends if ends.smallest.low > 0 else None


def _above_floor(
    problem: Problem, matrix: np.ndarray, top: Enclosure, errors: _Errors
) -> Ends | None:
    """The largest eigenvalue and the smallest above the floor s, the error of all eigenvalues.

    The number of those above it is assumed to be the rank. The answer is None, and the dense method
    decides, where s is unknown or above the largest eigenvalue, where the matrix is not
    semidefinite, and where as many are above s as structure allows, which would prove the rank.
    """
    floor = sum(error.value for error in errors)
    if not floor < top.low or not is_semidefinite(matrix, floor):
        return None
    counted = _least_above(problem, matrix, floor)
    if counted is None or counted[1] >= problem.rank_bound:
        return None
    least, count = counted
    source = source_of_count(least.value, floor)
    # The smallest one, lambda, is found as s + 1 / mu. Where lambda is far above s, mu is small
    # beside the eigenvalues of the inverse that belong to zeros just below s, and loses digits. So
    # s is moved into the gap, to lambda / 2, and there must be as many eigenvalues above it.
    if source == GAP:
        counted = _least_above(problem, matrix, least.value / 2)
        if counted is None or counted[1] != count:
            return None
        least, _ = counted
    ends = _ends_between(top, least, count, source, errors)
    return replace(ends, smallest=open_at_floor(ends.smallest, source))


def _least_above(
    problem: Problem, matrix: np.ndarray, shift: float
) -> tuple[Enclosure, int] | None:
    """The least eigenvalue of M above the shift s, and how many eigenvalues are above s.

    It is s + 1 / mu with the largest eigenvalue mu of (M - s I)^{-1}, by Lanczos. None where no
    eigenvalue is above s, or where Lanczos does not bound mu.
    """
    factor = indefinite(matrix, shift)
    if factor is None or not factor.above:
        return None
    inverse = _largest(factor.solve, len(matrix), problem.rtol / 2, problem.seed)
    if not 0 < inverse.low <= inverse.high < np.inf:
        return None
    value, low, high = (shift + 1 / mu for mu in (inverse.value, inverse.high, inverse.low))
    return Enclosure(value, low, high), factor.above


def _ends_between(
    top: Enclosure, least: Enclosure, rank: int, source: str, errors: _Errors
) -> Ends:
    """The answer of this method from bounds on both ends, which are widened by the errors."""
    floor = sum(error.value for error in errors)
    return Ends(
        largest=top.widened(floor),
        smallest=least.widened(floor),
        rank=rank,
        rank_source=source,
        floor=floor,
        method="inverse",
        certificate=certificate(*errors, chance(MISSED_AT_EITHER_END)),
    )


def _largest(apply: HostProduct, size: int, rtol: float, seed: int) -> Enclosure:
    """The largest eigenvalue of a symmetric matrix of ``size`` rows, by Lanczos on its products.

    It must be positive, and the upper bound is within ``rtol`` of the value. The largest Ritz value
    is a lower bound for certain, up to rounding. The upper bound fails with a probability of at
    most ``MISSED_AT_EITHER_END / 2``.
    """

    def enough(run: lanczos.Run) -> bool:
        """Whether an eigenvalue above (1 + rtol) times the largest Ritz value is improbable."""
        top = float(np.linalg.eigvalsh(run.projection)[-1])
        missed = lanczos.missed_probability(run, top * (1 + rtol))[0]
        return bool(missed <= MISSED_AT_EITHER_END / 2)

    run = lanczos.lanczos(
        apply,
        lanczos.random_rows(size, _BLOCK, seed),
        max_steps=size,
        noise=0.0,
        enough=enough,
        check_every=2,
    )
    top = float(np.linalg.eigvalsh(run.projection)[-1])
    ceiling = (
        top
        if run.complete
        else lanczos.none_missed_beyond(run, top, top * rtol, MISSED_AT_EITHER_END / 2)
    )
    return Enclosure(top, top, ceiling)


METHOD = Method(
    "inverse",
    "a factorisation, and Lanczos on the inverse and on the matrix",
    "a matrix that fits in memory, best of full rank",
    _refuses,
    _cost,
    _ends,
)
