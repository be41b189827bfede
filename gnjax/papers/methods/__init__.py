"""How kappa of a linear network is computed; its operator brings these methods itself."""

from gnjax.papers.methods import closed_form, kronecker_krylov

METHODS = {method.METHOD.name: method.METHOD for method in (closed_form, kronecker_krylov)}

__all__ = ["METHODS"]
