"""LAPACK's eigenvalues of the formed matrix."""

from __future__ import annotations

from gnjax.conditioning.ends import ends_of_spectrum
from gnjax.conditioning.methods.method import Method
from gnjax.operators.facts import forming_work
from gnjax.spectra.whole import dense_spectrum, why_not_dense

METHOD = Method(
    "dense",
    "LAPACK's eigenvalues of the formed matrix, with their error",
    "a matrix that fits in memory",
    lambda problem: why_not_dense(problem.size, problem.limits),
    lambda problem: 10.0 * problem.size**3 + forming_work(problem.op),
    lambda problem: ends_of_spectrum(problem, dense_spectrum(problem.op, problem.limits)),
)
