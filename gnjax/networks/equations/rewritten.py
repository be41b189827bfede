"""A function as the library differentiates it: in one precision, and with safe maxima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from gnjax.networks.equations.maxima import ByComparison, differentiates_maxima
from gnjax.networks.equations.widen import Widened, traced
from gnjax.networks.jaxprs import equations_of
from gnjax.numerics.precision import real_dtype


def rewritten(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The function with its equations rewritten where they ask for it, and its results' shapes.

    In 64-bit mode float32 inside of it is widened (:mod:`gnjax.networks.equations.widen`), and
    maxima are chosen by comparison (:mod:`gnjax.networks.equations.maxima`). A function that needs
    neither comes back as it is. Nothing is evaluated here;
    :func:`gnjax.networks.equations.beside.compare_maxima` compares both.
    """
    if real_dtype() == jnp.float64:
        closed_jaxpr, shapes, wider = traced(function, *args)
    else:
        (closed_jaxpr, shapes), wider = equations_of(function, *args), None
    replacement = function if wider is None else Partial(wider, function)
    if differentiates_maxima(closed_jaxpr.jaxpr):
        replacement = Partial(ByComparison(), replacement)
    return replacement, shapes


def rewritten_alike(function: Callable[..., Any], example: Any) -> Any:
    """The function with its equations rewritten as those of ``example`` are.

    ``example`` comes from :func:`rewritten`; the numbers that it holds fixed do not matter.
    """
    if isinstance(example, Partial) and isinstance(example.func, ByComparison | Widened):
        return Partial(example.func, rewritten_alike(function, example.args[0]))
    return function


def is_widened(function: Any) -> bool:
    """Whether float32 inside of the function is computed in float64."""
    if not isinstance(function, Partial):
        return False
    if isinstance(function.func, ByComparison):
        return is_widened(function.args[0])
    return isinstance(function.func, Widened)
