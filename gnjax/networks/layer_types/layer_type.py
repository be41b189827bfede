"""The description of a type of layer, and of one use of a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from gnjax.networks.jaxprs import bind


@dataclass(frozen=True)
class Relabel:
    """An equation that only moves or selects the entries of an array, and one of its results."""

    equation: Any
    result: int = 0

    def __call__(self, entries: jax.Array) -> jax.Array:
        """The result of the equation for ``entries`` (an array of its operand's shape)."""
        results = bind(self.equation, [entries])
        return results[self.result] if self.equation.primitive.multiple_results else results


@dataclass(frozen=True)
class Loop:
    """A scan of ``length`` steps that a parameter enters.

    The same array is used in every step, or it is sliced along its first axis, one slice a step.
    """

    length: int
    sliced: bool


class Sizes(NamedTuple):
    """The sizes of z_tg = W_g a_tg, where the groups g have a matrix W_g (q_out, q_in) each."""

    groups: int
    inputs: int  # q_in
    outputs: int  # q_out


@dataclass(frozen=True)
class Use:
    """An equation that a parameter W enters: z_tg = W_g a_tg at its positions t, for groups g.

    ``steps`` lead from the parameter to the equation: relabels of its entries, such as reshapes and
    slices, and loops around the equation. A loop that uses the same array in every step adds
    positions, and one that slices it adds groups.
    """

    leaf: int  # index of the parameter among the leaves
    equation: Any
    steps: tuple[Relabel | Loop, ...]
    kind: str  # the primitive of the equation, a name in LAYER_TYPES
    side: int  # the index of the parameter among the operands
    sizes: Sizes  # those of one run of the equation
    terms: int  # how many entries of a_tg are not zero by structure

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around the equation, from the outermost on."""
        return tuple(step for step in self.steps if isinstance(step, Loop))

    @property
    def groups(self) -> int:
        """How many matrices W_g there are, over all steps of loops that slice the parameter."""
        return self.sizes.groups * math.prod(loop.length for loop in self.loops if loop.sliced)

    @property
    def positions(self) -> int:
        """How many inputs a_tg each matrix acts on, over all steps of loops that reuse it."""
        runs = math.prod(loop.length for loop in self.loops if not loop.sliced)
        return runs * (self._shape.size // (self.sizes.groups * self.sizes.outputs))

    @property
    def results(self) -> int:
        """How many numbers the results z_tg of the equation are, over all steps of its loops."""
        return self.positions * self.groups * self.sizes.outputs

    @property
    def operands(self) -> int:
        """How many numbers the operand beside the parameter has, over all steps of its loops."""
        size: int = self.equation.invars[1 - self.side].aval.size
        return math.prod(loop.length for loop in self.loops) * size

    @property
    def tapped(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype of the equation's results over all steps of its loops, (steps, ..).

        An array of zeros of this shape is added to the results, to differentiate by them.
        """
        steps = (loop.length for loop in self.loops)
        return jax.ShapeDtypeStruct((*steps, *self._shape.shape), self._shape.dtype)

    @property
    def _shape(self) -> Any:
        """The shape and dtype of the equation's result, without axes for loops."""
        return self.equation.outvars[0].aval


@dataclass(frozen=True)
class LayerType:
    """One primitive that a parameter W can enter, brought to the form z_tg = W_g a_tg.

    The functions below see one run of the equation of a use, without the loops around it.

    Attributes:
      sizes: from an equation and the index of W among its operands, its :class:`Sizes`; None where
        the equation is not of this form.
      inputs: from the other operand the a_tg as (t, g, q_in).
      sensitivities: from the derivatives (j, ..) of j outputs by the equation's result, the
        delta_tg as (j, t, g, q_out).
      entries: an array of the shape of W, such as a mask, as (g, q_in, q_out).
      one_hot_indices: where each a_t is a unit vector, the index (t,) of its one, from the other
        operand; None for layers whose a_t are any vectors.
    """

    sizes: Callable[[Any, int], Sizes | None]
    inputs: Callable[[Use, jax.Array], jax.Array]
    sensitivities: Callable[[Use, jax.Array], jax.Array]
    entries: Callable[[Use, jax.Array], jax.Array]
    one_hot_indices: Callable[[Use, jax.Array], jax.Array] | None = None
