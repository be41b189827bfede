"""Functions with custom derivative rules, whose equations are evaluated in another way.

The rule is traced to equations, in the formats that its function was written for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from gnjax.networks.equations.control_flow import Evaluate
from gnjax.networks.jaxprs import bind, called, inexact


def _shape(v: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of a variable of a jaxpr."""
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)


def _call(eqn: Any, operands: Sequence[Any], *floating: Any) -> tuple[Any, ...]:
    """The results of an equation for other floating operands; the others are fixed."""
    remaining = iter(floating)
    full = [
        next(remaining) if inexact(v.aval) else operand
        for v, operand in zip(eqn.invars, operands, strict=True)
    ]
    return tuple(bind(eqn, full))


def _floating(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The ``values`` of the floating operands of an equation, from those of all its operands."""
    return [value for v, value in zip(eqn.invars, values, strict=True) if inexact(v.aval)]


def custom_jvp(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a ``jax.custom_jvp`` function, its equations computed by ``evaluate``.

    They are differentiated by the function's own rule, whose equations ``evaluate`` computes, too.
    """
    jaxpr, consts = called(eqn)

    @jax.custom_jvp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(evaluate(jaxpr, consts, args))

    @function.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        def own_rule(args: list[Any], floating_tangents: list[Any]) -> Any:
            floating_args = tuple(_floating(eqn, args))
            return jax.jvp(partial(_call, eqn, args), floating_args, tuple(floating_tangents))

        shapes = [_shape(v) for v in eqn.invars]
        rule = jax.make_jaxpr(own_rule)(shapes, _floating(eqn, shapes))
        arguments = [*primals, *_floating(eqn, tangents)]
        results = evaluate(rule.jaxpr, rule.consts, arguments)
        count = len(eqn.outvars)  # first the values, then their tangents
        return tuple(results[:count]), tuple(results[count:])

    return list(function(*operands))


def custom_vjp(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a ``jax.custom_vjp`` function, its equations computed by ``evaluate``.

    They are differentiated by the function's own rule, whose equations ``evaluate`` computes, too.
    """
    jaxpr, consts = called(eqn)

    @jax.custom_vjp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(evaluate(jaxpr, consts, args))

    def backwards(args: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        def own_rule(args: list[Any], cotangents: list[Any]) -> Any:
            pullback = jax.vjp(partial(_call, eqn, args), *_floating(eqn, args))[1]
            return pullback(tuple(cotangents))

        inputs, outputs = [_shape(v) for v in eqn.invars], [_shape(v) for v in eqn.outvars]
        rule = jax.make_jaxpr(own_rule)(inputs, outputs)
        cotangents_of_inputs = iter(evaluate(rule.jaxpr, rule.consts, [*args, *cotangents]))
        return tuple(next(cotangents_of_inputs) if inexact(v.aval) else None for v in eqn.invars)

    # the rule needs the arguments alone, and runs the function again
    function.defvjp(lambda *args: (function(*args), args), backwards)
    return list(function(*operands))
