"""LAPACK's eigenvalues of the formed matrix."""

from __future__ import annotations

from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods.base import Method
from gnjax.spectra.whole import dense_spectrum, why_not_dense


def _refuses(problem: Problem) -> str:
    return why_not_dense(problem.size, problem.limits)


def _cost(problem: Problem) -> float:
    return 10.0 * problem.size**3


def _ends(problem: Problem) -> Ends | None:
    return ends_of_spectrum(problem, dense_spectrum(problem.op, problem.limits))


METHOD = Method(
    "dense",
    "LAPACK's eigenvalues of the formed matrix, with their error",
    "a matrix that fits in memory",
    _refuses,
    _cost,
    _ends,
)
