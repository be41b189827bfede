"""How kappa of a linear network is computed; its operator brings these methods itself."""

from gnjax.papers.methods import closed_form, krylov

METHODS = {method.METHOD.name: method.METHOD for method in (closed_form, krylov)}

__all__ = ["METHODS"]
