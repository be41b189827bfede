"""The usual evidence for the rounding of products with a large network: two looks.

**The first look** makes a product of the answer again, by the same compiled program, at parameters,
inputs and a vector that are moved by one rounding each. A layer that rounds acts as one whose
weights and inputs are rounded, so that the distance of both products is about their error.

**The second look** computes products of a few samples in Monte Carlo arithmetic
(:mod:`gnjax.networks.rounding.monte_carlo`). It sees what the first one cannot: rounding inside of
the network that no change of its numbers makes, as behind saturated units, in a softmax that is
nearly one-hot, in sums that cancel and in formats of few bits. Relative to the size of the product
a few samples show what all of them show. What it saw serves the next operator of a network that is
:mod:`nearly the same <gnjax.networks.alike>`.

The largest relative error of both looks is taken, times a factor of safety, as the error of the
matrix in the Frobenius norm. What neither of them sees is a fault of a few samples only, which are
not among those of the second look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.arguments.refusals import RAISED
from gnjax.networks.arguments.samples import take
from gnjax.networks.network import Network
from gnjax.networks.rounding.chosen_samples import MOST_SAMPLES, WRITTEN
from gnjax.networks.rounding.formed import direction, root_mean_square
from gnjax.networks.rounding.monte_carlo import moved_result, products_and_changes
from gnjax.networks.rounding.random_signs import Loops, RandomSigns
from gnjax.numerics.host import by_numpy, dot, length, on_device, on_host

PROBES_SEED = 0
_FEWEST = 1  # samples of the second look
_TOGETHER = 8  # samples at least where one depends on the others, as for statistics of a batch
_VECTORS = 3  # that a second look at some samples multiplies
_MANY = 1_000_000  # parameters, from which on it is one vector
_TRIES = 3  # draws of samples until one of them has a part of the matrix that is not zero
_LEAST = 0.1  # a part of the matrix below this times its share of samples is small

Product = Callable[[jax.Array], jax.Array]


def moved_by_one_rounding(tree: Any, seed: int) -> Any:
    """A pytree with every entry of its floating arrays larger or smaller by one unit roundoff.

    The signs are random. The change is that of the last bit.
    """
    rng = np.random.default_rng(seed)

    def moved(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or not leaf.size:
            return leaf
        array = by_numpy(leaf)
        eps = float(jnp.finfo(leaf.dtype).eps)
        signs = rng.integers(0, 2, leaf.shape, np.int8) * 2 - 1
        if isinstance(array, np.ndarray):
            return _placed_as(leaf, (array * (1 + eps * signs)).astype(leaf.dtype))
        return (leaf * (1 + eps * jnp.asarray(signs, leaf.dtype))).astype(leaf.dtype)

    return jax.tree.map(moved, tree)


def _placed_as(leaf: Any, array: np.ndarray) -> Any:
    """The array on the device of ``leaf``, an array of JAX or of NumPy."""
    if not isinstance(leaf, jax.Array):
        return array
    return jax.device_put(array, leaf.sharding) if leaf.committed else on_device(array)


def moved_network(net: Network) -> Network:
    """The network with its parameters and inputs moved by one rounding each."""
    leaves, x = moved_by_one_rounding((net.leaves, net.x), seed=1)
    return replace(net, leaves=leaves, x=x)


def first_look(images: np.ndarray, moved_product: Product, vectors: np.ndarray) -> float:
    """How far products (n, j) with random ``vectors`` (n, j) move, as the length of a change.

    ``moved_product`` multiplies with the matrix of the moved network, by the same program. The
    vectors move as well.
    """
    moved_vectors = moved_by_one_rounding(vectors, seed=2)
    return root_mean_square(
        [
            length(on_host(moved_product(on_device(v))) - image)
            for v, image in zip(moved_vectors.T, images.T, strict=True)
        ]
    )


@dataclass(frozen=True)
class SecondLook:
    """What products of a few samples in Monte Carlo arithmetic show."""

    size: float  # |A_b v| for the part A_b of the matrix that is of these samples
    change: float  # how far A_b v moves by other roundings, or how far A_b is from symmetric
    share: float  # of all samples that are looked at
    loops: float  # what loops of many steps may lose, relative to the result

    def scaled(self, factor: float) -> SecondLook:
        """The same for ``factor`` times the matrix."""
        return replace(self, size=factor * self.size, change=factor * self.change)

    def of_all(self, size: float) -> float:
        """The change for all samples, whose matrix has the Frobenius norm ``size``.

        It is the relative change, or the change for every share of the samples where their part of
        the matrix is far smaller than their share.
        """
        least = _LEAST * self.share * size
        if not self.change or not size:
            return self.change
        return self.change / max(self.size, least) * size


def second_look(product: Partial, net: Network, evaluations: int) -> SecondLook:
    """The second look at ``product(v, x, target)``, the product with the part of some samples.

    A product writes as much as so many ``evaluations`` of the network. The samples are drawn at
    random, others where the product with the first ones is zero.
    """
    rng, loops = np.random.default_rng(PROBES_SEED), Loops()
    sizes, changes, share = [0.0], [0.0], 1.0
    for _ in range(_TRIES):
        batch, share = some_samples(net, evaluations, rng)
        count = _VECTORS if net.parameters <= _MANY else 1
        vectors = [direction(rng, (net.parameters,), net.dtype) for _ in range(count)]
        pairs = list(products_and_changes(product, rng, vectors, [batch], loops=loops))
        images = [on_host(image) for image, _ in pairs]
        sizes = [length(image) for image in images]
        changes = [length(on_host(change)) for _, change in pairs]
        products = np.array([[dot(v, image) for image in images] for v in vectors])
        asymmetries = (products - products.T)[~np.eye(len(vectors), dtype=bool)]
        if any(sizes) or share == 1:
            break
    change = max(root_mean_square(changes), root_mean_square(asymmetries))
    return SecondLook(root_mean_square(sizes), change, share, loops.lost)


def look_at_all(
    program: Any, op: Any, batches: Sequence[Sequence[Any]], v: Any, image: np.ndarray, scale: float
) -> SecondLook:
    """The second look at all samples, by the equations of the compiled product itself.

    Nothing is traced for it, and one product with random roundings is compared with the product
    that was made.

    Args:
      program: ``program(op, *batch, v)`` is the compiled product with the part of a batch.
      op: the operator.
      batches: the samples and targets of each batch.
      v: the vector that was multiplied.
      image: ``scale`` times the sum of the products with the parts of all batches, as was computed.
      scale: see ``image``.
    """
    loops = Loops()
    signs, total = RandomSigns(PROBES_SEED, loops), np.zeros(image.shape)
    for batch in batches:
        args = op, *batch, v
        closed_jaxpr = program.of(op).trace(*args).jaxpr
        total += moved_result(signs, closed_jaxpr, jax.tree.leaves(args))
    return SecondLook(length(image), length(scale * total - image), 1.0, loops.lost)


def some_samples(
    net: Network, evaluations: int, rng: np.random.Generator
) -> tuple[tuple[Any, Any], float]:
    """Some samples (x, target) of the network, few enough for Monte Carlo arithmetic, their share.

    All of them come back where the model takes no fewer.
    """
    fewest = _TOGETHER if net.coupled else _FEWEST
    count = int(np.clip(WRITTEN / (evaluations * net.written), fewest, MOST_SAMPLES))
    if count >= net.samples:
        return (net.x, net.target), 1.0
    few = take((net.x, net.target), np.sort(rng.choice(net.samples, count, replace=False)))
    if net.coupled:
        try:
            jax.eval_shape(net.outputs, list(net.leaves), few[0])
        except RAISED:  # as of a graph network, whose nodes are the samples
            return (net.x, net.target), 1.0
    return few, count / net.samples
