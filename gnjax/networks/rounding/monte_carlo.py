"""Monte Carlo arithmetic: a function evaluated with every rounding replaced by a random one.

Every floating point result is multiplied by 1 + u or 1 - u, at random, where u is the largest
relative error of one rounding in the dtype of that result (Parker 1997). The spread of a few
evaluations shows how much rounding can do to the value of the function: also where two ways to
compute it share their rounding errors, where sums cancel, and where a part of a float64 model works
in float32 or bfloat16.

What is perturbed:

- Operations that are exact (copies, reshapes, gathers, comparisons, maxima, conversions to a wider
  type, integers and booleans): nothing.
- Sums, differences, products, quotients and square roots: the result, by u.
- Sums of many terms (matrix products, convolutions, sums over axes): the terms as well, because the
  rounding of partial sums remains where the sum itself cancels. XLA adds the terms of a matrix
  product one after the other in long runs, so that its error grows with the square root of their
  number.
- Elementary functions: the result, by 4 u, because XLA computes them to a few units only.
- Functions with a relative error that grows in their tails (erfc): the operand by 2 u as well.
- Everything else (special functions, decompositions of matrices, library calls, whatever cannot be
  entered): the operands by 8 u and the results by 32 u. A call that is less accurate than that is
  not seen to be.

Where arrays are at hand, and not in one compiled program, underflow counts as well: XLA takes a
number below the smallest normal one for zero, so that such a number, and a zero that is a product
of numbers so small, moves by the smallest normal one.

Calls, loops and branches are entered. Constants and arguments count as exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jaxprs import bind, equations, evaluate, evaluate_call, scanned, wrapped
from gnjax.networks.rounding.by_numpy import bind_by_numpy
from gnjax.numerics.rounding import unit_roundoff

_ELEMENTARY, _TAILS, _OTHER = (0.0, 4.0), (2.0, 4.0), (8.0, 32.0)  # operands, results, in u
_RUN = 8.0  # a sum of K terms is perturbed like 1 + sqrt(K) / 8 roundings, see the tests
_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**10, 2**18
_ROWS = 4  # rows of a block of random bits
_GOLDEN = 0x9E3779B9
_SIGNS_OF_BYTES = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)

_EXACT = frozenset(
    str.split("""
    abs all_gather all_to_all argmax argmin broadcast broadcast_in_dim bitcast_convert_type ceil
    clamp complex concatenate conj copy copy_p copysign cummax cummin device_put dynamic_slice
    dynamic_update_slice empty expand_dims floor full gather imag iota max min name neg nextafter
    optimization_barrier pad ppermute real reduce_max reduce_min reduce_window_max
    reduce_window_min rem reshape rev round scatter scatter_max scatter_min select_and_gather_add
    select_n sharding_constraint sign slice sort split squeeze stop_gradient tile top_k transpose
    """)
)
_BASIC = frozenset(str.split("add add_any div integer_pow mul sqrt square sub"))
_SUMS = frozenset(
    str.split("""
    conv_general_dilated cumsum dot_general psum reduce_sum reduce_window_sum scatter-add
    scatter_add select_and_scatter_add
    """)
)
_PRODUCTS = frozenset(
    str.split("mul div square integer_pow dot_general conv_general_dilated")
)  # whose results may be zero for operands that are not
_CONTRACTIONS = ("dot_general", "conv_general_dilated")
_FUNCTIONS = {
    **dict.fromkeys(
        str.split("""
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf exp exp2 expm1 log logistic rsqrt
        sin sinh tan tanh
        """),
        _ELEMENTARY,
    ),
    "erfc": _TAILS,
}


def perturbed(function: Callable[..., Any], seed: jax.typing.ArrayLike, *args: Any) -> Any:
    """``function(*args)`` in Monte Carlo arithmetic, with the random signs that ``seed`` chooses.

    Args:
      function: any JAX function of pytrees of arrays, also one that differentiates.
      seed: an integer; another one gives independent signs.
      args: its arguments, which are taken as exact.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    rounded = _Traced(jnp.asarray(seed).astype(jnp.uint32))
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(args)]
    results = evaluate(closed.jaxpr, closed.consts, leaves, partial(_bind, rounded))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def perturbed_steps(closed: Any, seed: int, leaves: Sequence[Any]) -> list[Any]:
    """The results of a closed jaxpr in Monte Carlo arithmetic, one operation after the other.

    No program is compiled but those of single operations, which together are many times smaller
    than one program of them all.
    """
    stepped = _Stepped(seed)
    return evaluate(
        closed.jaxpr,
        [stepped.flushed(const) for const in closed.consts],
        [stepped.flushed(leaf) for leaf in leaves],
        partial(_bind, stepped),
    )


def narrowest(function: Callable[..., Any], *args: Any) -> jnp.dtype:
    """The floating dtype with the smallest exponent range that is a result in ``function``."""
    closed = jax.make_jaxpr(function)(*args)
    found = {
        v.aval.dtype for eqn in equations(closed.jaxpr) for v in eqn.outvars if _inexact(v.aval)
    }
    return max(found, key=lambda dtype: float(jnp.finfo(dtype).tiny), default=jnp.dtype(float))


class _Roundings(Protocol):
    """A source of random roundings, which gives new ones at every call."""

    def moved(self, value: Any, size: float) -> Any:
        """value (1 + size xi) for independent random signs xi, one for every entry."""
        ...

    def word(self) -> jax.Array:
        """A random word of 32 bits, the seed of a loop."""
        ...

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        """The results of an equation without random roundings."""
        ...


class _Stepped:
    """Roundings of arrays that are at hand, by NumPy, which compiles nothing."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def moved(self, value: Any, size: float) -> Any:
        if not (hasattr(value, "dtype") and _perturbs(value, size)):
            return value
        found = np.asarray(value)
        with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
            moved = self._signs(_step(size), found)
            moved *= found
            moved += found
        moved = moved if np.isfinite(moved).all() else np.where(np.isinf(found), found, moved)
        return self.flushed(moved)

    def flushed(self, value: Any) -> Any:
        """The value, with each number below the smallest normal one moved by that number."""
        if not (hasattr(value, "dtype") and _perturbs(value, 1.0)):
            return value
        found = np.asarray(value)
        tiny = jnp.finfo(found.dtype).tiny
        sizes = np.abs(found)
        if not sizes.min() < tiny:
            return value
        return self._shaken(found, (sizes < tiny) & (sizes > 0), tiny)

    def _shaken(self, found: np.ndarray, where: np.ndarray, tiny: Any) -> np.ndarray:
        if not where.any():
            return found
        return np.where(where, found + self._signs(float(tiny), found), found)

    def _signs(self, step: float, like: np.ndarray) -> np.ndarray:
        """``step`` with random signs, of which every random byte gives eight."""
        drawn = np.frombuffer(self.rng.bytes(-(-like.size // 8)), np.uint8)
        signs = (step * _SIGNS_OF_BYTES).astype(like.dtype).take(drawn, axis=0)
        return signs.reshape(-1)[: like.size].reshape(like.shape)

    def word(self) -> jax.Array:
        return jnp.uint32(self.rng.integers(2**32))

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        """The results, where zeros that are products of very small numbers are moved."""
        results = bind_by_numpy(eqn, operands)
        if eqn.primitive.name not in _PRODUCTS or not _inexact(eqn.outvars[0].aval):
            return results
        found = np.asarray(results)
        if found.all():
            return results
        tiny = jnp.finfo(found.dtype).tiny
        if _least_product(eqn, operands) >= float(tiny):
            return results
        return self._shaken(found, found == 0, tiny)


class _Traced:
    """Roundings inside of a program that JAX compiles, from the random booleans of a seed.

    They are drawn many at a time, which XLA compiles sooner.
    """

    def __init__(self, seed: jax.Array) -> None:
        self.seed = seed
        self.held, self.used, self.blocks = jnp.zeros(0, bool), 0, itertools.count(1)

    def moved(self, value: Any, size: float) -> Any:
        value = jnp.asarray(value)
        if not _perturbs(value, size):
            return value
        step = _step(size)
        up, down = (jnp.full(value.shape, sign * step, value.dtype) for sign in (1, -1))
        moved = value + value * jax.lax.select(self._signs(value.shape), up, down)
        return jax.lax.select(jnp.isinf(value), value, moved)

    def word(self) -> jax.Array:
        powers = jnp.uint32(1) << jax.lax.iota(jnp.uint32, 32)
        return jnp.where(self._signs((32,)), powers, jnp.uint32(0)).sum(dtype=jnp.uint32)

    def bound(self, eqn: Any, operands: Sequence[Any]) -> Any:
        return bind(eqn, operands)

    def _signs(self, shape: tuple[int, ...]) -> jax.Array:
        size = math.prod(shape)
        if self.used + size > self.held.size:
            block = max(size, min(4 * self.held.size, _LARGEST_BLOCK), _SMALLEST_BLOCK)
            seed = self.seed + jnp.uint32(next(self.blocks) * _GOLDEN % 2**32)
            self.held, self.used = _drawn(seed, block), 0
        self.used += size
        return jax.lax.slice(self.held, (self.used - size,), (self.used,)).reshape(shape)


def _least_product(eqn: Any, operands: Sequence[Any]) -> float:
    """A number that no product or quotient of non-zero entries of the operands lies below."""
    sizes = [np.abs(np.asarray(operand, np.float64)) for operand in operands]
    least = [float(np.min(size, where=size > 0, initial=np.inf)) for size in sizes]
    if eqn.primitive.name == "div":
        return least[0] / max(float(sizes[1].max(initial=0.0)), 1.0)
    if eqn.primitive.name in ("square", "integer_pow"):
        power = eqn.params.get("y", 2)
        extreme = least[0] if power > 0 else float(sizes[0].max(initial=1.0))
        return math.exp(min(power * math.log(extreme), 0.0)) if 0 < extreme < math.inf else 0.0
    return min(least[0], 1e300) * min(least[1], 1e300)


def _perturbs(value: jax.Array, size: float) -> bool:
    return _inexact(value) and value.size > 0 and size > 0


def _step(size: float) -> float:
    """A relative change slightly above ``size``, which moves a value to another number.

    With u itself, a power of two would stay where it is, because of the rule for ties. An infinity,
    as of a mask before a softmax, is no rounded number and stays: inf - inf would be nan.
    """
    return (1 + 2.0**-6) * size


def _drawn(seed: jax.Array, size: int) -> jax.Array:
    """The first bits of hashes of (seed, 0), (seed, 1), .., row by row in a loop.

    XLA keeps the results of a loop. Other bits it draws again, and compiles the drawing again,
    inside of every operation that uses some of them.
    """
    row = -(-size // _ROWS)
    start = mixed(seed)

    def drawn(first: jax.Array) -> jax.Array:
        count = (jax.lax.iota(jnp.uint32, row) + first) * jnp.uint32(_GOLDEN)
        return mixed(count + start) >> 31 == 1

    rows = jnp.arange(_ROWS, dtype=jnp.uint32) * jnp.uint32(row)
    return jax.lax.map(drawn, rows).reshape(-1)


def mixed(word: jax.Array) -> jax.Array:
    """A hash of 32-bit words in which every bit depends on every bit (shifts and products)."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)


def _inexact(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.inexact))


def _bind(rounded: _Roundings, eqn: Any, operands: Sequence[Any]) -> Any:
    """An equation in Monte Carlo arithmetic."""
    name = eqn.primitive.name
    if name in _LOOPS:
        results: list[Any] = _LOOPS[name](rounded.word(), eqn, operands)
        return results
    if wrapped(eqn) is not None:
        return evaluate_call(eqn, operands, partial(_bind, rounded))
    before, after = _sizes(eqn)
    if before:
        operands = [rounded.moved(_as_wide(eqn, o), before) for o in operands]
    bound = rounded.bound(eqn, operands)
    if not eqn.primitive.multiple_results:
        return rounded.moved(bound, after)
    return [rounded.moved(result, after) for result in bound]


def _sizes(eqn: Any) -> tuple[float, float]:
    """The relative size of the perturbations of an equation's operands and of its results."""
    floating = [v.aval for v in eqn.outvars if _inexact(v.aval)]
    if not floating or eqn.primitive.name in _EXACT:
        return 0.0, 0.0
    u = max(unit_roundoff(aval.dtype) for aval in floating)
    name = eqn.primitive.name
    if name == "convert_element_type":
        return 0.0, u if _narrows(eqn) else 0.0
    if name == "reduce_precision":
        return 0.0, max(u, 0.5 ** (eqn.params["mantissa_bits"] + 1))
    if name in _BASIC:
        return 0.0, u
    if name in _CONTRACTIONS:
        runs = 1 + math.sqrt(_terms(eqn)) / _RUN
        return max(runs * u, _multiplier_roundoff(eqn)), runs * u
    if name in _SUMS:
        return u, u
    before, after = _FUNCTIONS.get(name, _OTHER)
    return before * u, after * u


def _narrows(eqn: Any) -> bool:
    """Whether a conversion rounds. Integers are taken to be small enough to be exact."""
    given, made = eqn.invars[0].aval, eqn.outvars[0].aval
    return _inexact(given) and jnp.finfo(made.dtype).eps > jnp.finfo(given.dtype).eps


def _as_wide(eqn: Any, operand: Any) -> Any:
    """The operand of a matrix product in the dtype of the result, in which the terms are added."""
    result = eqn.outvars[0].aval.dtype
    mixed = eqn.primitive.name in _CONTRACTIONS and jnp.result_type(operand) != result
    return jnp.asarray(operand).astype(result) if mixed else operand


def _terms(eqn: Any) -> int:
    """How many products are added to make one entry of a matrix product or a convolution."""
    if eqn.primitive.name == "dot_general":
        shape = eqn.invars[0].aval.shape
        return math.prod(shape[axis] for axis in eqn.params["dimension_numbers"][0][0])
    shape, (out, *_) = eqn.invars[1].aval.shape, eqn.params["dimension_numbers"].rhs_spec
    return math.prod(shape) // max(shape[out], 1)


def _multiplier_roundoff(eqn: Any) -> float:
    """The relative error to which a device rounds the factors of a matrix product beforehand.

    A GPU takes float32 factors in TF32, a TPU in bfloat16, where no precision is asked for.
    """
    asked = str(eqn.params["precision"]).upper()
    device, single = jax.default_backend(), eqn.outvars[0].aval.dtype == jnp.float32
    plain = asked in ("NONE", "DEFAULT") or "PRECISION.DEFAULT" in asked or ".DEFAULT" in asked
    if "BF16" in asked or (single and plain and device == "tpu"):
        return unit_roundoff(jnp.dtype(jnp.bfloat16))
    if "TF32" in asked or (single and plain and device == "gpu"):
        return 2.0**-11
    return unit_roundoff(jnp.dtype(jnp.float16)) if "F16" in asked else 0.0


def _while(seed: jax.Array, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """A loop whose body is perturbed with other signs each time; its condition is not."""
    condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first = eqn.params["cond_nconsts"]
    second = first + eqn.params["body_nconsts"]
    tested, used, carry = operands[:first], operands[first:second], operands[second:]

    def goes_on(state: list[Any]) -> Any:
        return evaluate(condition.jaxpr, condition.consts, [*tested, *state[1:]], bind)[0]

    def step(state: list[Any]) -> list[Any]:
        now, *values = state
        return [mixed(now + jnp.uint32(1)), *_inside(now, body, [*used, *values])]

    return list(jax.lax.while_loop(goes_on, step, [seed, *carry])[1:])


def _scan(seed: jax.Array, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    steps = jax.lax.iota(jnp.uint32, eqn.params["length"]) * jnp.uint32(_GOLDEN)

    def step(body: Any, values: Sequence[Any], now: jax.Array) -> tuple[list[Any], None]:
        return _inside(now, body, values), None

    return scanned(eqn, operands, step, mixed(seed + steps))[0]


def _cond(seed: jax.Array, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    index, *values = operands
    branches = [
        lambda *given, inner=inner: _inside(seed, inner, given) for inner in eqn.params["branches"]
    ]
    return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *values))


def _inside(seed: jax.Array, closed: Any, values: Sequence[Any]) -> list[Any]:
    """The body of a loop or a branch, in Monte Carlo arithmetic."""
    return evaluate(closed.jaxpr, closed.consts, values, partial(_bind, _Traced(seed)))


_LOOPS = {"while": _while, "scan": _scan, "cond": _cond}
