"""Full-batch steps w <- w - rate (P + damping I)^{-1} m in the metrics of optimisers, compiled.

The metrics P are those of :func:`gnjax.preconditioned`, here as functions of the parameters that
JAX compiles, because P is made anew at every step. m is the gradient, or its decayed mean.

The damping has one rule for all metrics: it is a share of the mean eigenvalue tr(P) / p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.operators import NetworkGram

SECOND_DECAY = 0.999  # b2 of Adam, optax's default
SHAMPOO_EPSILON = 1e-6  # of the mean eigenvalue of each factor, added to the factor
DIVERGED = 3.0  # a run ends when its loss is so many times the loss at the start


class Memory(NamedTuple):
    """What the gradients of ``steps`` steps leave behind.

    ``first`` and ``second`` are the decayed sums of g and g^2 (p,), ``factors`` Shampoo's L and R
    of every array of parameters, or L alone for a vector.
    """

    steps: jax.Array
    first: jax.Array
    second: jax.Array
    factors: tuple[Any, ...]


class State(NamedTuple):
    """The parameters in one vector (p,), and the memory of the gradients before them."""

    w: jax.Array
    memory: Memory


class Diagonal(NamedTuple):
    """A block of P with these entries, on the parameters at ``indices``."""

    indices: Any
    entries: jax.Array

    def trace(self) -> jax.Array:
        return self.entries.sum()

    def solve(self, part: jax.Array, damping: jax.Array) -> jax.Array:
        return part / (self.entries + damping)


class Gram(NamedTuple):
    """The block R^T R for rows R (r, m)."""

    indices: Any
    rows: jax.Array

    def trace(self) -> jax.Array:
        return jnp.square(self.rows).sum()

    def solve(self, part: jax.Array, damping: jax.Array) -> jax.Array:
        """(R^T R + d)^{-1}, which is (I - R^T (R R^T + d)^{-1} R) / d, by the smaller matrix."""
        count, size = self.rows.shape
        if count < size:
            inner = _positive_solve(self.rows @ self.rows.T, self.rows @ part, damping)
            return (part - self.rows.T @ inner) / damping
        return _positive_solve(self.rows.T @ self.rows, part, damping)


class Kronecker(NamedTuple):
    """(U (x) V) diag(values) (U (x) V)^T on the parameters at ``indices`` (i, o)."""

    indices: Any
    values: jax.Array
    left: jax.Array
    right: jax.Array

    def trace(self) -> jax.Array:
        return self.values.sum()

    def solve(self, part: jax.Array, damping: jax.Array) -> jax.Array:
        inside = self.left.T @ part @ self.right
        return self.left @ (inside / (self.values + damping)) @ self.right.T


Block = Diagonal | Gram | Kronecker


def _positive_solve(matrix: jax.Array, part: jax.Array, damping: jax.Array) -> jax.Array:
    damped = matrix + damping * jnp.eye(len(matrix), dtype=matrix.dtype)
    found: jax.Array = jax.scipy.linalg.solve(damped, part, assume_a="pos")
    return found


def product(indices: Any, left: jax.Array, right: jax.Array, power: float = 1.0) -> Kronecker:
    """The block A^power (x) B^power, with A = ``left`` and B = ``right``."""
    (a, u), (b, v) = (jnp.linalg.eigh((m + m.T) / 2) for m in (left, right))
    values = (a.clip(0) ** power)[:, None] * (b.clip(0) ** power)[None, :]
    return Kronecker(indices, values, u, v)


def _everything(memory: Memory) -> np.ndarray:
    return np.arange(len(memory.first))


def _identity(op: NetworkGram, memory: Memory) -> list[Block]:
    return [Diagonal(_everything(memory), jnp.ones_like(memory.first))]


def _adam(op: NetworkGram, memory: Memory) -> list[Block]:
    mean = memory.second / (1 - SECOND_DECAY**memory.steps)
    return [Diagonal(_everything(memory), jnp.sqrt(mean))]


def _diagonal(op: NetworkGram, memory: Memory) -> list[Block]:
    return [Diagonal(_everything(memory), jnp.square(op.rows()).sum(axis=0))]


def _full(op: NetworkGram, memory: Memory) -> list[Block]:
    return [Gram(_everything(memory), op.rows())]


def _layers(op: NetworkGram, memory: Memory) -> list[Block]:
    rows = op.rows()
    return [Gram(indices, rows[:, indices]) for indices in op.places("layer").values()]


def block_diagonal(matrix: np.ndarray, parts: Iterable[Any]) -> np.ndarray:
    """The matrix (p, p) with zeros outside the diagonal blocks of the parts: indices of each."""
    blocks = np.zeros_like(matrix)
    for indices in map(np.atleast_1d, parts):
        blocks[np.ix_(indices, indices)] = matrix[np.ix_(indices, indices)]
    return blocks


def _kfac(op: NetworkGram, memory: Memory) -> list[Block]:
    """A (x) B of every layer as in :func:`gnjax.metrics.kfac`, the exact diagonal of the rest."""
    layers, others = gnjax.metrics.kfac_factors(op)
    blocks: list[Block] = []
    for layer in layers:
        (indices,), (left,), (right,) = layer.places, layer.left, layer.right  # one matrix each
        left = jnp.diag(left) if left.ndim == 1 else left
        blocks.append(product(indices, left, right))
    return [*blocks, *(Diagonal(*other) for other in others)]


def shampoo_factors(memory: Memory) -> tuple[Any, ...]:
    """L and R with the epsilon, for every array of parameters."""
    return jax.tree.map(_with_epsilon, memory.factors)


def _with_epsilon(factor: jax.Array) -> jax.Array:
    size = len(factor)
    return factor + SHAMPOO_EPSILON * jnp.trace(factor) / size * jnp.eye(size, dtype=factor.dtype)


def _shampoo(op: NetworkGram, memory: Memory) -> list[Block]:
    blocks: list[Block] = []
    ends = np.cumsum([leaf.size for leaf in op.net.leaves])[:-1]
    places = np.split(_everything(memory), ends)
    for indices, factors in zip(places, shampoo_factors(memory), strict=True):
        if len(factors) == 1:
            blocks.append(product(indices[:, None], factors[0], jnp.ones((1, 1)), 0.5))
        else:
            left, right = factors
            blocks.append(product(indices.reshape(len(left), len(right)), left, right, 0.25))
    return blocks


METRICS: Mapping[str, Callable[[NetworkGram, Memory], list[Block]]] = MappingProxyType(
    {
        "SGD": _identity,
        "Adam": _adam,
        "diagonal": _diagonal,
        "K-FAC": _kfac,
        "Shampoo": _shampoo,
        "layers": _layers,
        "full": _full,
    }
)


def start(op: NetworkGram) -> State:
    """The parameters of the operator, and no memory."""
    w, _ = ravel_pytree(op.net.leaves)
    zeros = jnp.zeros_like(w)
    factors = jax.tree.map(jnp.zeros_like, _factors(op.net.leaves))
    return State(w, Memory(jnp.asarray(0), zeros, zeros, factors))


def _factors(gradients: tuple[jax.Array, ...]) -> tuple[Any, ...]:
    return tuple(gnjax.metrics.shampoo_factors(g[None]) for g in gradients)


def at(op: NetworkGram, w: jax.Array) -> NetworkGram:
    """The operator at other parameters."""
    _, back = ravel_pytree(op.net.leaves)
    return replace(op, net=replace(op.net, leaves=back(w)))


def mean_loss(op: NetworkGram, y: jax.Array, w: jax.Array) -> jax.Array:
    """The mean cross-entropy."""
    net = at(op, w).net
    logits = net.outputs(net.leaves, net.x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def remembered(op: NetworkGram, memory: Memory, gradient: jax.Array, momentum: Any) -> Memory:
    """The memory after one more gradient."""
    leaves = ravel_pytree(op.net.leaves)[1](gradient)
    return Memory(
        memory.steps + 1,
        momentum * memory.first + (1 - momentum) * gradient,
        SECOND_DECAY * memory.second + (1 - SECOND_DECAY) * gradient**2,
        jax.tree.map(jnp.add, memory.factors, _factors(leaves)),
    )


def direction(
    metric: str, op: NetworkGram, memory: Memory, damping: Any, momentum: Any
) -> jax.Array:
    """(P + damping tr(P) / p I)^{-1} m, with m the decayed mean of the gradients."""
    mean = memory.first / (1 - momentum**memory.steps)
    blocks = METRICS[metric](op, memory)
    added = damping * sum(block.trace() for block in blocks) / len(mean)
    found = jnp.zeros_like(mean)
    for block in blocks:
        found = found.at[block.indices].set(block.solve(mean[block.indices], added))
    return found


def steps(
    op: NetworkGram, y: jax.Array, state: State, *settings: Any, metric: str
) -> tuple[State, jax.Array]:
    """The state and the loss where a run ends: at the target, at the limit, or as it diverges.

    The ``settings`` are the rate, the damping, the momentum, the limit of steps and the target.
    """
    return _steps(list(METRICS).index(metric), op, y, state, *settings)


@jax.jit
def _steps(
    metric: Any,
    op: NetworkGram,
    y: jax.Array,
    state: State,
    rate: Any,
    damping: Any,
    momentum: Any,
    limit: Any,
    target: Any,
) -> tuple[State, jax.Array]:
    """One program for all metrics, so that XLA compiles the gradient once."""
    directions = [partial(direction, name) for name in METRICS]
    slope = jax.value_and_grad(partial(mean_loss, op, y))
    first, gradient = slope(state.w)

    def goes_on(now: Any) -> jax.Array:
        found, loss, _ = now
        inside = (loss > target) & (loss < DIVERGED * first)  # False for nan
        return inside & (found.memory.steps < limit)

    def step(now: Any) -> Any:
        found, _, gradient = now
        memory = remembered(op, found.memory, gradient, momentum)
        along = lax.switch(metric, directions, at(op, found.w), memory, damping, momentum)
        w = found.w - rate * along
        return (State(w, memory), *slope(w))

    found, loss, _ = lax.while_loop(goes_on, step, (state, first, gradient))
    return found, loss


@jax.jit
def next_memory(op: NetworkGram, y: jax.Array, state: State, momentum: Any) -> Memory:
    """The memory of the next step, which has the gradient at the present parameters as well."""
    gradient = jax.grad(partial(mean_loss, op, y))(state.w)
    return remembered(op, state.memory, gradient, momentum)
