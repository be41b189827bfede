"""Models as their users write them, each beside plain automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from flax import nnx


@dataclass(frozen=True)
class Case:
    """A model, what it is given, and the same network and mean loss written plainly.

    Attributes:
      model: what a user hands over.
      reference: (params, x) -> outputs in float64, params as ``gnjax.functional`` orders them.
      mean_loss: (outputs, y) -> the mean loss, written out.
      options: of the calls; ``y`` and ``loss`` among them.
      coupled: whether the samples depend on each other.
      kept: what the paths of the chosen parameters have in common.
    """

    model: Any
    x: Any
    reference: Callable[..., Any]
    mean_loss: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)
    coupled: bool = False
    kept: str = ""


@partial(nnx.jit, static_argnames=("module", "dtype"))
def made(module, seed, **options):
    """A model of NNX, by one program; made eagerly, every shape of a parameter has several."""
    return module(nnx.Rngs(jax.random.key(seed)), **options)


@partial(jax.jit, static_argnames=("module", "train"))
def initialised(module, seed, x, **call):
    """The variables of a module of Linen, by one program as well."""
    return module.init(jax.random.key(seed), x, **call)
