"""Certified condition numbers and spectra of Gauss-Newton matrices (importing changes nothing)."""

from importlib import import_module
from typing import TYPE_CHECKING

from gnjax import answers, data, models, operators
from gnjax.conditioning.condition_number import condition_number
from gnjax.diagnosis.block_spectra import block_spectra
from gnjax.diagnosis.diagnose import diagnose
from gnjax.diagnosis.frequency import frequency_bands
from gnjax.diagnosis.monitor import Monitor
from gnjax.models import initializers
from gnjax.networks.model import functional
from gnjax.networks.torch_modules.from_torch import from_torch
from gnjax.numerics.certificate import Certificate, Error
from gnjax.numerics.extras import own_version
from gnjax.numerics.limits import Limits
from gnjax.numerics.precision import enable_x64, x64
from gnjax.operators import metrics
from gnjax.operators.algebra import Algebra
from gnjax.operators.curvature import (
    empirical_fisher,
    functional_hessian,
    gauss_newton,
    hessian,
    ntk,
)
from gnjax.operators.elsewhere.recognised import as_operator
from gnjax.operators.metrics.with_metric import preconditioned
from gnjax.operators.of_networks.function_hessian import hessian_of
from gnjax.operators.of_networks.linearised import linearised
from gnjax.operators.of_networks.stored_jacobian import with_jacobian
from gnjax.operators.protocol import Operator
from gnjax.operators.stored.diagonal import diagonal
from gnjax.operators.stored.matrices import dense, factored
from gnjax.pictures.plot import plot
from gnjax.spectra.certify import certify
from gnjax.spectra.density import spectral_density
from gnjax.spectra.diagonal_estimate import estimate_diagonal
from gnjax.spectra.eigenvalues import eigenvalues
from gnjax.spectra.functions.frobenius import distance
from gnjax.spectra.functions.inverse_diagonal import inverse_diagonal
from gnjax.spectra.functions.predictive_variance import predictive_variance
from gnjax.spectra.functions.solve import solve
from gnjax.spectra.functions.trace_of import effective_dimension, logdet, trace_of
from gnjax.spectra.trace import trace

__version__ = own_version()

__all__ = [
    "Algebra",
    "Certificate",
    "Error",
    "Limits",
    "Monitor",
    "Operator",
    "answers",
    "as_operator",
    "block_spectra",
    "certify",
    "condition_number",
    "data",
    "dense",
    "diagnose",
    "diagonal",
    "distance",
    "effective_dimension",
    "eigenvalues",
    "empirical_fisher",
    "enable_x64",
    "estimate_diagonal",
    "factored",
    "frequency_bands",
    "from_torch",
    "functional",
    "functional_hessian",
    "gauss_newton",
    "hessian",
    "hessian_of",
    "initializers",
    "inverse_diagonal",
    "linearised",
    "logdet",
    "metrics",
    "models",
    "ntk",
    "operators",
    "plot",
    "preconditioned",
    "predictive_variance",
    "solve",
    "spectral_density",
    "trace",
    "trace_of",
    "with_jacobian",
    "x64",
]

_MOVED = {
    "metrics": metrics.__all__,
    "operators": operators.__all__,
    "papers": [
        "KroneckerFactors",
        "RankSensitivity",
        "SumOfKroneckers",
        "balanced",
        "bounds",
        "leaky_relu_gauss_newton",
        "linear_gauss_newton",
        "rank_sensitivity",
        "sum_of_kroneckers",
        "toeplitz",
        "training",
    ],
}
"""In which room names stand that once stood here. Those of ``answers`` are still found here."""

if not TYPE_CHECKING:  # a type checker shall still refuse names that do not exist

    def __getattr__(name):
        """``gnjax.papers``, imported when it is first used; answers; and where names have gone."""
        if name == "papers":
            return import_module("gnjax.papers")
        if name in answers.__all__:
            return getattr(answers, name)
        rooms = [room for room, names in _MOVED.items() if name in names]
        where = f"; it is gnjax.{rooms[0]}.{name} now" if rooms else ""
        msg = f"module 'gnjax' has no attribute {name!r}{where}"
        raise AttributeError(msg)
