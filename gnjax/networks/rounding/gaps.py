"""Products with random vectors, and how far they move in Monte Carlo arithmetic.

Small arrays go through one operation after the other, for all vectors at once. In one program,
where every result is moved, XLA compiles a transformer for a minute that then runs in milliseconds.
What has few equations is one program all the same: it compiles as soon as its operations do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.jaxprs import bind, entered, equations, evaluate, wrapped
from gnjax.networks.rounding.monte_carlo import perturbed, perturbed_steps
from gnjax.numerics.host import on_host

_LONG = 300  # equations of a product from which on it goes step by step
_STEPWISE = 1e8  # numbers that all evaluations write together, up to which they go step by step
_AT_ONCE = 1e7  # numbers that the vectors of one such evaluation write
_HELD = 2e6  # numbers in the parameters and the data, of which every vector has a copy there


def gaps(
    product: Partial,
    rng: np.random.Generator,
    vectors: Iterable[jax.Array],
    batches: Sequence[Sequence[Any]] = ((),),
    *,
    work: float = np.inf,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each vector v the sum of ``product(v, *batch)`` over the batches, and how far it moves.

    ``work`` is about how many numbers are written for all vectors and batches together. The vectors
    are taken one by one where that is much, where parameters and data are large, where they are not
    on a single CPU, and where the product has few equations.
    """
    if work <= _STEPWISE and _small_on_one_cpu((product, batches[0])):
        vectors = list(vectors)
        if _is_long(product, vectors[0], batches[0]):
            groups = min(len(vectors), int(work / len(batches) / _AT_ONCE) + 1)
            for some in np.array_split(jnp.stack(vectors), groups):
                yield from _stepwise(product, rng, jnp.asarray(some), batches)
            return
    for v in vectors:
        found = (compiled(product, _seed(rng), v, *batch) for batch in batches)
        yield _summed(found)


# Compiled with all optimisation: without it XLA computes NaN for a VGG, and would do so sooner.
@jax.jit
def compiled(
    product: Partial, seed: np.uint32, v: jax.Array, *batch: Any
) -> tuple[jax.Array, jax.Array]:
    """A_b v and how far it moves, by one program."""
    plain = product(v, *batch)
    return plain, perturbed(product, seed, v, *batch) - plain


def _small_on_one_cpu(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree)
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    devices = {device for array in arrays for device in array.devices()}
    cpu = len(devices) <= 1 and all(device.platform == "cpu" for device in devices)
    return cpu and sum(np.size(leaf) for leaf in leaves) <= _HELD


def _is_long(product: Partial, v: jax.Array, batch: Sequence[Any]) -> bool:
    closed = _one.trace(product, v, *batch).jaxpr
    return sum(1 for _ in equations(closed.jaxpr)) >= _LONG


@jax.jit
def _one(product: Partial, v: jax.Array, *batch: Any) -> jax.Array:
    """Traced alone."""
    return product(v, *batch)


def _seed(rng: np.random.Generator) -> np.uint32:
    return np.uint32(rng.integers(2**32))


def _summed(found: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    image, moved = map(on_host, next(iterator := iter(found)))
    for more, further in iterator:
        image, moved = image + on_host(more), moved + on_host(further)
    return image, moved


def _stepwise(
    product: Partial,
    rng: np.random.Generator,
    vectors: jax.Array,
    batches: Sequence[Sequence[Any]],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every array has one more axis, along the vectors, so that every vector has its own signs."""
    images, moves = _summed(_steps(product, rng, vectors, batch) for batch in batches)
    return zip(images, moves, strict=True)


def _steps(
    product: Partial, rng: np.random.Generator, vectors: jax.Array, batch: Sequence[Any]
) -> tuple[Any, Any]:
    product, batch = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (len(vectors), *jnp.shape(leaf))), (product, batch)
    )
    closed = _applied.trace(product, vectors, *batch).jaxpr
    leaves = jax.tree.leaves((product, vectors, batch))
    (plain,) = evaluate(closed.jaxpr, closed.consts, leaves, _bind)
    (moved,) = perturbed_steps(closed, int(_seed(rng)), leaves)
    return plain, np.asarray(moved) - np.asarray(plain)


@jax.jit
def _applied(product: Partial, vectors: jax.Array, *batch: Any) -> jax.Array:
    """Traced alone, once for all that has the same shapes."""
    return jax.vmap(lambda product, v, batch: product(v, *batch))(product, vectors, batch)


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """An equation as it is; calls are entered, so that nothing larger is compiled."""
    return bind(eqn, operands) if wrapped(eqn) is None else entered(eqn, operands, _bind)
