"""Loops, branches and checkpoints whose inner equations are evaluated in another way.

Every rule takes a function ``inside``, which evaluates equations, an equation that has others
inside, and its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.jaxprs import scanned, wrapped

Inside = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
"""(jaxpr, constants, arguments) to results."""


def jaxpr_and_consts(eqn: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr and the constants inside an equation."""
    inner = wrapped(eqn)
    assert inner is not None
    return inner


def _checkpoint(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    jaxpr, consts = jaxpr_and_consts(eqn)
    again = {name: eqn.params[name] for name in ("prevent_cse", "policy")}
    return list(jax.checkpoint(lambda *a: inside(jaxpr, consts, a), **again)(*operands))


def _scan(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    def step(closed_jaxpr: Any, args: Sequence[Any], row: None) -> tuple[list[Any], None]:
        return inside(closed_jaxpr.jaxpr, closed_jaxpr.consts, args), None

    return scanned(eqn, operands, step)[0]


def _while(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first = eqn.params["cond_nconsts"]
    second = first + eqn.params["body_nconsts"]
    condition_consts, body_consts = operands[:first], operands[first:second]
    return list(
        jax.lax.while_loop(
            lambda state: inside(condition.jaxpr, condition.consts, [*condition_consts, *state])[0],
            lambda state: inside(body.jaxpr, body.consts, [*body_consts, *state]),
            list(operands[second:]),
        )
    )


def _cond(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    index, *values = operands
    branches = [
        lambda *arguments, inner=inner: inside(inner.jaxpr, inner.consts, arguments)
        for inner in eqn.params["branches"]
    ]
    return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *values))


CONTROL_FLOW: dict[str, Callable[[Inside, Any, Sequence[Any]], list[Any]]] = {
    "checkpoint": _checkpoint,
    "remat": _checkpoint,
    "remat2": _checkpoint,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
