"""Products with random vectors, and how far they move in Monte Carlo arithmetic.

They go through one operation after the other, mostly by NumPy, or through one compiled program, by
what takes less time. In one program, where every result is moved, XLA compiles a perceptron for a
second and a transformer for a minute, which then run in milliseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.jaxprs import ALL_CALLS, equations, evaluate
from gnjax.networks.rounding.by_numpy import bind_by_numpy
from gnjax.networks.rounding.monte_carlo import perturbed, perturbed_steps
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_cpu, on_device, on_host
from gnjax.numerics.scale import exponent_of

_STEPWISE = 1.6e6  # bytes that NumPy writes while XLA compiles one equation
_FEW = 1e7  # so many numbers are written step by step sooner than the equations are counted
_AT_ONCE = 3e7  # the most numbers that the vectors of one evaluation write step by step


def gaps(
    product: Partial,
    rng: np.random.Generator,
    vectors: Iterable[jax.Array],
    batches: Sequence[Sequence[Any]] = ((),),
    *,
    work: float = np.inf,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each v the sum of ``product(v, *batch)`` over batches, and its random change.

    The change is the difference to the same sum in Monte Carlo arithmetic. ``work`` is about how
    many numbers are written for all vectors and batches together, copies of parameters included. If
    that is much for so many equations, or if the numbers are not on a single CPU, one compiled
    program takes the vectors one by one. Such a program does not show what underflows inside of it.
    Numbers that are so small that it may be a part of the answer are therefore taken step by step
    as well, if on one CPU, and elsewhere the change is NaN.
    """
    on_one_cpu = _on_one_cpu(jax.tree.leaves((product, batches[0])))
    vectors = iter(vectors)
    first = next(vectors)
    small = on_one_cpu and _sooner_step_by_step(product, first, batches[0], work)
    underflows = not small and _may_underflow(_numbers(product, first, batches[0]))
    vectors = itertools.chain([first], vectors)
    if small or (underflows and on_one_cpu):
        vectors = list(vectors)
        size = len(vectors) // _groups(len(vectors), work / len(batches))
        for start in range(0, len(vectors), size):
            some = np.stack(vectors[start : start + size])
            yield from _stepwise(product, rng, on_device(some), batches)
        return
    for v in vectors:
        images_and_changes = (compiled_gaps(product, _seed(rng), v, *batch) for batch in batches)
        image, change = _summed(images_and_changes)
        yield image, np.full_like(change, np.nan) if underflows else change


# Compiled with all optimisation: without it XLA computes NaN for a VGG, and would do so sooner.
@bounded_jit
def compiled_gaps(
    product: Partial, seed: np.uint32, v: jax.Array, *batch: Any
) -> tuple[jax.Array, jax.Array]:
    """A_b v and its change in Monte Carlo arithmetic, by one compiled program."""
    plain = product(v, *batch)
    return plain, perturbed(product, seed, v, *batch) - plain


def _sooner_step_by_step(product: Partial, v: jax.Array, batch: Sequence[Any], work: float) -> bool:
    """Whether NumPy has written so many numbers before XLA would have compiled the program."""
    if work <= _FEW:
        return True
    if not np.isfinite(work):
        return False
    closed, _ = _traced(product, v[None], batch)
    return v.dtype.itemsize * work <= _STEPWISE * sum(1 for _ in equations(closed.jaxpr))


def _on_one_cpu(leaves: Sequence[Any]) -> bool:
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    devices = {device for array in arrays for device in array.devices()}
    return len(devices) <= 1 and all(device.platform == "cpu" for device in devices)


def _numbers(product: Partial, v: jax.Array, batch: Sequence[Any]) -> list[Any]:
    """Parameters and data, and what the model holds beside them."""
    traced = compiled_gaps.of(product).trace(product, np.uint32(0), v, *batch)
    return [*jax.tree.leaves(product), *traced.jaxpr.consts]


def _may_underflow(leaves: Sequence[Any]) -> bool:
    """Whether parameters and data are so small that the product of all may come near zero.

    A number that underflows does no harm by itself, as the error is never below the smallest normal
    number, but where large weights follow it does. Each array multiplies by its Frobenius norm at
    most. Those count that are smaller than any that training starts from or stops at; vectors, of
    which some are only added, have to be smaller still.
    """
    bits = 0.0
    for leaf in leaves:
        if not (leaf.ndim and leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)):
            continue
        entry = np.abs(np.asarray(leaf)).max() if on_cpu(leaf) else jnp.abs(leaf).max()
        largest, reach = exponent_of(float(entry)), -int(jnp.finfo(leaf.dtype).minexp)
        size = 0.0 if largest is None else largest + math.log2(leaf.size) / 2
        if size < -reach / (8 if leaf.ndim > 1 else 4):
            bits -= size
        if bits > reach / 2:
            return True
    return False


def _groups(vectors: int, work: float) -> int:
    """The number of parts of equal size for the vectors; every size needs its own programs."""
    fewest = int(min(vectors, work / _AT_ONCE + 1))
    return next(count for count in range(fewest, vectors + 1) if vectors % count == 0)


def _seed(rng: np.random.Generator) -> np.uint32:
    return np.uint32(rng.integers(2**32))


def _summed(pairs: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    image, change = map(on_host, next(iterator := iter(pairs)))
    for next_image, next_change in iterator:
        image, change = image + on_host(next_image), change + on_host(next_change)
    return image, change


def _stepwise(
    product: Partial,
    rng: np.random.Generator,
    vectors: jax.Array,
    batches: Sequence[Sequence[Any]],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The products with all vectors at once, one operation after the other.

    Every array has one more axis, along the vectors, so that every vector has its own signs.
    """
    images, moves = _summed(_steps(product, rng, vectors, batch) for batch in batches)
    return zip(images, moves, strict=True)


def _steps(
    product: Partial, rng: np.random.Generator, vectors: jax.Array, batch: Sequence[Any]
) -> tuple[Any, Any]:
    closed, leaves = _traced(product, vectors, batch)
    (plain,) = evaluate(closed.jaxpr, closed.consts, leaves, bind_by_numpy, ALL_CALLS)
    (moved,) = perturbed_steps(closed, int(_seed(rng)), leaves)
    return plain, np.asarray(moved) - np.asarray(plain)


def _traced(product: Partial, vectors: jax.Array, batch: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The closed jaxpr of the products with all vectors, and its arguments."""
    product, batch = jax.tree.map(partial(_repeated, len(vectors)), (product, batch))
    closed = _applied.of(product).trace(product, vectors, *batch).jaxpr
    return closed, jax.tree.leaves((product, vectors, batch))


def _repeated(times: int, leaf: Any) -> Any:
    """The leaf repeated along a new first axis; memory is used only if a copy is changed."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return jnp.broadcast_to(leaf, (times, *leaf.shape))
    return np.broadcast_to(np.asarray(leaf), (times, *leaf.shape))


@bounded_jit
def _applied(product: Partial, vectors: jax.Array, *batch: Any) -> jax.Array:
    """The products with all vectors; it is traced only once for arguments of the same shapes."""
    return jax.vmap(lambda product, v, batch: product(v, *batch))(product, vectors, batch)
