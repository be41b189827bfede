"""J v and H v of functions with derivative rules, and the three ways to come by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax

from gnjax.networks.equations.control_flow import CONTROL_FLOW
from gnjax.networks.jaxprs import CALLS, CUSTOM_VJPS, bind, equations_inside, evaluate

Forward = Literal["own", "transposed", "of the equations"]
"""How J v is made. A ``jax.custom_vjp`` has a reverse rule, u -> J^T u, and no forward mode.

- "own": JAX's forward mode; there is no such rule.
- "transposed": the transpose of the reverse rule.
- "of the equations": the forward mode of the function without the rule, where the rule cannot be
  transposed because it holds a loop of unknown length, as that of a loop with checkpoints does.
"""


def pushforward(
    function: Callable[[Any], jax.Array], point: Any, tangent: Any, mode: Forward
) -> tuple[jax.Array, jax.Array]:
    """The value of a function at a point, and its derivative along a tangent."""
    if mode == "own":
        return jax.jvp(function, (point,), (tangent,))
    if mode == "of the equations":
        return jax.jvp(without_rules(function), (point,), (tangent,))
    value, pullback = jax.vjp(function, point)
    (image,) = jax.linear_transpose(lambda u: pullback(u)[0], value)(tangent)
    return value, image


def gradient_along(gradient: Callable[[Any], Any], point: Any, tangent: Any, mode: Forward) -> Any:
    """H v for the Hessian H of a function at a point and a ``tangent`` v, from its ``gradient``.

    It is the forward mode of the gradient, whose equations are those of reverse rules. Such a rule
    often calls its function again, which has no forward mode; with the mode "transposed" it is
    H^T v by the reverse mode, as H is symmetric.
    """
    if mode == "transposed":
        return jax.vjp(gradient, point)[1](tangent)[0]
    return jax.jvp(gradient, (point,), (tangent,))[1]


def without_rules(function: Callable[[Any], jax.Array]) -> Callable[[Any], jax.Array]:
    """The function with the equations of each ``jax.custom_vjp`` in place of its rule."""

    def without_custom_rules(point: Any) -> jax.Array:
        closed_jaxpr = jax.make_jaxpr(function)(point)
        result: jax.Array
        (result,) = _plain(closed_jaxpr.jaxpr, closed_jaxpr.consts, jax.tree.leaves(point))
        return result

    return without_custom_rules


def _plain(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, those of functions with reverse rules by their own equations."""
    return evaluate(jaxpr, consts, args, _bind, {**CALLS, **CUSTOM_VJPS})


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation; loops with such functions inside are made anew without rules."""
    holds_rules = any(inner.primitive.name in CUSTOM_VJPS for inner in equations_inside(eqn))
    if holds_rules and eqn.primitive.name in CONTROL_FLOW:
        return CONTROL_FLOW[eqn.primitive.name](_plain, eqn, operands)
    return bind(eqn, operands)
