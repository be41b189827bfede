"""Functions with custom derivative rules, whose equations are evaluated in another way.

The rule is traced to equations, in the formats that its function was written for. A function
``evaluate`` then computes the equations of the rule, as it does those of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.equations.control_flow import Evaluate
from gnjax.networks.jaxprs import bind, called


def _shape(v: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of a variable of a jaxpr."""
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)


def _inexact(v: Any) -> bool:
    """Whether a variable of a jaxpr is of floating or complex numbers."""
    return bool(jnp.issubdtype(v.aval.dtype, jnp.inexact))


def _calling(eqn: Any, operands: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """A function of the floating operands of an equation alone that gives its results.

    Integers and booleans among ``operands`` are fixed, since nothing is differentiated by them.
    """

    def call(*floating: Any) -> tuple[Any, ...]:
        """The results of the equation for these floating operands, put between the fixed ones."""
        remaining = iter(floating)
        full = [
            next(remaining) if _inexact(v) else operand
            for v, operand in zip(eqn.invars, operands, strict=True)
        ]
        return tuple(bind(eqn, full))

    return call


def _floating(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The ``values`` of the floating operands of an equation, from those of all its operands."""
    return [value for v, value in zip(eqn.invars, values, strict=True) if _inexact(v)]


def custom_jvp(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a ``jax.custom_jvp`` function, its equations computed by ``evaluate``.

    ``eqn`` calls the function. The equations of its derivative rule are computed by ``evaluate``,
    too, and attached to the results, so that they are differentiated by the function's own rule.
    Function and rule are traced in the formats that they were written for, such as float32;
    ``evaluate(jaxpr, constants, arguments)`` may compute their equations in others.
    """
    jaxpr, consts = called(eqn)

    @jax.custom_jvp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(evaluate(jaxpr, consts, args))

    @function.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        """The values and their tangents, by the function's own rule, computed by ``evaluate``."""

        def own_rule(args: list[Any], floating_tangents: list[Any]) -> Any:
            floating_args = tuple(_floating(eqn, args))
            return jax.jvp(_calling(eqn, args), floating_args, tuple(floating_tangents))

        shapes = [_shape(v) for v in eqn.invars]
        rule = jax.make_jaxpr(own_rule)(shapes, _floating(eqn, shapes))
        arguments = [*primals, *_floating(eqn, tangents)]
        results = evaluate(rule.jaxpr, rule.consts, arguments)
        count = len(eqn.outvars)  # first the values, then their tangents
        return tuple(results[:count]), tuple(results[count:])

    return list(function(*operands))


def custom_vjp(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a ``jax.custom_vjp`` function, its equations computed by ``evaluate``.

    ``eqn`` calls the function. The equations of its derivative rule are computed by ``evaluate``,
    too, and attached to the results, so that they are differentiated by the function's own rule.
    Function and rule are traced in the formats that they were written for, such as float32;
    ``evaluate(jaxpr, constants, arguments)`` may compute their equations in others.
    """
    jaxpr, consts = called(eqn)

    @jax.custom_vjp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(evaluate(jaxpr, consts, args))

    def backwards(args: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the arguments by the function's own rule; None where one is integer."""

        def own_rule(args: list[Any], cotangents: list[Any]) -> Any:
            pullback = jax.vjp(_calling(eqn, args), *_floating(eqn, args))[1]
            return pullback(tuple(cotangents))

        inputs, outputs = [_shape(v) for v in eqn.invars], [_shape(v) for v in eqn.outvars]
        rule = jax.make_jaxpr(own_rule)(inputs, outputs)
        cotangents_of_inputs = iter(evaluate(rule.jaxpr, rule.consts, [*args, *cotangents]))
        return tuple(next(cotangents_of_inputs) if _inexact(v) else None for v in eqn.invars)

    # the rule needs the arguments alone, and runs the function again
    function.defvjp(lambda *args: (function(*args), args), backwards)
    return list(function(*operands))
