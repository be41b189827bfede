"""The one treatment of loops, branches and checkpoints whose inner equations go another way.

Every rule takes the function that evaluates equations, an equation that has others inside, and its
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gnjax.networks.jaxprs import CHECKPOINTS, called, scanned

Evaluate = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
"""(jaxpr, constants, arguments) to results."""

MOST_STEPS = 1_000_000  # of a while loop whose steps are counted


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


def _while_loop(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a while loop whose condition and body are computed by ``evaluate``.

    A loop that was vmapped has a condition for each lane, along the first axes of all that it
    carries. It goes on while one of them holds, and a lane whose own does not stays as it is.
    """
    loop, carry = while_loop(eqn, operands)

    def goes_on(values: list[Any]) -> Any:
        return evaluate(loop.condition.jaxpr, loop.condition.consts, loop.of_condition(values))[0]

    def step(values: list[Any]) -> list[Any]:
        results = evaluate(loop.body.jaxpr, loop.body.consts, loop.of_body(values))
        return chosen(goes_on(values), results, values) if loop.lanes else results

    return jax.lax.while_loop(lambda values: jnp.any(goes_on(values)), step, carry)


class WhileLoop(NamedTuple):
    """The condition and the body of a while loop, and what of its operands it does not carry."""

    condition: Any
    body: Any
    condition_consts: Sequence[Any]
    body_consts: Sequence[Any]

    @property
    def lanes(self) -> tuple[int, ...]:
        """The shape of the condition: () but where the loop was vmapped."""
        shape: tuple[int, ...] = self.condition.out_avals[0].shape
        return shape

    def of_condition(self, carry: Sequence[Any]) -> list[Any]:
        """The arguments of the condition."""
        return [*self.condition_consts, *carry]

    def of_body(self, carry: Sequence[Any]) -> list[Any]:
        """The arguments of the body."""
        return [*self.body_consts, *carry]


def while_loop(eqn: Any, operands: Sequence[Any]) -> tuple[WhileLoop, list[Any]]:
    """The loop of a ``while`` equation, and what it carries into its first step."""
    params, body_start = eqn.params, eqn.params["cond_nconsts"]
    carry_start = body_start + params["body_nconsts"]
    consts = operands[:body_start], operands[body_start:carry_start]
    return WhileLoop(params["cond_jaxpr"], params["body_jaxpr"], *consts), [*operands[carry_start:]]


def chosen(lanes: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    """For each array the entries of ``new`` where its lane is true, and of ``old`` elsewhere.

    The axes of ``lanes``, an array of booleans, are the first axes of all arrays.
    """

    def of(after: Any, before: Any) -> Any:
        xp = np if isinstance(after, np.ndarray) and isinstance(before, np.ndarray) else jnp
        shape = (*lanes.shape, *(1,) * (jnp.ndim(after) - lanes.ndim))
        return xp.where(lanes.reshape(shape), after, before)

    return [of(after, before) for after, before in zip(new, old, strict=True)]


def step_counts(eqn: Any, operands: Sequence[Any]) -> np.ndarray:
    """How many steps each lane of a while loop takes, as the compiled loop counts them.

    The answer has the shape of the condition of the ``while`` equation. Other operands than those
    of the model may make a loop that never ends, and after ``MOST_STEPS`` the count stops.
    """
    values = [
        operand if isinstance(operand, jax.Array) else jnp.asarray(operand, v.aval.dtype)
        for operand, v in zip(operands, eqn.invars, strict=True)
    ]
    with jax.disable_jit(False):
        loop, carry = while_loop(eqn, values)
        program = _counted(loop.condition, loop.body)
        return np.asarray(program(loop.condition_consts, loop.body_consts, carry))


@lru_cache(16)
def _counted(condition: Any, body: Any) -> Any:
    """The ``jax.jit`` that counts the steps of a loop with this condition and this body."""

    def counts(condition_consts: Any, body_consts: Any, carry: list[Any]) -> jax.Array:
        loop = WhileLoop(condition, body, condition_consts, body_consts)

        def goes_on(values: list[Any]) -> Any:
            return core.jaxpr_as_fun(condition)(*loop.of_condition(values))[0]

        def step(state: tuple[list[Any], jax.Array]) -> tuple[list[Any], jax.Array]:
            values, count = state
            lanes = goes_on(values)
            results = core.jaxpr_as_fun(body)(*loop.of_body(values))
            return (chosen(lanes, results, values) if loop.lanes else results), count + lanes

        def unfinished(state: tuple[list[Any], jax.Array]) -> jax.Array:
            return jnp.any(goes_on(state[0])) & (state[1].max(initial=0) < MOST_STEPS)

        start = carry, jnp.zeros(loop.lanes, jnp.int32)
        return jax.lax.while_loop(unfinished, step, start)[1]

    return jax.jit(counts)


def _cond(evaluate: Evaluate, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of the branch that the first operand chooses, computed by ``evaluate``."""
    index, *values = operands
    branches = [
        lambda *arguments, inner=inner: evaluate(inner.jaxpr, inner.consts, arguments)
        for inner in eqn.params["branches"]
    ]
    return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *values))


Rule = Callable[[Evaluate, Any, Sequence[Any]], list[Any]]

LOOPS: dict[str, Rule] = {"scan": _scan, "while": _while_loop, "cond": _cond}
"""The rules of loops and branches, where checkpoints count as calls."""

CONTROL_FLOW = {**LOOPS, **dict.fromkeys(CHECKPOINTS, _checkpoint)}
