"""The methods of computing kappa. Each file says when its method applies and what it costs."""

from gnjax.conditioning.methods import (
    closed_form,
    damped,
    dense,
    factored,
    inverse,
    krylov,
    stated,
)
from gnjax.conditioning.methods.base import Method

METHODS = {
    method.METHOD.name: method.METHOD
    for method in (stated, closed_form, krylov, factored, damped, inverse, dense)
}

__all__ = ["METHODS", "Method"]
