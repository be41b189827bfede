"""The one treatment of loops, branches and checkpoints whose inner equations go another way.

Every rule takes an :class:`Inside`, which says how equations are evaluated, an equation that has
others inside, and its operands.
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


class Inside:
    """Equations inside of others, which are all evaluated by one function.

    A subclass may evaluate every step of a loop in a way of its own, which a state decides: an
    array, such as the seed of random numbers. Its ``condition`` evaluates that of a while loop.
    """

    state: Any = None

    def __init__(self, evaluate: Evaluate) -> None:
        self.condition = evaluate

    def run(self, state: Any, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The results of a step with this state; called where the step is traced."""
        del state
        return self.condition(jaxpr, consts, args)

    def of_steps(self, length: int) -> Any:
        """The states of the steps of a scan."""
        del length

    def after(self, state: Any) -> Any:
        """The state of the step that follows in a while loop."""
        del state


def _checkpoint(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    jaxpr, consts = called(eqn)
    again = {name: eqn.params[name] for name in ("prevent_cse", "policy")}
    run = partial(inside.run, inside.state, jaxpr, consts)
    return list(jax.checkpoint(lambda *a: run(a), **again)(*operands))


def _scan(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The scan, each of whose steps has a state of its own."""

    def step(closed_jaxpr: Any, args: Sequence[Any], state: Any) -> tuple[list[Any], None]:
        return inside.run(state, closed_jaxpr.jaxpr, closed_jaxpr.consts, args), None

    return scanned(eqn, operands, step, inside.of_steps(eqn.params["length"]))[0]


def _while(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The loop with the state of ``inside`` carried along; the condition does not change it."""
    condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first = eqn.params["cond_nconsts"]
    second = first + eqn.params["body_nconsts"]
    condition_consts, body_consts = operands[:first], operands[first:second]

    def goes_on(carry: tuple[Any, list[Any]]) -> Any:
        values = [*condition_consts, *carry[1]]
        return inside.condition(condition.jaxpr, condition.consts, values)[0]

    def step(carry: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        state, values = carry
        results = inside.run(state, body.jaxpr, body.consts, [*body_consts, *values])
        return inside.after(state), results

    return jax.lax.while_loop(goes_on, step, (inside.state, list(operands[second:])))[1]


def _cond(inside: Inside, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    index, *values = operands
    branches = [
        lambda *arguments, inner=inner: inside.run(
            inside.state, inner.jaxpr, inner.consts, arguments
        )
        for inner in eqn.params["branches"]
    ]
    return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *values))


Rule = Callable[[Inside, Any, Sequence[Any]], list[Any]]

LOOPS: dict[str, Rule] = {"scan": _scan, "while": _while, "cond": _cond}
"""The rules of loops and branches, where checkpoints count as calls."""

CONTROL_FLOW = {**LOOPS, **dict.fromkeys(CHECKPOINTS, _checkpoint)}
