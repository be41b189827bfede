"""Full-batch gradient descent with a learning rate that halves when the loss stalls (paper B).

    path = descend(loss, params, data, keep=(0, 100, 10_000), rate=0.01)

``loss(params, data)`` is any function that JAX differentiates. It is compiled once for all lengths
of training, the data being an argument; ``jax.vmap`` of a call batches runs over params, data and
rates (the kept epochs are common to them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.networks.model import Params
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device

Data = Any
DescentLoss = Callable[[Params, Data], jax.Array]


class Halving(NamedTuple):
    """Halve the rate if the loss improved by less than ``improvement`` over ``every`` epochs."""

    every: int = 100
    improvement: float = 1e-3


PAPER = Halving()  # Appendix C


class Samples(NamedTuple):
    """Inputs (n, d) and targets (n, k)."""

    x: jax.Array
    y: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Path:
    """Parameters, losses and learning rates at the kept epochs, along a leading axis."""

    params: Params
    losses: jax.Array
    rates: jax.Array


class _State(NamedTuple):
    params: Params
    rate: jax.Array
    tested: jax.Array  # the loss at the last test
    epoch: jax.Array


def descend(
    loss: DescentLoss,
    params: Params,
    data: Data,
    *,
    keep: Sequence[int],
    rate: ArrayLike = 0.01,
    halving: Halving | None = PAPER,
) -> Path:
    """theta <- theta - rate grad loss(theta, data), for ``keep[-1]`` epochs.

    After every ``halving.every`` epochs the rate halves unless
    loss <= (1 - improvement) * (loss at the test before); None keeps it constant.

    Args:
      loss: a function of the module level (it is compared by identity for compilation).
      params: a pytree; its dtype is the precision of the training.
      data: a pytree, passed on to ``loss``.
      keep: increasing epochs at which the path is recorded; 0 is the start.
      rate: the initial learning rate.
    """
    gaps = np.diff(keep, prepend=0)
    if not len(gaps) or keep[0] < 0 or (gaps[1:] <= 0).any():
        msg = f"keep={tuple(keep)}; give increasing epochs from 0 on"
        raise ValueError(msg)
    if halving is not None and halving.every < 1:
        msg = f"halving.every={halving.every}; the rate is tested every so many epochs, at least 1"
        raise ValueError(msg)
    return _descend(loss, halving, params, data, on_device(gaps), rate)


@bounded_jit(static_argnums=(0, 1))
def _descend(
    loss: DescentLoss,
    halving: Halving | None,
    params: Params,
    data: Data,
    gaps: jax.Array,
    rate: ArrayLike,
) -> Path:
    """The path of :func:`descend`: parameters, losses and rates at each kept epoch.

    A scan over the kept epochs; before the i-th of them ``gaps[i]`` steps are made.
    """
    dtype = jnp.result_type(*jax.tree.leaves(params))

    def segment(state: _State, gap: jax.Array) -> tuple[_State, Path]:
        state = jax.lax.fori_loop(0, gap, lambda _, s: _epoch(loss, halving, data, s), state)
        return state, Path(state.params, loss(state.params, data), state.rate)

    start = _State(
        params=params,
        rate=jnp.asarray(rate, dtype),
        tested=jnp.asarray(jnp.inf, dtype),  # whatever the loss is, it is an improvement
        epoch=jnp.asarray(0),
    )
    return jax.lax.scan(segment, start, gaps)[1]


def _epoch(loss: DescentLoss, halving: Halving | None, data: Data, state: _State) -> _State:
    """The state after one step with the whole data, before which the rate may halve."""
    value, gradient = jax.value_and_grad(loss)(state.params, data)
    rate, last_loss = state.rate, state.tested
    if halving is not None:
        is_test = state.epoch % halving.every == 0
        improved = value <= (1 - halving.improvement) * last_loss
        rate = jnp.where(is_test & ~improved, rate / 2, rate)
        last_loss = jnp.where(is_test, value, last_loss)
    params = jax.tree.map(lambda theta, slope: theta - rate * slope, state.params, gradient)
    return _State(params, rate, last_loss, state.epoch + 1)


def tanh_network(weights: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    """W_L tanh(W_{L-1} .. tanh(W_1 x)) on rows, (n, d) to (n, k), without biases."""
    for w in weights[:-1]:
        x = jnp.tanh(jnp.matmul(x, w.T, precision="highest"))
    return jnp.matmul(x, weights[-1].T, precision="highest")


def tanh_loss(weights: Sequence[jax.Array], data: Samples) -> jax.Array:
    """1/2n sum_i |f(x_i) - y_i|^2 (paper B, Eq 2)."""
    return jnp.square(tanh_network(weights, data.x) - data.y).sum() / (2 * len(data.x))
