"""LAPACK's eigenvalues of the formed matrix."""

from __future__ import annotations

from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods.base import Method
from gnjax.spectra.eigenvalues import dense_spectrum


def _refuses(problem: Problem) -> str:
    if problem.size <= problem.limits.matrix_rows:
        return ""
    return (
        f"a dense {problem.size} x {problem.size} matrix needs {8e-9 * problem.size**2:.0f} GB; "
        "use method='krylov'"
    )


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
