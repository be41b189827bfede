"""Functions with custom derivative rules, whose equations are evaluated in another way.

The rule is traced to equations, in the formats that its function was written for. A function
``inside`` then evaluates the equations of the rule, as it does those of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.equations.control_flow import Evaluate
from gnjax.networks.jaxprs import bind, called


def _shape(v: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)


def _inexact(v: Any) -> bool:
    return bool(jnp.issubdtype(v.aval.dtype, jnp.inexact))


def _calling(eqn: Any, operands: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """The equation as a function of its floating operands; the other operands are fixed."""

    def call(*floating: Any) -> tuple[Any, ...]:
        remaining = iter(floating)
        full = [
            next(remaining) if _inexact(v) else operand
            for v, operand in zip(eqn.invars, operands, strict=True)
        ]
        return tuple(bind(eqn, full))

    return call


def _floating(eqn: Any, values: Sequence[Any]) -> list[Any]:
    return [value for v, value in zip(eqn.invars, values, strict=True) if _inexact(v)]


def custom_jvp(inside: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """A function with a forward rule: both are traced in float32 and evaluated in float64."""
    jaxpr, consts = called(eqn)

    @jax.custom_jvp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(inside(jaxpr, consts, args))

    @function.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        def pushed(args: list[Any], moves: list[Any]) -> Any:
            return jax.jvp(_calling(eqn, args), tuple(_floating(eqn, args)), tuple(moves))

        shapes = [_shape(v) for v in eqn.invars]
        rule = jax.make_jaxpr(pushed)(shapes, _floating(eqn, shapes))
        arguments = [*primals, *_floating(eqn, tangents)]
        results = inside(rule.jaxpr, rule.consts, arguments)
        count = len(eqn.outvars)
        return tuple(results[:count]), tuple(results[count:])

    return list(function(*operands))


def custom_vjp(inside: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """A function with a reverse rule: both are traced in float32 and evaluated in float64."""
    jaxpr, consts = called(eqn)

    @jax.custom_vjp
    def function(*args: Any) -> tuple[Any, ...]:
        return tuple(inside(jaxpr, consts, args))

    def backwards(args: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        def pulled(primals: list[Any], weights: list[Any]) -> Any:
            pullback = jax.vjp(_calling(eqn, primals), *_floating(eqn, primals))[1]
            return pullback(tuple(weights))

        ins, outs = [_shape(v) for v in eqn.invars], [_shape(v) for v in eqn.outvars]
        rule = jax.make_jaxpr(pulled)(ins, outs)
        cotangents_of_inputs = iter(inside(rule.jaxpr, rule.consts, [*args, *cotangents]))
        return tuple(next(cotangents_of_inputs) if _inexact(v) else None for v in eqn.invars)

    function.defvjp(lambda *args: (function(*args), args), backwards)
    return list(function(*operands))
