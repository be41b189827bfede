"""Refusals of functions that lack a derivative which a matrix needs; nothing is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from gnjax.networks.forms.refusals import RAISED, first_line
from gnjax.networks.jaxprs import pushforward
from gnjax.numerics.bounded_jit import BoundedJit


def check_differentiable(
    function: Callable[[Any], jax.Array], point: Any, *, forward: bool
) -> None:
    """Refuse a model for which JAX cannot make the products J^T u and J v with its Jacobian J.

    ``function`` maps the parameters, of which ``point`` is one, to the outputs. Where ``forward``
    is false, as with a ``jax.custom_vjp``, there is no forward mode, and J v is the transpose of
    the reverse rule; a rule that is not linear has no transpose and is refused.
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
    if forward:
        return
    try:
        # the second argument of pushforward is v, for which any array of this shape serves
        jax.eval_shape(lambda v: pushforward(function, v, v, forward=False), point)
    except RAISED as error:
        msg = (
            "the model has no Jacobian: forward mode through its jax.custom_vjp is the transpose "
            "of the reverse rule, and that is not linear in the cotangent, as where it clips or "
            f"normalises a gradient ({first_line(error)}); leave that to the optimiser, and give "
            "the model the plain function, or a jax.custom_jvp"
        )
        raise ValueError(msg) from error


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
