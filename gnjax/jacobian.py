"""Gauss-Newton matrices and kernels of networks with their Jacobian in memory.

A product that runs the network passes four times through its layers, and a kernel that acts on t
positions costs t products each time. A product with a stored J (n k, p) reads it twice. Where
kernels act on more than a few times k positions, as in convolutional networks, that is less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from gnjax import gram
from gnjax.curvature import NetworkGram
from gnjax.linearisation import Prepared
from gnjax.network import sum_of
from gnjax.operators import Operator

_BLOCK_BYTES = 2e8  # of rows in one product: less is mostly overhead


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WithJacobian(Prepared):
    """The operator ``op`` from the rows of R^T J, some at a time."""

    op: NetworkGram
    blocks: tuple[jax.Array, ...]  # (rows, p)

    def mv(self, v: jax.Array) -> jax.Array:
        if self.op.side == "parameters":
            return self.op.scale * sum_of(_there_and_back(block, v) for block in self.blocks)
        ends = np.cumsum([len(block) for block in self.blocks])[:-1]
        pairs = zip(self.blocks, jnp.split(v, ends), strict=True)
        pulled = sum_of(_pulled(block, part) for block, part in pairs)
        rows = jnp.concatenate([_pushed(block, pulled) for block in self.blocks])
        return self.op.scale * rows


def with_jacobian(op: Operator, *, memory: float = 4e9) -> Operator:
    """``op``, a Gauss-Newton matrix or NTK of a network, with its Jacobian (n k, p) stored.

    For many products with a convolutional network; making J costs about as much as 2 k of them. Up
    to ``memory`` bytes; :func:`gnjax.linearised` needs less, and is faster for dense layers.
    """
    if not isinstance(op, NetworkGram):
        msg = (
            "only the operators of gnjax.gauss_newton and gnjax.ntk have a Jacobian to store, "
            f"got {type(op).__name__}"
        )
        raise ValueError(msg)
    net = op.net
    size = float(net.samples * net.k * net.parameters * net.dtype.itemsize)
    if not size <= memory:
        msg = (
            f"the Jacobian, {net.samples * net.k} x {net.parameters} in {net.dtype}, takes "
            f"{size / 1e9:.1f} GB and memory={memory:.3g} bytes; pass memory={size:.0f} or more "
            "where that is free, or use gnjax.linearised(op)"
        )
        raise ValueError(msg)
    return WithJacobian(op, tuple(_joined(gram.row_blocks(net))))


def _joined(blocks: Iterable[jax.Array]) -> Iterator[jax.Array]:
    """The same rows in larger blocks."""
    held: list[jax.Array] = []
    for block in blocks:
        held.append(block)
        if sum(part.nbytes for part in held) >= _BLOCK_BYTES:
            yield jnp.concatenate(held)
            held = []
    if held:
        yield jnp.concatenate(held)


@jax.jit
def _pushed(block: jax.Array, v: jax.Array) -> jax.Array:
    """J_b v."""
    return jnp.matmul(block, v, precision="highest")


@jax.jit
def _pulled(block: jax.Array, u: jax.Array) -> jax.Array:
    """J_b^T u, as (u^T J_b)^T: XLA would write J_b transposed."""
    return jnp.matmul(u.T, block, precision="highest").T


@jax.jit
def _there_and_back(block: jax.Array, v: jax.Array) -> jax.Array:
    """J_b^T J_b v."""
    return _pulled(block, _pushed(block, v))
