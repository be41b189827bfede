"""Refusals of functions that lack a derivative which a matrix needs; nothing is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gnjax.networks.arguments.refusals import RAISED, first_line
from gnjax.networks.equations.forward_mode import Forward, pushforward
from gnjax.networks.jaxprs import equations
from gnjax.numerics.bounded_jit import BoundedJit


def checked_mode(function: Callable[[Any], jax.Array], point: Any, mode: Forward) -> Forward:
    """How JAX makes the products J v with the Jacobian J of a model, which needs J^T u as well.

    ``function`` maps the parameters, of which ``point`` is one, to the outputs, and ``mode`` is
    "transposed" where it holds a ``jax.custom_vjp``. A reverse rule that JAX cannot transpose, as
    one with a loop of unknown length, is left out where the function itself has a forward mode. A
    model without J^T u or without J v is refused.
    """

    def backward(point: Any) -> Any:
        outputs, pullback = jax.vjp(function, point)
        return pullback(outputs)

    try:
        jax.eval_shape(backward, point)
    except RAISED as error:
        msg = (
            f"the model cannot be differentiated: {first_line(error)}; write a while loop as "
            "jax.lax.scan or with a fixed number of steps, or give it a rule of its own by "
            "jax.custom_vjp"
        )
        raise ValueError(msg) from error
    if mode == "own":
        return mode
    failures = []
    equations_of_rules = equations(jax.make_jaxpr(backward)(point).jaxpr)
    has_loop = any(eqn.primitive.name == "while" for eqn in equations_of_rules)
    # a rule without a loop that cannot be transposed is not linear, and no derivative of anything
    modes: list[Forward] = ["transposed"]
    if has_loop:
        modes.append("of the equations")
    for possible in modes:
        try:
            # the third argument of pushforward is v, for which any array of this shape serves
            jax.eval_shape(partial(_pushed, function, possible), point)
        except RAISED as error:
            failures.append(error)
        else:
            return possible
    msg = (
        "the model has no Jacobian: forward mode through its jax.custom_vjp is the transpose of "
        f"the reverse rule, and JAX cannot transpose it ({first_line(failures[0])}): it is not "
        "linear in the cotangent, as where it clips or normalises a gradient, or holds a loop of "
        "unknown length; leave that to the optimiser, and give the model the plain function, "
        "or a jax.custom_jvp"
    )
    raise ValueError(msg) from failures[0]


def _pushed(function: Callable[[Any], jax.Array], mode: Forward, v: Any) -> Any:
    """F(v), and its derivative along v, in one of the modes."""
    return pushforward(function, v, v, mode)


def check_second_derivative(name: str, product: BoundedJit[..., Any], *args: Any) -> None:
    """Refuse a function, ``name`` in the message, with a second derivative that JAX cannot make.

    That is ``product(*args)``, which is traced and not evaluated.
    """
    try:
        # ``of`` gives the jax.jit that the product keeps for the functions in its first argument
        product.of(args[0]).eval_shape(*args)
    except RAISED as error:
        msg = (
            f"{name} cannot be differentiated twice: a Hessian differentiates the rule of a "
            f"jax.custom_vjp or of a callback as well, and JAX cannot ({first_line(error)}); write "
            "the rule with jax.numpy alone, or give the plain function"
        )
        raise ValueError(msg) from error


def has_product(product: BoundedJit[..., Any], *args: Any) -> bool:
    """Whether JAX can trace ``product(*args)``, which is not evaluated."""
    try:
        product.of(args[0]).eval_shape(*args)
    except RAISED:
        return False
    return True
