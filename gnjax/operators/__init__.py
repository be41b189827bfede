"""Symmetric matrices that state what they know about themselves.

The functions of ``gnjax`` make them. Their classes have names here, for annotations and questions
of what an operator is; ``Facts`` is the record in which an operator states what it knows, and
``docs/reference/evidence.md`` explains the words for how that is known.
"""

from gnjax.operators.facts import Facts
from gnjax.operators.metrics.with_metric import Preconditioned
from gnjax.operators.of_networks.cross import CrossKernel
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.of_networks.streamed import Streamed
from gnjax.operators.stored.diagonal import Diagonal
from gnjax.operators.stored.matrices import Dense, Factored

__all__ = [
    "CrossKernel",
    "Dense",
    "Diagonal",
    "Factored",
    "Facts",
    "NetworkGram",
    "NetworkHessian",
    "Preconditioned",
    "Streamed",
]
