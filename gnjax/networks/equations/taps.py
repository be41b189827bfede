"""Evaluate a jaxpr, add arrays to the results of some equations, and keep their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from gnjax.networks.jaxprs import bind_widened, equations_inside, evaluate, scanned

Points = Mapping[Any, tuple[int, int]]
"""The variable of an equation's result to the index of its tap, and the operand that is kept."""


def evaluate_tapped(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    points: Points,
    taps: Mapping[int, jax.Array],
) -> tuple[list[Any], dict[int, Any]]:
    """The results of a jaxpr in which an array, a tap, is added to the result of some equations.

    With a tap of zeros the derivative of a loss by the tap is its derivative by the equation's
    result. The tap and the operand of an equation in the body of a scan have a row for each step.

    Args:
      jaxpr: the equations.
      consts: the values of its constants.
      args: the values of its arguments.
      points: the equations that are tapped, and the operand of each that is kept.
      taps: the arrays, by their indices.

    Returns:
      The results, and the kept operands, by the index of the tap.
    """
    operands_of_points: dict[int, Any] = {}

    def step(body: Any, args: Sequence[Any], rows: Mapping[int, jax.Array]) -> Any:
        """The results of the body of a scan plus one row of each tap, and the kept operands."""
        return evaluate_tapped(body.jaxpr, body.consts, args, points, rows)

    def bind_tapped(eqn: Any, operands: Sequence[Any]) -> Any:
        """The results of one equation, plus its tap if it is tapped; its operand is noted."""
        inside = equations_inside(eqn) if eqn.primitive.name == "scan" else ()
        variables = [v for inner in inside for v in inner.outvars if v in points]
        if variables:
            rows = {points[v][0]: taps[points[v][0]] for v in variables}
            results, operands_of_steps = scanned(eqn, operands, step, rows)
            operands_of_points.update(operands_of_steps)
            return results
        results = bind_widened(eqn, operands)  # evaluates it, slow convolutions in a faster form
        if eqn.primitive.multiple_results or eqn.outvars[0] not in points:
            return results
        index, position = points[eqn.outvars[0]]
        operands_of_points[index] = operands[position]
        return results + taps[index]

    return evaluate(jaxpr, consts, args, bind_tapped), operands_of_points
