"""Cholesky, then Lanczos on the inverse for lambda_min and on the matrix for lambda_max."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gnjax.conditioning.ends import GIVEN, Enclosure, Ends, Problem, bound_source
from gnjax.conditioning.methods import dense
from gnjax.conditioning.methods.base import Method
from gnjax.conditioning.methods.krylov import MISSED
from gnjax.conditioning.positive import cholesky, matrix_on_range
from gnjax.numerics.certificate import certificate
from gnjax.operators.facts import forming_work, forms_cheaply
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.whole import dense_error

_BLOCK = 8  # vectors in one product: eight cost little more than four, as A is read once
_OVERHEAD = 2e10  # the time of the calls for a small matrix, counted in multiplications
_FORMING = 1e6  # cost of one entry of a matrix that is slow to form: too high to be chosen


def _refuses(problem: Problem) -> str:
    refused = dense.METHOD.refuses(problem)
    if not refused and problem.rank is not None and problem.rank != problem.rank_bound:
        return (
            "method='inverse' answers for the whole range that structure allows, of rank "
            f"{problem.rank_bound}; for an assumed rank of {problem.rank} use 'factored' or 'dense'"
        )
    return refused


def _cost(problem: Problem) -> float:
    cost_of_entry = 1.0 if forms_cheaply(problem.op) else _FORMING
    work = problem.size**3 / 3 + cost_of_entry * problem.size**2
    return _OVERHEAD + work + forming_work(problem.op)


def _ends(problem: Problem) -> Ends | None:
    """Both ends by Lanczos, or by the dense method for a matrix singular to working precision.

    Because of rounding a Cholesky factorisation can succeed for a singular matrix. Only a smallest
    eigenvalue that is larger than its error proves full rank.
    """
    matrix, stored, asymmetry = matrix_on_range(problem)
    size = len(matrix)
    factor = cholesky(matrix) if problem.rank in (None, size) else None
    if factor is None:
        return dense.METHOD.ends(problem)

    def solve(rows: np.ndarray) -> np.ndarray:
        return scipy.linalg.cho_solve((factor, True), rows.T, check_finite=False).T

    top = _largest(lambda rows: rows @ matrix, size, problem.rtol / 4, problem.seed)
    inverse = _largest(solve, size, problem.rtol / 2, problem.seed)
    if not np.isfinite([top.high, inverse.high]).all():
        return dense.METHOD.ends(problem)
    own = dense_error(stored, top.high)
    error = own + asymmetry
    smallest = Enclosure(1 / inverse.value, 1 / inverse.high, 1 / inverse.low).widened(error.value)
    if not smallest.low > 0:
        return dense.METHOD.ends(problem)
    source = GIVEN if problem.rank is not None else bound_source(problem, size)
    return Ends(
        top.widened(error.value),
        smallest,
        size,
        source,
        error.value,
        "inverse",
        certificate(own, asymmetry, chance(MISSED)),
    )


def _largest(apply: lanczos.Apply, size: int, rtol: float, seed: int) -> Enclosure:
    """The largest eigenvalue of a positive definite operator, to a relative error of rtol.

    The upper bound fails with a probability of at most ``MISSED / 2``.
    """

    def enough(run: lanczos.Run) -> bool:
        top = float(np.linalg.eigvalsh(run.projection)[-1])
        return bool(lanczos.missed_probability(run, top * (1 + rtol))[0] <= MISSED / 2)

    run = lanczos.lanczos(
        apply,
        lanczos.random_rows(size, _BLOCK, seed),
        max_steps=size,
        noise=0.0,
        enough=enough,
        check_every=2,
    )
    top = float(np.linalg.eigvalsh(run.projection)[-1])
    ceiling = top if run.complete else lanczos.none_missed_beyond(run, top, top * rtol, MISSED / 2)
    return Enclosure(top, top, ceiling)


METHOD = Method(
    "inverse",
    "Cholesky, and Lanczos on the inverse and on the matrix",
    "a matrix of full rank that fits in memory",
    _refuses,
    _cost,
    _ends,
)
