"""Bounds on condition numbers, one function for each theorem of paper A."""

from gnjax.theory.bounds.functional_hessians import FunctionalHessianBound, functional_hessian
from gnjax.theory.bounds.initial_weights import InitBound, asymptotic, gaussian_init
from gnjax.theory.bounds.leaky_relu_networks import LeakyReluBound, leaky_relu
from gnjax.theory.bounds.linear_networks import LinearBound, linear, of_operator
from gnjax.theory.bounds.sums import Sides, weyl

__all__ = [
    "FunctionalHessianBound",
    "InitBound",
    "LeakyReluBound",
    "LinearBound",
    "Sides",
    "asymptotic",
    "functional_hessian",
    "gaussian_init",
    "leaky_relu",
    "linear",
    "of_operator",
    "weyl",
]
