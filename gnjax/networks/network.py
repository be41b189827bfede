"""A network at fixed inputs as a function of its parameters, and products with its Jacobian.

J is the Jacobian (n k, p) of the outputs F(x_1) .. F(x_n) with respect to the chosen entries of
the parameters, samples first. Where a loss has the output Hessians R_i R_i^T, R_i (k, r), it stands
for R^T J (n r, p), with r rows for every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs
from gnjax.networks.losses import Loss
from gnjax.networks.model import Apply
from gnjax.networks.parameters import paths

_TOGETHER = 3.5e6  # numbers that one evaluation writes for columns that go together
_PROBES = 4
_SAFETY = 4.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """F(theta) at fixed inputs; theta holds the chosen entries of the parameters, in one vector."""

    leaves: tuple[jax.Array, ...]
    kept: tuple[jax.Array | None, ...]  # flat indices of a leaf's chosen entries, None for all
    x: jax.Array
    factors: jax.Array | None  # R (n, k, r)
    targets: jax.Array | None  # what R was made from beside the outputs
    apply: Apply  # a pytree, see functional
    structure: Any = field(metadata={"static": True})
    chosen: tuple[int, ...] = field(metadata={"static": True})  # of the leaves
    counts: tuple[int, ...] = field(metadata={"static": True})  # entries of each chosen leaf
    loss: Loss = field(metadata={"static": True})  # what R was made for
    k: int = field(metadata={"static": True})
    coupled: bool = field(metadata={"static": True})
    convolves: bool = field(metadata={"static": True})
    forward: bool = field(metadata={"static": True})  # the model has a forward mode
    targeted: bool = field(metadata={"static": True})  # R depends on targets, not on x alone
    written: float = field(metadata={"static": True})  # numbers that an evaluation writes a sample
    batch: int = field(metadata={"static": True})

    @property
    def samples(self) -> int:
        return len(self.x)

    @property
    def parameters(self) -> int:
        return sum(self.counts)

    @property
    def rows(self) -> int:
        """The rows that a sample has in J: the r columns of R, or its k outputs."""
        return self.k if self.factors is None else self.factors.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        return self.leaves[0].dtype

    def outputs(self, leaves: Sequence[jax.Array], x: jax.Array) -> jax.Array:
        """F(x), convolving by the quickest road where there is a choice."""
        if not self.convolves:
            return self._plain(leaves, x)
        return jaxprs.widened(self._plain, list(leaves), x)

    def one(self, leaves: Sequence[jax.Array], sample: jax.Array) -> jax.Array:
        return self._plain(leaves, sample[None])[0]

    def _plain(self, leaves: Sequence[jax.Array], x: jax.Array) -> jax.Array:
        return self.apply(jax.tree.unflatten(self.structure, list(leaves)), x).astype(self.dtype)


def parameter_names(net: Network) -> list[str]:
    """The path of every chosen leaf, in the order of the parameter vector."""
    params = jax.tree.unflatten(net.structure, list(net.leaves))
    names = paths(params)
    return [names[leaf] for leaf in net.chosen]


def spread(net: Network, v: jax.Array) -> list[jax.Array]:
    """A vector (p,) as tangents of the leaves, zero where an entry is not chosen."""
    tangents = [jnp.zeros_like(leaf) for leaf in net.leaves]
    parts = jnp.split(v, np.cumsum(net.counts)[:-1])
    for place, (leaf, part) in enumerate(zip(net.chosen, parts, strict=True)):
        tangents[leaf] = entered(net, place, part)
    return tangents


def entered(net: Network, place: int, part: jax.Array) -> jax.Array:
    """The chosen entries of a chosen leaf in its shape, zero elsewhere."""
    shape, indices = net.leaves[net.chosen[place]].shape, net.kept[place]
    if indices is not None:
        zeros = jnp.zeros(int(np.prod(shape)))
        part = zeros.at[indices].set(part, unique_indices=True)  # as its transpose needs
    return part.reshape(shape).astype(net.dtype)


def gather(net: Network, cotangents: Sequence[jax.Array]) -> jax.Array:
    """The transpose of :func:`spread`."""
    parts = []
    for leaf, indices in zip(net.chosen, net.kept, strict=True):
        flat = cotangents[leaf].reshape(-1)
        parts.append(flat if indices is None else flat[indices])
    return jnp.concatenate(parts)


def pieces(net: Network, *rest: jax.Array | None) -> Iterator[tuple[Any, ...]]:
    """Inputs and whatever else runs over samples, one batch at a time.

    The loop is Python's: inside a loop of its own XLA runs convolutions on one CPU thread, ten
    times slower.
    """
    if net.batch >= net.samples:
        yield (net.x, *rest)
        return
    for start in range(0, net.samples, net.batch):
        part = slice(start, start + net.batch)
        yield tuple(None if a is None else a[part] for a in (net.x, *rest))


def weigh(factors: jax.Array | None, u: jax.Array, *, transpose: bool) -> jax.Array:
    """R u or R^T u, sample by sample."""
    if factors is None:
        return u
    axes = "nji,nj->ni" if transpose else "nij,nj->ni"
    return jnp.einsum(axes, factors, u, precision="highest")


def _forward(net: Network, x: jax.Array, factors: jax.Array | None, v: jax.Array) -> jax.Array:
    """J_b v, (n_b, r)."""
    f = partial(net.outputs, x=x)
    _, image = jaxprs.pushed(f, list(net.leaves), spread(net, v), forward=net.forward)
    return weigh(factors, image, transpose=True)


def _backward(net: Network, x: jax.Array, factors: jax.Array | None, u: jax.Array) -> jax.Array:
    """J_b^T u, (p,), for u (n_b, r)."""
    _, pullback = jax.vjp(partial(net.outputs, x=x), list(net.leaves))
    return gather(net, pullback(weigh(factors, u, transpose=False))[0])


def columns(
    net: Network,
    product: Callable[[jax.Array], jax.Array],
    v: jax.Array,
    dims: int = 1,
    evaluations: int = 1,
) -> jax.Array:
    """A compiled product on v with ``dims`` axes, or on each column along one axis more.

    Columns go together where that turns matrix-vector into matrix products, as many as the caches
    hold where a product writes as much as so many ``evaluations``; but one by one through
    convolutions, which XLA would make slow grouped ones of.
    """
    if v.ndim == dims:
        return product(v)
    count = v.shape[-1]
    most = 1 if net.convolves else _TOGETHER / (evaluations * net.batch * net.written)
    groups = max(1, -(-count // max(int(most), 1)))
    if groups == count:
        return jnp.stack([product(v[..., i]) for i in range(count)], axis=-1)
    parts = jnp.array_split(v, groups, axis=-1)
    return jnp.concatenate([product(part) for part in parts], axis=-1)


def batched(product: Callable[[jax.Array], jax.Array], v: jax.Array, dims: int = 1) -> jax.Array:
    return product(v) if v.ndim == dims else jax.vmap(product, in_axes=-1, out_axes=-1)(v)


@jax.jit
def _forward_batch(net: Network, x: jax.Array, factors: Any, v: jax.Array) -> jax.Array:
    rows = batched(partial(_forward, net, x, factors), v)
    return rows.reshape(rows.shape[0] * rows.shape[1], *v.shape[1:])


@jax.jit
def _backward_batch(net: Network, x: jax.Array, factors: Any, u: jax.Array) -> jax.Array:
    return batched(partial(_backward, net, x, factors), u, 2)


@jax.jit
def _gauss_newton_batch(net: Network, x: jax.Array, factors: Any, v: jax.Array) -> jax.Array:
    def product(w: jax.Array) -> jax.Array:
        return _backward(net, x, factors, _forward(net, x, factors, w))

    return batched(product, v)


def forward_products(net: Network, v: jax.Array) -> jax.Array:
    """J v for v (p,) or (p, b)."""
    rows = [
        columns(net, partial(_forward_batch, net, x, r), v) for x, r in pieces(net, net.factors)
    ]
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def backward_products(net: Network, u: jax.Array) -> jax.Array:
    """J^T u for u (n r,) or (n r, b)."""
    parts = u.reshape(net.samples, net.rows, *u.shape[1:])
    return sum_of(
        columns(net, partial(_backward_batch, net, x, r), w, 2)
        for x, r, w in pieces(net, net.factors, parts)
    )


def gauss_newton_products(net: Network, v: jax.Array) -> jax.Array:
    """J^T J v for v (p,) or (p, b)."""
    return sum_of(
        columns(net, partial(_gauss_newton_batch, net, x, r), v)
        for x, r in pieces(net, net.factors)
    )


def sum_of(parts: Iterator[jax.Array]) -> jax.Array:
    """Their sum, one held at a time."""
    return reduce(jnp.add, parts)
