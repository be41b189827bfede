"""Certified condition numbers and spectra of Gauss-Newton matrices (importing changes nothing)."""

from gnjax import bounds, data, initializers, models
from gnjax.closed_form import linear_gauss_newton
from gnjax.conditioning import ConditionNumber, condition_number
from gnjax.operators import (
    Dense,
    Factored,
    KroneckerFactors,
    Operator,
    SumOfKroneckers,
    dense,
    factored,
    sum_of_kroneckers,
)
from gnjax.precision import enable_x64, x64
from gnjax.spectrum import Spectrum, eigenvalues

__all__ = [
    "ConditionNumber",
    "Dense",
    "Factored",
    "KroneckerFactors",
    "Operator",
    "Spectrum",
    "SumOfKroneckers",
    "bounds",
    "condition_number",
    "data",
    "dense",
    "eigenvalues",
    "enable_x64",
    "factored",
    "initializers",
    "linear_gauss_newton",
    "models",
    "sum_of_kroneckers",
    "x64",
]
