"""What two papers need beside the engine: their networks in closed form, bounds and descents.

Paper A is on condition numbers of Gauss-Newton matrices, paper B on the sharpness of balanced
linear networks. The engine does not know this package. What is special about the matrix of a linear
network its operator states as facts, and it brings its own methods of computing kappa. The words
of errors and certificates are explained in ``docs/reference/evidence.md``.
"""

from gnjax.papers import balanced, bounds, training
from gnjax.papers.assumed_rank import RankSensitivity, rank_sensitivity
from gnjax.papers.closed_form import normalised
from gnjax.papers.closed_form.from_weights import linear_gauss_newton, linear_gauss_newtons
from gnjax.papers.closed_form.gauss_newton import LinearGaussNewton
from gnjax.papers.closed_form.leaky_relu import (
    leaky_relu_gauss_newton,
    leaky_relu_gauss_newtons,
)
from gnjax.papers.closed_form.toeplitz import toeplitz
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.papers.kronecker.operator import SumOfKroneckers, sum_of_kroneckers

__all__ = [
    "KroneckerFactors",
    "LinearGaussNewton",
    "RankSensitivity",
    "SumOfKroneckers",
    "balanced",
    "bounds",
    "leaky_relu_gauss_newton",
    "leaky_relu_gauss_newtons",
    "linear_gauss_newton",
    "linear_gauss_newtons",
    "normalised",
    "rank_sensitivity",
    "sum_of_kroneckers",
    "toeplitz",
    "training",
]
