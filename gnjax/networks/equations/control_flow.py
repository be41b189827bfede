"""The one treatment of loops, branches and checkpoints whose inner equations go another way.

Every rule takes the function that evaluates equations, an equation that has others inside, and its
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.jaxprs import CHECKPOINTS, called, scanned

Evaluate = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
"""(jaxpr, constants, arguments) to results."""


def _checkpoint(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a new checkpoint, whose inner equations are computed by ``evaluate``."""
    jaxpr, consts = called(eqn)
    options = {name: eqn.params[name] for name in ("prevent_cse", "policy")}
    inner = partial(evaluate, jaxpr, consts)
    return list(jax.checkpoint(lambda *args: inner(args), **options)(*operands))


def _scan(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a scan whose body is computed by ``evaluate``."""

    def step(closed_jaxpr: Any, args: Sequence[Any], row: None) -> tuple[list[Any], None]:
        return evaluate(closed_jaxpr.jaxpr, closed_jaxpr.consts, args), row

    return scanned(eqn, operands, step)[0]


def _while(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a while loop whose condition and body are computed by ``evaluate``."""
    condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    body_start = eqn.params["cond_nconsts"]
    carry_start = body_start + eqn.params["body_nconsts"]
    condition_consts, body_consts = operands[:body_start], operands[body_start:carry_start]

    def goes_on(values: list[Any]) -> Any:
        return evaluate(condition.jaxpr, condition.consts, [*condition_consts, *values])[0]

    def step(values: list[Any]) -> list[Any]:
        return evaluate(body.jaxpr, body.consts, [*body_consts, *values])

    return jax.lax.while_loop(goes_on, step, list(operands[carry_start:]))


def _cond(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of the branch that the first operand chooses, computed by ``evaluate``."""
    index, *values = operands
    branches = [
        lambda *arguments, inner=inner: evaluate(inner.jaxpr, inner.consts, arguments)
        for inner in eqn.params["branches"]
    ]
    return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *values))


Rule = Callable[[Evaluate, Any, Sequence[Any]], list[Any]]

LOOPS: dict[str, Rule] = {"scan": _scan, "while": _while, "cond": _cond}
"""The rules of loops and branches, where checkpoints count as calls."""

CONTROL_FLOW = {**LOOPS, **dict.fromkeys(CHECKPOINTS, _checkpoint)}
