"""Random roundings of arrays: every entry times 1 + u or 1 - u."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.real_form import real_parts
from gnjax.networks.jaxprs import coarsest_eps, inexact
from gnjax.networks.rounding.numpy_operations import result_by_numpy
from gnjax.numerics.host import by_numpy

# (256, 8): for each byte 1 or -1 for each of its bits
_SIGNS_OF_BYTES = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
# (1 + u) times a power of two lies in the middle of two floats and would be rounded back to it
_ABOVE = 1 + 2.0**-6
_FEW_STEPS = 32  # of a loop that loses less than is measured
_PRODUCTS = frozenset(
    str.split("mul div square integer_pow dot_general conv_general_dilated")
)  # whose results may be zero for operands that are not


@dataclass
class Loops:
    """What loops may lose that rounds in one direction, by the steps that were run of them.

    Where every step of T adds nearly the same, each of them may be rounded in the same direction,
    so that together they lose up to T u of the result, with the relative error u of one rounding.
    Random signs show sqrt(T) of these only.
    """

    lost: float = 0.0  # the largest T u of a loop of more than a few steps
    _steps: int = 1  # of the loops that are being run, multiplied

    @contextmanager
    def steps(self, count: int, body: Any) -> Iterator[None]:
        """Count a loop of so many steps while it is run; those inside of it multiply with it."""
        around, self._steps = self._steps, self._steps * max(count, 1)
        if self._steps > _FEW_STEPS:
            self.lost = max(self.lost, self._steps * coarsest_eps(body.jaxpr) / 2)
        yield
        self._steps = around


class RandomSigns:
    """A source of random roundings of arrays that are at hand, new ones at every call.

    In host memory they are made by NumPy, which compiles nothing, and on an accelerator there.
    Values that are no arrays of floating or complex numbers come back as they are. ``loops`` counts
    the steps of the loops that are run with them.
    """

    def __init__(self, seed: int, loops: Loops | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.loops = Loops() if loops is None else loops
        self.something_decides: bool | None = None  # whether it matters what is exact
        # equations by their ids, each with how much its operands and its results are moved
        self.known: dict[int, tuple[Any, tuple[float, float]]] = {}

    def moved(self, value: Any, size: float, exact: Any = None) -> Any:
        """value (1 + size xi) for independent random signs xi, one for every entry.

        Entries where the mask ``exact`` is true stay as they are, and so does an infinity, as of a
        mask before a softmax. Numbers below the smallest normal one move by it.
        """
        if not size or not _floats(value):
            return value
        array = by_numpy(value)
        with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
            moved = self._signs(_ABOVE * size, array)  # by a little more, see _ABOVE
            moved *= array
            moved += array
        xp = array.__array_namespace__()  # numpy, or jax.numpy on an accelerator
        if not xp.isfinite(moved).all():
            moved = xp.where(xp.isinf(array), array, moved)
        if exact is not None:
            moved = xp.where(exact, array, moved)
        return self.flushed(moved)

    def shifted(self, value: Any, size: float) -> Any:
        """A matrix, or several, plus or minus ``size`` times the largest entry of its matrix.

        Every entry has a sign of its own, and entries that are zero move as well.
        """
        if not _floats(value) or value.ndim < 2:
            return value
        array = by_numpy(value)
        largest = abs(array).max(axis=(-2, -1), keepdims=True)
        with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
            return array + self._signs(1.0, array) * (_ABOVE * size * largest).astype(array.dtype)

    def flushed(self, value: Any) -> Any:
        """An array, with nonzero entries below the smallest normal number moved by that number.

        XLA may take such entries for zero (flush them), which is an error of at most that number.
        """
        if not _floats(value):
            return value
        array = by_numpy(value)
        tiny, sizes = _tiny(array.dtype), abs(array)
        if not sizes.min() < tiny:
            return value
        return self._shaken(array, (sizes < tiny) & (sizes > 0), tiny)

    def result(self, eqn: Any, operands: Sequence[Any]) -> Any:
        """The results of an equation, moved by tiny where they are zeros that may have underflowed.

        Relative errors do not move a zero. Where a product, quotient or power underflowed to 0, its
        error is below tiny, the smallest normal number of the format.
        """
        results = result_by_numpy(eqn, operands)
        if eqn.primitive.name not in _PRODUCTS or not inexact(eqn.outvars[0].aval):
            return results
        array = by_numpy(results)
        tiny = _tiny(array.dtype)
        if array.all() or _least_product(eqn, operands) >= float(tiny):
            return results
        return self._shaken(array, array == 0, tiny)

    def _shaken(self, array: Any, where: Any, tiny: Any) -> Any:
        """The array with ``tiny`` added or subtracted at random at the entries of a mask."""
        if not where.any():
            return array
        moved = array + self._signs(float(tiny), array)
        return array.__array_namespace__().where(where, moved, array)

    def _signs(self, step: float, like: Any) -> Any:
        """An array of the shape and dtype of ``like``, each entry ``step`` or -``step`` at random.

        In host memory each of the eight bits of a random byte is a sign, by a table (256, 8).
        """
        if not isinstance(like, np.ndarray):
            key = jax.random.key(int(self.rng.integers(2**32)))
            return step * jax.random.rademacher(key, like.shape, jnp.finfo(like.dtype).dtype)
        byte_count = -(-like.size // 8)  # rounded up
        random_bytes = np.frombuffer(self.rng.bytes(byte_count), np.uint8)
        signs = (step * _SIGNS_OF_BYTES).astype(like.dtype).take(random_bytes, axis=0)
        return signs.reshape(-1)[: like.size].reshape(like.shape)


@lru_cache
def _tiny(dtype: Any) -> Any:
    """The smallest normal number of a format."""
    return jnp.finfo(dtype).tiny


def _floats(value: Any) -> bool:
    """Whether a value is an array with entries that are floating or complex numbers."""
    return inexact(value) and value.size > 0


def _least_product(eqn: Any, operands: Sequence[Any]) -> float:
    """A lower bound on |x y|, |x / y| or |x^k|, as the equation computes, for nonzero entries x, y.

    It is 0 where nothing better is known. Above 1 it need not be sharp: it is compared with the
    smallest normal number. A complex entry counts as two real ones.
    """
    sizes = [abs(real_parts(by_numpy(operand)).astype(float)) for operand in operands]
    # of entries that are not zero; infinity where all are
    smallest = [float(s.min(where=s > 0, initial=np.inf)) for s in sizes]
    largest = [float(s.max(initial=0)) for s in sizes]
    if eqn.primitive.name == "div":
        return smallest[0] / max(largest[1], 1.0)
    if eqn.primitive.name in ("square", "integer_pow"):
        power = eqn.params.get("y", 2)
        extreme = smallest[0] if power > 0 else max(largest[0], 1.0)
        # extreme^power, or 1 where it is more, so that nothing overflows
        return math.exp(min(power * math.log(extreme), 0.0)) if 0 < extreme < math.inf else 0.0
    return min(smallest[0], 1e300) * min(smallest[1], 1e300)
