"""A product, and how far it moves in Monte Carlo arithmetic.

Small networks are evaluated one operation after the other. In one program, where every result is
moved, XLA compiles a transformer for a minute that is then evaluated in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.jaxprs import bind, evaluate, wrapped
from gnjax.networks.rounding.monte_carlo import perturbed, perturbed_steps

_STEPWISE = 1e7  # numbers that are written until which step by step is taken


def gap(
    product: Partial, seed: np.uint32, *args: Any, work: float = np.inf
) -> tuple[jax.Array, jax.Array]:
    """``product(*args)``, and how far it moves in Monte Carlo arithmetic.

    ``work`` is about how many numbers all evaluations together write.
    """
    return _stepwise(product, seed, *args) if work <= _STEPWISE else compiled(product, seed, *args)


# Compiled with all optimisation: without it XLA computes NaN for a VGG, and would do so sooner.
@jax.jit
def compiled(product: Partial, seed: np.uint32, *args: Any) -> tuple[jax.Array, jax.Array]:
    """The same by one program."""
    plain = product(*args)
    return plain, perturbed(product, seed, *args) - plain


def _stepwise(product: Partial, seed: np.uint32, *args: Any) -> tuple[jax.Array, jax.Array]:
    closed = _applied.trace(product, *args).jaxpr
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves((product, args))]
    (plain,) = evaluate(closed.jaxpr, closed.consts, leaves, _bind)
    (moved,) = perturbed_steps(closed, int(seed), leaves)
    return plain, jnp.asarray(moved) - plain


@jax.jit
def _applied(product: Partial, *args: Any) -> jax.Array:
    """Traced alone, once for all that has the same shapes."""
    return product(*args)


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """An equation as it is; calls are entered, so that nothing larger is compiled."""
    inner = wrapped(eqn)
    if inner is None:
        return bind(eqn, operands)
    values = evaluate(*inner, operands, _bind)
    return values if eqn.primitive.multiple_results else values[0]
