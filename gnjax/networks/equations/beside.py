"""A function with maxima by comparison beside the function itself: outputs and a product u^T J."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.equations.control_flow import LOOPS
from gnjax.networks.equations.maxima import ByComparison, differentiates_maxima
from gnjax.networks.forms.refusals import Refused
from gnjax.networks.jaxprs import (
    CALLS_AND_CHECKPOINTS,
    bind,
    coarsest_eps,
    evaluate,
)
from gnjax.numerics.bounded_jit import bounded_jit, by_shapes

_ROUNDINGS = 1000.0  # in units of eps
_COARSEST = 0.1  # formats of half the bits round so much that only this is left

_Product = tuple[list[Any], list[Any]]
"""The outputs of a function, and u^T J, by the leaves of its first argument; J is by this one."""


def compare_maxima(name: str, function: Any, *args: Any) -> None:
    """Check that a function with its maxima replaced computes what it did before, or refuse it.

    Its outputs, and one product u^T J with its Jacobian J by the first argument, are compared with
    those of the function as it came. If they differ in one compiled program, JAX's own maxima may
    be at fault, and :func:`compare_by_steps` decides. A function without replaced maxima is not
    evaluated.

    Args:
      name: what a refusal calls the function.
      function: what :func:`gnjax.networks.equations.rewritten.rewritten` returns: with replaced
        maxima it is Partial(ByComparison(), f), where f is the function as it came.
      args: its arguments.
    """
    if not (isinstance(function, Partial) and isinstance(function.func, ByComparison)):
        return
    cotangents = _cotangents(function, *args)
    tolerance = _tolerance(function, *args)
    if _differing(_in_one_program(function, args, cotangents), tolerance):
        compare_by_steps(name, function.args[0], *args)  # args[0] is f


def compare_by_steps(name: str, function: Any, *args: Any) -> None:
    """Refuse a function whose outputs or derivatives change when its maxima go by comparison.

    Both functions are computed one operation after the other, since XLA may round a number in two
    ways within one program. The derivatives are u^T J with the Jacobian J by the first argument.
    """
    as_it_came = jax.make_jaxpr(function)(*args)
    if not differentiates_maxima(as_it_came.jaxpr):
        return
    by_comparison = jax.make_jaxpr(Partial(ByComparison(), function))(*args)
    both = [partial(_at_leaves, equations) for equations in (by_comparison, as_it_came)]
    cotangents = _cotangents(function, *args)
    with jax.disable_jit():  # loops, too, go step by step
        results = [_product(by_steps, args, cotangents) for by_steps in both]
    if differing := _differing(results, _tolerance(function, *args)):
        msg = (
            f"{differing} of {name} with its maxima chosen by comparison differ from those of "
            f"{name} as it came, which is a fault of gnjax; please report it, and until then give "
            "the maxima a rule of their own by jax.custom_jvp, which is left as it is"
        )
        raise Refused(msg)


def _at_leaves(closed_jaxpr: Any, *args: Any) -> list[Any]:
    """The results of a closed jaxpr for pytrees, one operation after the other."""
    return _steps(closed_jaxpr.jaxpr, closed_jaxpr.consts, jax.tree.leaves(args))


def _steps(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of equations, one operation after the other, also those inside of calls."""
    return evaluate(jaxpr, consts, args, _bind, CALLS_AND_CHECKPOINTS)


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of one equation; loops and branches have their inner equations go by steps."""
    if eqn.primitive.name in LOOPS:
        return LOOPS[eqn.primitive.name](_steps, eqn, operands)
    return bind(eqn, operands)


# What is compiled here runs once or twice, so that most of the compiler's work would be lost.
@bounded_jit(
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    }
)
def _in_one_program(
    function: Any, args: tuple[Any, ...], cotangents: Sequence[Any]
) -> list[_Product]:
    """Outputs and u^T J of a function with maxima by comparison, and of the function as it came."""
    return [_product(one, args, cotangents) for one in (function, function.args[0])]


def _product(function: Callable[..., Any], args: tuple[Any, ...], cotangents: Any) -> _Product:
    """The floating outputs of a function, and u^T J with its Jacobian J by the first argument."""
    first, *others = args
    outputs, pullback = jax.vjp(lambda point: _floating(function(point, *others)), first)
    return outputs, jax.tree.leaves(pullback(list(cotangents)))


def _floating(outputs: Any) -> list[Any]:
    """The leaves of a pytree that float."""
    return [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _cotangents(function: Any, *args: Any) -> list[np.ndarray]:
    """An array u of normal numbers for each floating output of ``function(*args)``."""
    rng = np.random.default_rng(0)
    shapes = _floating(jax.eval_shape(function, *args))
    return [rng.standard_normal(leaf.shape).astype(leaf.dtype) for leaf in shapes]


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
