"""The methods of computing kappa. Each file says when its method applies and what it costs.

An operator may bring methods of its own (:mod:`gnjax.operators.facts`).
"""

from gnjax.conditioning.methods import (
    damped,
    dense,
    factored,
    inverse,
    krylov,
    sketched,
    stated,
)
from gnjax.conditioning.methods.method import Method
from gnjax.operators.facts import facts_of
from gnjax.operators.protocol import Operator

METHODS = {
    method.METHOD.name: method.METHOD
    for method in (stated, krylov, factored, damped, sketched, inverse, dense)
}

__all__ = ["METHODS", "Method", "methods_for"]


def methods_for(op: Operator) -> dict[str, Method]:
    """Every method that may apply to an operator: its own ones, and all others, by their names."""
    return METHODS | {method.name: method for method in facts_of(op).methods}
