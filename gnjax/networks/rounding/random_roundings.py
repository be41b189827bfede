"""Sources of random roundings: of arrays that are at hand, and inside of one compiled program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jaxprs import bind, inexact
from gnjax.networks.rounding.by_numpy import bind_by_numpy

GOLDEN = 0x9E3779B9
_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**10, 2**18
_ROWS = 4  # rows of a block of random bits
_SIGNS_OF_BYTES = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_PRODUCTS = frozenset(
    str.split("mul div square integer_pow dot_general conv_general_dilated")
)  # whose results may be zero for operands that are not


class Roundings(Protocol):
    """A source of random roundings, which gives new ones at every call."""

    def moved(self, value: Any, size: float, least: float = 0.0) -> Any:
        """value (1 + size xi) for independent random signs xi, one for every entry.

        Entries of absolute value below ``least`` stay as they are.
        """
        ...

    def word(self) -> jax.Array:
        """A random word of 32 bits, the seed of a loop."""
        ...

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        """The results of an equation without random roundings."""
        ...


class Stepped:
    """Roundings of arrays that are at hand, by NumPy, which compiles nothing."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def moved(self, value: Any, size: float, least: float = 0.0) -> Any:
        if not (hasattr(value, "dtype") and _perturbs(value, size)):
            return value
        array = np.asarray(value)
        if least and not (np.abs(array) >= least).any():
            return value
        with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
            moved = self._signs(_step(size), array)
            moved *= array
            moved += array
        moved = moved if np.isfinite(moved).all() else np.where(np.isinf(array), array, moved)
        if least:
            moved = np.where(np.abs(array) < least, array, moved)
        return self.flushed(moved)

    def flushed(self, value: Any) -> Any:
        """The value, with each number below the smallest normal one moved by that number."""
        if not (hasattr(value, "dtype") and _perturbs(value, 1.0)):
            return value
        array = np.asarray(value)
        tiny = jnp.finfo(array.dtype).tiny
        sizes = np.abs(array)
        if not sizes.min() < tiny:
            return value
        return self._shaken(array, (sizes < tiny) & (sizes > 0), tiny)

    def _shaken(self, array: np.ndarray, where: np.ndarray, tiny: Any) -> np.ndarray:
        if not where.any():
            return array
        return np.where(where, array + self._signs(float(tiny), array), array)

    def _signs(self, step: float, like: np.ndarray) -> np.ndarray:
        """``step`` with random signs, of which every random byte gives eight."""
        random_bytes = np.frombuffer(self.rng.bytes(-(-like.size // 8)), np.uint8)
        signs = (step * _SIGNS_OF_BYTES).astype(like.dtype).take(random_bytes, axis=0)
        return signs.reshape(-1)[: like.size].reshape(like.shape)

    def word(self) -> jax.Array:
        return jnp.uint32(self.rng.integers(2**32))

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        """The results, where zeros that are products of very small numbers are moved."""
        results = bind_by_numpy(eqn, operands)
        if eqn.primitive.name not in _PRODUCTS or not inexact(eqn.outvars[0].aval):
            return results
        array = np.asarray(results)
        if array.all():
            return results
        tiny = jnp.finfo(array.dtype).tiny
        if _least_product(eqn, operands) >= float(tiny):
            return results
        return self._shaken(array, array == 0, tiny)


class Traced:
    """Roundings inside of a program that JAX compiles, from the random booleans of a seed.

    They are drawn many at a time, which XLA compiles sooner.
    """

    def __init__(self, seed: jax.Array) -> None:
        self.seed = seed
        self.bits, self.bits_used, self.blocks = jnp.zeros(0, bool), 0, itertools.count(1)

    def moved(self, value: Any, size: float, least: float = 0.0) -> Any:
        value = jnp.asarray(value)
        if not _perturbs(value, size):
            return value
        step = _step(size)
        up, down = (jnp.full(value.shape, sign * step, value.dtype) for sign in (1, -1))
        moved = value + value * jax.lax.select(self._signs(value.shape), up, down)
        stays = jnp.isinf(value)
        if least:
            stays |= jnp.abs(value) < least
        return jax.lax.select(stays, value, moved)

    def word(self) -> jax.Array:
        powers = jnp.uint32(1) << jax.lax.iota(jnp.uint32, 32)
        return jnp.where(self._signs((32,)), powers, jnp.uint32(0)).sum(dtype=jnp.uint32)

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        return bind(eqn, operands)

    def _signs(self, shape: tuple[int, ...]) -> jax.Array:
        size = math.prod(shape)
        if self.bits_used + size > self.bits.size:
            block = max(size, min(4 * self.bits.size, _LARGEST_BLOCK), _SMALLEST_BLOCK)
            seed = self.seed + jnp.uint32(next(self.blocks) * GOLDEN % 2**32)
            self.bits, self.bits_used = _random_bits(seed, block), 0
        self.bits_used += size
        return jax.lax.slice(self.bits, (self.bits_used - size,), (self.bits_used,)).reshape(shape)


def _least_product(eqn: Any, operands: Sequence[Any]) -> float:
    """A number that no product or quotient of non-zero entries of the operands lies below."""
    sizes = [np.abs(np.asarray(operand)).astype(np.float64) for operand in operands]
    least = [float(np.min(size, where=size > 0, initial=np.inf)) for size in sizes]
    if eqn.primitive.name == "div":
        return least[0] / max(float(sizes[1].max(initial=0.0)), 1.0)
    if eqn.primitive.name in ("square", "integer_pow"):
        power = eqn.params.get("y", 2)
        extreme = least[0] if power > 0 else float(sizes[0].max(initial=1.0))
        return math.exp(min(power * math.log(extreme), 0.0)) if 0 < extreme < math.inf else 0.0
    return min(least[0], 1e300) * min(least[1], 1e300)


def _perturbs(value: jax.Array, size: float) -> bool:
    return inexact(value) and value.size > 0 and size > 0


def _step(size: float) -> float:
    """A relative change slightly above ``size``, which moves a value to another number.

    With u itself, a power of two would stay where it is, because of the rule for ties. An infinity,
    as of a mask before a softmax, is no rounded number and stays: inf - inf would be nan.
    """
    return (1 + 2.0**-6) * size


def _random_bits(seed: jax.Array, size: int) -> jax.Array:
    """The first bits of hashes of (seed, 0), (seed, 1), .., row by row in a loop.

    XLA keeps the results of a loop. Other bits it draws again, and compiles the drawing again,
    inside of every operation that uses some of them.
    """
    row = -(-size // _ROWS)
    start = mixed(seed)

    def row_of_bits(first: jax.Array) -> jax.Array:
        count = (jax.lax.iota(jnp.uint32, row) + first) * jnp.uint32(GOLDEN)
        return mixed(count + start) >> 31 == 1

    rows = jnp.arange(_ROWS, dtype=jnp.uint32) * jnp.uint32(row)
    return jax.lax.map(row_of_bits, rows).reshape(-1)


def mixed(word: jax.Array) -> jax.Array:
    """A hash of 32-bit words in which every bit depends on every bit (shifts and products)."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
