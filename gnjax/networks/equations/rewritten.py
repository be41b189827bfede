"""A function as the library differentiates it: in one precision, and with safe maxima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from gnjax.networks.equations.maxima import ByComparison, differentiates_maxima
from gnjax.networks.equations.widen import Widened, traced
from gnjax.numerics.precision import real_dtype


def rewritten(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The function with its equations rewritten where that is needed, and its results' shapes.

    In 64-bit mode float32 inside of the function is replaced by float64
    (:mod:`gnjax.networks.equations.widen`). Maxima that are differentiated are replaced by ones
    that compare their operands (:mod:`gnjax.networks.equations.maxima`). A function that needs
    neither comes back as it is. Nothing is evaluated here;
    :func:`gnjax.networks.equations.beside.compare_maxima` compares the values with those before.
    """
    if real_dtype() == jnp.float64:
        closed_jaxpr, shapes, wider = traced(function, *args)
    else:
        (closed_jaxpr, shapes), wider = jax.make_jaxpr(function, return_shape=True)(*args), None
    replacement = function if wider is None else Partial(wider, function)
    if differentiates_maxima(closed_jaxpr.jaxpr):
        replacement = Partial(ByComparison(), replacement)
    return replacement, shapes


def rewritten_alike(function: Callable[..., Any], example: Any) -> Any:
    """The function with its equations rewritten as those of ``example`` are.

    ``example`` comes from :func:`rewritten`, and is a chain of Partial(rewriting, function), or a
    function that was left as it is. So the same chain is made of ``function``.
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
