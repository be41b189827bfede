"""Singular values of a factor J with A = J J^T."""

from __future__ import annotations

from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods.base import Method
from gnjax.operators.facts import factorisation_of
from gnjax.spectra.eigenvalues import factored_spectrum


def _refuses(problem: Problem) -> str:
    factor = factorisation_of(problem.op)
    if factor is None:
        return (
            "method='factored' needs a factor J with G = J J^T, and this operator states none; "
            "use gnjax.factored(J), or method='dense'"
        )
    if factor.size_in_bytes > problem.limits.factor_bytes:
        return (
            f"the factor, {factor.shape[0]} x {factor.shape[1]}, needs "
            f"{factor.size_in_bytes / 1e9:.0f} GB; use method='krylov'"
        )
    return ""


def _cost(problem: Problem) -> float:
    factor = factorisation_of(problem.op)
    assert factor is not None
    few, many = sorted(factor.shape)
    return 4.0 * few**2 * many


def _ends(problem: Problem) -> Ends | None:
    return ends_of_spectrum(problem, factored_spectrum(problem.op, problem.limits))


METHOD = Method(
    "factored",
    "the singular values of J with A = J J^T; resolves kappa up to about 1e28",
    "a factor J that fits in memory",
    _refuses,
    _cost,
    _ends,
    sharp=True,
)
