"""What a type of layer says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax


@dataclass(frozen=True)
class Layer:
    """Where one parameter enters, and how to bring its entries to the order (q_in, q_out)."""

    leaf: int
    equation: int
    relabels: tuple[Any, ...]
    kind: str  # the primitive of the equation, a name in LAYER_TYPES
    side: int  # of the parameter among the operands
    inputs: int  # q_in
    outputs: int  # q_out
    positions: int  # t
    terms: int  # the entries of a_t that are not zero by structure


@dataclass(frozen=True)
class LayerType:
    """One primitive that a parameter W can enter, brought to the form z_t = W a_t.

    Attributes:
      sizes: of an equation and the side of W among its operands, (q_in, q_out); None where the
        equation is not of this form.
      inputs: the a_t as (t, q_in), from the other operand.
      sensitivities: the delta_t as (j, t, q_out), from those to the equation's result, (j, ..).
      entries: an array of the shape of W as (q_in, q_out).
      places: where each a_t is a unit vector, the place (t,) of its one, from the other operand;
        None for layers whose a_t are any vectors.
    """

    sizes: Callable[[Any, int], tuple[int, int] | None]
    inputs: Callable[[Layer, Any, jax.Array], jax.Array]
    sensitivities: Callable[[Layer, Any, jax.Array], jax.Array]
    entries: Callable[[Layer, Any, jax.Array], jax.Array]
    places: Callable[[Layer, Any, jax.Array], jax.Array] | None = None
