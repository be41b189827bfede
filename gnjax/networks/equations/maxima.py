"""Maxima and minima by comparison, whose compiled derivatives are those of the function.

JAX differentiates max(x, y) by asking which of x and y is equal to the maximum. In a compiled
program XLA may compute x a second time for this question, and round it differently: then none is
equal, and the derivative is 0. On CPUs this happens behind LayerNorm and BatchNorm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.equations.control_flow import CONTROL_FLOW
from gnjax.networks.jaxprs import (
    CALLS,
    bind,
    called,
    equations_inside,
    evaluate,
    floats,
    variables,
)

_OF_TWO = {"max": jnp.greater, "min": jnp.less}
_OVER_AXES = {"reduce_max": jnp.greater, "reduce_min": jnp.less}
_MAXIMA = frozenset({*_OF_TWO, *_OVER_AXES})


@dataclass(frozen=True)
class ByComparison:
    """(function, *args) -> function(*args), with maxima that are differentiated by comparison.

    max(x, y) is x where x > y, y where y > x, and x / 2 + y / 2 where both are equal, which has
    JAX's derivative at a tie.
    """

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """The value of the function; without maxima that are differentiated it is called as is."""
        closed_jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        if not differentiates_maxima(closed_jaxpr.jaxpr):
            return function(*args)
        results = _inside(closed_jaxpr.jaxpr, closed_jaxpr.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)


def differentiates_maxima(jaxpr: Any) -> bool:
    """Whether the derivative of the equations is that of some maximum or minimum."""
    return bool(_differentiated(jaxpr, jaxpr.outvars))


def _inside(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of equations, where maxima that are differentiated go by comparison."""
    replaced = _differentiated(jaxpr, jaxpr.outvars)
    return evaluate(jaxpr, consts, list(args), partial(_bind, replaced))


def _differentiated(jaxpr: Any, results: Sequence[Any]) -> frozenset[int]:
    """The ids (by ``id``) of the equations of maxima through which ``results`` are differentiated.

    Minima count as maxima do, and so do loops, branches and checkpoints with maxima inside. A
    derivative stops at numbers that are not floating and at ``stop_gradient``. Equations inside of
    calls count, and those inside of functions with derivative rules do not.
    """
    needed, equation_ids = set(variables(results)), set[int]()
    for eqn in reversed(jaxpr.eqns):
        outputs = [v for v in eqn.outvars if v in needed and floats(v)]
        name = eqn.primitive.name
        if not outputs or name == "stop_gradient":
            continue
        needed.update(variables(eqn.invars))
        if name in CALLS:
            inner, _ = called(eqn)
            results_of_call = zip(eqn.outvars, inner.outvars, strict=True)
            equation_ids |= _differentiated(
                inner, [result for v, result in results_of_call if v in outputs]
            )
            continue
        inside = equations_inside(eqn) if name in CONTROL_FLOW else ()
        if not _MAXIMA.isdisjoint(inner.primitive.name for inner in (eqn, *inside)):
            equation_ids.add(id(eqn))
    return frozenset(equation_ids)


def _bind(replaced: frozenset[int], eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation, with the maxima in ``replaced`` chosen by comparison."""
    name = eqn.primitive.name
    if id(eqn) not in replaced:
        return bind(eqn, operands)
    if name in _OF_TWO:
        return _further(_OF_TWO[name], *operands)
    if name in _OVER_AXES:
        return _over_axes(_OVER_AXES[name], operands[0], eqn.params["axes"])
    return CONTROL_FLOW[name](_inside, eqn, operands)


def _further(compare: Callable[..., jax.Array], x: Any, y: Any) -> jax.Array:
    """The larger of two numbers, or the smaller; at a tie each of them has half the derivative."""
    tied = 0.5 * x + 0.5 * y  # where one is NaN, this is NaN, as both comparisons are false
    return jnp.where(compare(x, y), x, jnp.where(compare(y, x), y, tied))


def _over_axes(compare: Callable[..., jax.Array], x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """The largest entries of x over some axes (jnp.greater), or the smallest (jnp.less).

    Halves of the entries are compared, and halves of the larger ones, and so on. Beside each of
    them goes the count of entries that are equal to it, so that each of c entries that are largest
    has 1 / c of the derivative.
    """
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    length = math.prod(x.shape[axis] for axis in axes)
    rows = jnp.transpose(x, (*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), length)
    best = rows, jnp.ones_like(rows)  # the largest numbers so far, and their counts
    unpaired_entries = []  # they are compared at the end
    while best[0].shape[-1] > 1:
        half = best[0].shape[-1] // 2
        parts = [jnp.split(array, [half, 2 * half], axis=-1) for array in best]
        first, second, unpaired = zip(*parts, strict=True)
        if unpaired[0].shape[-1]:  # the last entry of an odd number of them
            unpaired_entries.append(unpaired)
        best = _better(compare, first, second)
    for unpaired in unpaired_entries:
        best = _better(compare, best, unpaired)
    return jnp.squeeze(best[0], -1)


Counted = tuple[jax.Array, jax.Array]
"""The largest numbers of some groups, and how many entries of each group are equal to them."""


def _better(compare: Callable[..., jax.Array], a: Counted, b: Counted) -> Counted:
    """The larger number x or y of two groups of entries, and how many entries are equal to it.

    At a tie every one of the c + d entries has an equal part of the derivative: that of
    c / (c + d) x + d / (c + d) y. The value of this sum is rounded, so that x itself is taken in
    its place where it is finite.
    """
    (x, x_count), (y, y_count) = a, b
    share = x_count / (x_count + y_count)
    weighted = share * x + (1 - share) * y  # where one is NaN, this is NaN
    # the value of x with the derivative of the weighted sum
    value = jax.lax.stop_gradient(x) + (weighted - jax.lax.stop_gradient(weighted))
    tied = jnp.where(jnp.isfinite(x) & jnp.isfinite(y), value, weighted)
    x_wins, y_wins = compare(x, y), compare(y, x)
    return (
        jnp.where(x_wins, x, jnp.where(y_wins, y, tied)),
        jnp.where(x_wins, x_count, jnp.where(y_wins, y_count, x_count + y_count)),
    )
