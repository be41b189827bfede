"""Symmetric matrices that state what they know about themselves.

The functions of ``gnjax`` make them; their classes have names here, for annotations and questions
of what an operator is.
"""

from gnjax.operators.base import Dense, Factored
from gnjax.operators.diagonal import Diagonal
from gnjax.operators.metrics.preconditioned import Preconditioned
from gnjax.operators.of_networks.cross import CrossKernel
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.operators.of_networks.streamed import Streamed

__all__ = [
    "CrossKernel",
    "Dense",
    "Diagonal",
    "Factored",
    "NetworkGram",
    "NetworkHessian",
    "Preconditioned",
    "Streamed",
]
