"""Singular values of a factor J with A = J J^T."""

from __future__ import annotations

from gnjax.conditioning.ends import Problem, ends_of_spectrum
from gnjax.conditioning.methods.method import Method
from gnjax.operators.facts import factorisation_of
from gnjax.spectra.whole import factored_spectrum, why_not_factored


def _cost(problem: Problem) -> float:
    """Multiplications for the singular values of J; it refuses an operator without a factor."""
    factor = factorisation_of(problem.op)
    assert factor is not None
    shorter_side, longer_side = sorted(factor.shape)
    return 4.0 * shorter_side**2 * longer_side


METHOD = Method(
    "factored",
    "the singular values of J with A = J J^T; resolves kappa up to about 1e28",
    "a factor J that fits in memory",
    lambda problem: why_not_factored(factorisation_of(problem.op), problem.limits),
    _cost,
    lambda problem: ends_of_spectrum(problem, factored_spectrum(problem.op)),
    sharp=True,
)
