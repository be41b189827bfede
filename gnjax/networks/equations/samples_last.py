"""Linear maps with the samples of every layer in the last axis, where XLA multiplies faster.

With the tangents Z (n, f) of a layer and the cotangents D (n, g) behind its weights W (f, g), a
product takes Z W, D W^T and Z^T D. In the last, the longest sum, XLA reads Z the wrong way round
and takes twice as long in float64. Held as Z^T and D^T the three are W^T Z^T, W D^T and Z^T D with
both factors along their rows; only W is left to be transposed, which is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks import jaxprs

_MANY = 64  # rows or columns from which on a transposition is worth its time


@dataclass(frozen=True)
class _Stored:
    """A value of the linear map, stored as it is or transposed (``turned``)."""

    array: Any
    turned: bool

    @property
    def plain(self) -> Any:
        return self.array.T if self.turned else self.array

    @property
    def turn(self) -> Any:
        """The transposed array, if it has two axes."""
        return self.array if self.turned or jnp.ndim(self.array) != 2 else self.array.T


def with_samples_last(
    linear: Callable[[jax.Array], jax.Array], v: jax.Array, samples: int
) -> Callable[..., jax.Array]:
    """A linear map as a pytree, with arrays (f, samples) where ``linear`` has (samples, f)."""
    closed_jaxpr = jaxprs.inlined(linear, v)
    consts = [const.T if _tall(const, samples) else const for const in closed_jaxpr.consts]
    return jax.tree_util.Partial(partial(_run, closed_jaxpr.jaxpr, samples), consts)


def _tall(value: Any, samples: int) -> bool:
    """Whether an array has one row for each sample and is therefore stored transposed."""
    return samples >= _MANY and value.ndim == 2 and value.shape[0] == samples


def _run(jaxpr: Any, samples: int, consts: Sequence[jax.Array], v: jax.Array) -> jax.Array:
    pairs = zip(jaxpr.constvars, consts, strict=True)
    stored_consts = [_Stored(const, _tall(var.aval, samples)) for var, const in pairs]
    (image,) = jaxprs.evaluate(
        jaxpr, stored_consts, [_Stored(v, turned=False)], partial(_bind, samples)
    )
    return image.plain


def _bind(samples: int, eqn: Any, operands: Sequence[Any]) -> Any:
    """An equation applied to stored values and literals."""
    stored_operands = [o if isinstance(o, _Stored) else _Stored(o, turned=False) for o in operands]
    rule = _RULES.get(eqn.primitive.name, _plain)
    tall = _tall(eqn.outvars[0].aval, samples)
    results = rule(eqn, stored_operands, tall) or _plain(eqn, stored_operands, tall)
    return results if eqn.primitive.multiple_results else results[0]


_Rule = Callable[[Any, Sequence[_Stored], bool], list[_Stored] | None]
"""An equation's results, where the first is or is not to be turned; None where a rule has none."""


def _plain(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored]:
    bound = jaxprs.bind(eqn, [o.plain for o in operands])
    results = bound if eqn.primitive.multiple_results else [bound]
    return [_Stored(result, turned=False) for result in results]


def _elementwise(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored] | None:
    if not any(o.turned for o in operands):
        return None
    return [_Stored(jaxprs.bind(eqn, [o.turn for o in operands]), turned=True)]


def _dot(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored] | None:
    """The product A B, or B^T A^T where the result is stored transposed."""
    contracted, shared = eqn.params["dimension_numbers"]
    if shared[0] or len(contracted[0]) != 1 or any(o.array.ndim != 2 for o in operands):
        return None
    left, right = (
        (o.array, 1 - axis if o.turned else axis)
        for o, (axis,) in zip(operands, contracted, strict=True)
    )
    product = _product(*right, *left, eqn) if tall else _product(*left, *right, eqn)
    return [_Stored(product, tall)]


def _product(left: Any, axis: int, right: Any, other: int, eqn: Any) -> jax.Array:
    """The product of two matrices over one axis of each.

    A left factor A^T is transposed in memory first if the right one has many columns.
    """
    if axis == 0 and left.dtype == jnp.float64 and right.shape[1 - other] >= _MANY:
        left, axis = jax.lax.optimization_barrier(left.T), 1
    numbers = (((axis,), (other,)), ((), ()))
    options = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    return jax.lax.dot_general(left, right, numbers, **options)


def _sum(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored] | None:
    if not operands[0].turned:
        return None
    axes = tuple(1 - axis for axis in eqn.params["axes"])
    return [_Stored(operands[0].array.sum(axes), turned=False)]


def _broadcast(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored] | None:
    if not tall:
        return None
    axes = sorted(1 - axis for axis in eqn.params["broadcast_dimensions"])
    shape = eqn.params["shape"][::-1]
    return [_Stored(jax.lax.broadcast_in_dim(operands[0].turn, shape, axes), turned=True)]


def _transpose(eqn: Any, operands: Sequence[_Stored], tall: bool) -> list[_Stored] | None:
    """The transpose of a matrix, by the same array with ``turned`` reversed."""
    if not (tall or operands[0].turned):
        return None
    return [_Stored(operands[0].array, not operands[0].turned)]


_ELEMENTWISE = ("add", "add_any", "convert_element_type", "copy", "div", "mul", "neg", "sub")
_RULES: dict[str, _Rule] = {
    **dict.fromkeys((*_ELEMENTWISE, "select_n"), _elementwise),
    "dot_general": _dot,
    "reduce_sum": _sum,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
}
