"""Bounds on condition numbers, one function for each theorem of paper A."""

from gnjax.papers.bounds.descents import descent
from gnjax.papers.bounds.functional_hessians import FunctionalHessianBound, functional_hessian
from gnjax.papers.bounds.initial_weights import (
    InitBound,
    asymptotic,
    gaussian_init,
    gaussian_singular_values,
    wide_init,
)
from gnjax.papers.bounds.leaky_relu_networks import LeakyReluBound, leaky_relu
from gnjax.papers.bounds.linear_networks import LinearBound, linear, linear_on_each, of_operator
from gnjax.papers.bounds.sums import Sides, weyl

__all__ = [
    "FunctionalHessianBound",
    "InitBound",
    "LeakyReluBound",
    "LinearBound",
    "Sides",
    "asymptotic",
    "descent",
    "functional_hessian",
    "gaussian_init",
    "gaussian_singular_values",
    "leaky_relu",
    "linear",
    "linear_on_each",
    "of_operator",
    "weyl",
    "wide_init",
]
