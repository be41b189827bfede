"""A factorisation, then Lanczos on the inverse for lambda_min and on the matrix for lambda_max.

A matrix of full rank is factorised by Cholesky. One that is singular to working precision gets the
answer of the dense method, from all of its eigenvalues.
"""

from __future__ import annotations

import numpy as np
import scipy

from gnjax.conditioning.ends import GIVEN, Ends, Problem, bound_source
from gnjax.conditioning.methods import dense
from gnjax.conditioning.methods.krylov import MISSED_AT_EITHER_END
from gnjax.conditioning.methods.method import Method
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.host import HostProduct
from gnjax.operators.facts import facts_of, forming_work
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.semidefinite import Enclosure, lower_factor, matrix_on_range
from gnjax.spectra.whole import dense_error

_BLOCK = 8  # vectors in one product: eight cost little more than four, as A is read once
_OVERHEAD = 2e10  # the time of the calls for a small matrix, counted in multiplications
_FORMING = 1e6  # cost of one entry of a matrix that is slow to form: too high to be chosen


def _refuses(problem: Problem) -> str:
    """Why the method does not apply: the matrix is too large, or another rank was given."""
    refused = dense.METHOD.refuses(problem)
    if refused or problem.rank is None or problem.rank == (bound := problem.bound.value):
        return refused
    return (
        "method='inverse' answers for the whole range that structure allows, of rank "
        f"{bound}; for an assumed rank of {problem.rank} use 'factored' or 'dense'"
    )


def _cost(problem: Problem) -> float:
    """Multiplications: those of a Cholesky factorisation, of forming the matrix, and a constant."""
    cost_of_entry = 1.0 if facts_of(problem.op).forms_cheaply else _FORMING
    work = problem.size**3 / 3 + cost_of_entry * problem.size**2
    return _OVERHEAD + work + forming_work(problem.op)


def _ends(problem: Problem) -> Ends | None:
    """Both ends by Lanczos on the matrix and on its inverse; else those of the dense method.

    The inverse is taken of a matrix that has a Cholesky factor. Rounding lets a factorisation
    succeed for a singular matrix, too, and only a smallest eigenvalue above its error proves full
    rank.
    """
    matrix, stored, asymmetry = matrix_on_range(problem.op, problem.limits)
    size = len(matrix)
    factor = lower_factor(matrix) if problem.rank in (None, size) else None
    if factor is None:
        return dense.METHOD.ends(problem)
    top = _largest(lambda rows: rows @ matrix, size, problem.rtol / 4, problem.seed)
    if not np.isfinite(top.high):
        return dense.METHOD.ends(problem)
    errors = dense_error(stored, top.high), asymmetry
    return _of_full_rank(problem, factor, top, errors) or dense.METHOD.ends(problem)


_Errors = tuple[Error, Error]
"""The error of the stored matrix with LAPACK's eigenvalues, and that of taking it as symmetric."""


def _of_full_rank(
    problem: Problem, factor: np.ndarray, top: Enclosure, errors: _Errors
) -> Ends | None:
    """The ends of a matrix M = L L^T with the Cholesky ``factor`` L and largest eigenvalue ``top``.

    lambda_min(M) is 1 / lambda_max(M^{-1}), which Lanczos finds. Both ends are widened by the
    ``errors`` of M. None where lambda_min may then be 0.
    """

    def solve(rows: np.ndarray) -> np.ndarray:
        """M^{-1} v for each row v."""
        return scipy.linalg.cho_solve((factor, True), rows.T, check_finite=False).T

    size = len(factor)
    inverse = _largest(solve, size, problem.rtol / 2, problem.seed)
    if not np.isfinite(inverse.high):
        return None
    # 1 / t turns bounds around: the upper bound of lambda_max(M^{-1}) gives the lower one here
    least = Enclosure(1 / inverse.value, 1 / inverse.high, 1 / inverse.low)
    source = GIVEN if problem.rank is not None else bound_source(problem, size)
    floor = sum(error.value for error in errors)
    smallest = least.widened(floor)
    if not smallest.low > 0:
        return None
    return Ends(
        largest=top.widened(floor),
        smallest=smallest,
        rank=size,
        rank_source=source,
        floor=floor,
        method="inverse",
        certificate=certificate(*errors, chance(MISSED_AT_EITHER_END)),
    )


def _largest(apply: HostProduct, size: int, rtol: float, seed: int) -> Enclosure:
    """The largest eigenvalue of a symmetric matrix of ``size`` rows, by Lanczos on its products.

    It must be positive. The largest Ritz value is a lower bound for certain, up to rounding. The
    upper bound, within ``rtol`` of it, fails with a probability of at most
    ``MISSED_AT_EITHER_END / 2``.
    """

    def nothing_missed(run: lanczos.Run) -> bool:
        """Whether an eigenvalue above (1 + rtol) times the largest Ritz value is improbable."""
        top = float(np.linalg.eigvalsh(run.projection)[-1])
        missed = lanczos.missed_probability(run, top * (1 + rtol))[0]
        return bool(missed <= MISSED_AT_EITHER_END / 2)

    run = lanczos.lanczos(
        apply,
        lanczos.random_rows(size, _BLOCK, seed),
        max_steps=size,
        noise=0.0,
        stop_when=nothing_missed,
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
