"""Symmetric matrices that state what they know about themselves.

The functions of ``gnjax`` make them. Their classes have names here, for annotations and questions
of what an operator is, and so have functions that make operators which few need.
"""

from gnjax.operators.metrics.preconditioned import Preconditioned
from gnjax.operators.of_networks.cross import CrossKernel
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.operators.of_networks.streamed import Streamed
from gnjax.operators.stored.diagonal import Diagonal
from gnjax.operators.stored.matrices import Dense, Factored

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
