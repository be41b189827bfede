"""A function with maxima by comparison beside the function itself: outputs and a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.arguments.refusals import Refused
from gnjax.networks.equations.maxima import ByComparison, differentiates_maxima
from gnjax.networks.jaxprs import coarsest_eps, has_custom_vjp
from gnjax.networks.rounding.numpy_operations import values_by_numpy
from gnjax.numerics.bounded_jit import by_shapes

_ROUNDINGS = 1000.0  # in units of eps
_COARSEST = 0.1  # formats of half the bits round so much that only this is left

_Product = tuple[list[Any], list[Any]]
"""The outputs of a function, and their derivative by its first argument."""


@by_shapes
def compare_maxima(name: str, function: Any, *args: Any) -> None:
    """:func:`compare_by_steps` for a function whose maxima were replaced, once for its shapes.

    Args:
      name: what a refusal calls the function.
      function: what :func:`gnjax.networks.equations.rewritten.rewritten` returns: with replaced
        maxima it is Partial(ByComparison(), f), where f is the function as it came. Another one is
        not evaluated.
      args: its arguments.
    """
    if isinstance(function, Partial) and isinstance(function.func, ByComparison):
        compare_by_steps(name, function.args[0], *args)  # args[0] is f


def compare_by_steps(name: str, function: Any, *args: Any) -> None:
    """Refuse a function whose outputs or derivatives change when its maxima go by comparison.

    Both functions are computed one operation after the other, with NumPy: within one compiled
    program XLA may round a number in two ways, and nothing is compiled so.
    """
    as_it_came = jax.make_jaxpr(function)(*args)
    if not differentiates_maxima(as_it_came.jaxpr):
        return
    results = [
        _derivative_by_steps(one, args) for one in (Partial(ByComparison(), function), function)
    ]
    if differing := _differing(results, _tolerance(function, *args)):
        msg = (
            f"{differing} of {name} with its maxima chosen by comparison differ from those of "
            f"{name} as it came, which is a fault of gnjax; please report it, and until then give "
            "the maxima a rule of their own by jax.custom_jvp, which is left as it is"
        )
        raise Refused(msg)


def _derivative_by_steps(function: Any, args: tuple[Any, ...]) -> _Product:
    """The floating outputs of a function, and their derivative by its first argument.

    It is the one along a random direction, J v, or u^T J where a function has no forward mode.
    """

    def derivative(args: tuple[Any, ...]) -> _Product:
        point, *others = args
        of_point = lambda point: _floating(function(point, *others))  # noqa: E731
        if forward:
            return jax.jvp(of_point, (point,), (_random_like(point),))
        outputs, pullback = jax.vjp(of_point, point)
        return outputs, jax.tree.leaves(pullback(_random_like(outputs)))

    forward = not has_custom_vjp(jax.make_jaxpr(function)(*args).jaxpr)
    closed_jaxpr, shapes = jax.make_jaxpr(derivative, return_shape=True)(args)
    results = values_by_numpy(closed_jaxpr.jaxpr, closed_jaxpr.consts, jax.tree.leaves(args))
    outputs, derivatives = jax.tree.unflatten(jax.tree.structure(shapes), results)
    return outputs, derivatives


def _random_like(tree: Any) -> Any:
    """Normal numbers in arrays like those of a pytree."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape, np.float32).astype(leaf.dtype), tree
    )


def _floating(outputs: Any) -> list[Any]:
    """The leaves of a pytree that float."""
    return [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.floating)]


@by_shapes
def _tolerance(function: Any, *args: Any) -> float:
    """By how much two computations of the function may differ, relative to the largest entry.

    That is 1000 eps of the coarsest floating format in its equations, and at most 0.1.
    """
    eps = coarsest_eps(jax.make_jaxpr(function)(*args).jaxpr)
    return min(_ROUNDINGS * eps, _COARSEST)


def _differing(results: Sequence[_Product], tolerance: float) -> str:
    """What differs between two ``results``, "the outputs" or "the derivatives"; "" if nothing does.

    An output may differ by ``tolerance`` times its own largest entry, and the derivatives by that
    times the largest entry of all of them.
    """
    (outputs, derivatives), (expected_outputs, expected_derivatives) = results
    for output, expected_output in zip(outputs, expected_outputs, strict=True):
        if _distance([output], [expected_output]) > tolerance:
            return "the outputs"
    return "the derivatives" if _distance(derivatives, expected_derivatives) > tolerance else ""


def _distance(computed: Sequence[Any], expected: Sequence[Any]) -> float:
    """max |computed - expected| / max |expected| over the entries of two lists of arrays.

    Entries that are NaN in both, or the same infinity, do not differ. Other pairs in which one is
    not finite differ by infinity.
    """
    numbers, expected_numbers = (
        np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])
        for arrays in (computed, expected)
    )
    same = (numbers == expected_numbers) | (np.isnan(numbers) & np.isnan(expected_numbers))
    largest = np.abs(expected_numbers[np.isfinite(expected_numbers)]).max(initial=0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(numbers - expected_numbers)[~same] / (largest or 1.0)
    return float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max(initial=0.0))
