"""Operators that act entry by entry.

At a kink two derivatives are possible, and networks meet them: an input that is exactly 0 behind a
ReLU, a pixel at the end of a clamp. The functions here take PyTorch's side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Entry = Any
"""An array, or a number of Python."""


def _div(a: Entry, b: Entry, rounding_mode: str | None = None) -> jax.Array:
    """a / b, rounded down ("floor") or towards zero ("trunc") by the mode."""
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    quotient = jnp.true_divide(a, b)
    return jnp.trunc(quotient) if rounding_mode == "trunc" else quotient


def _pow(a: Entry, b: Entry) -> jax.Array:
    """a^b; integer powers are products, which have derivatives at 0 and for negative a."""
    if isinstance(b, float) and b.is_integer():
        b = int(b)
    if isinstance(b, int) and not isinstance(a, int | float):
        return jax.lax.integer_pow(a, b)
    return jnp.sqrt(a) if isinstance(b, float) and b == 0.5 else jnp.power(a, b)


def absolute(x: jax.Array) -> jax.Array:
    """|x|, with the derivative 0 at 0."""
    return x * jnp.sign(x)


def _clamp(
    x: jax.Array, low: Entry = None, high: Entry = None, at_ends: float = 1.0, **names: Entry
) -> jax.Array:
    """min(max(x, low), high), where the derivative by x is ``at_ends`` at x = low and x = high.

    The derivative by the bound is then 1 - ``at_ends``. PyTorch's releases differ in this number.
    ``names`` are the bounds if they come by PyTorch's names min and max.
    """
    low, high = names.get("min", low), names.get("max", high)
    if low is not None:
        x = jnp.where(x < low, low, jnp.where(x == low, _shared(x, low, at_ends), x))
    if high is not None:
        x = jnp.where(x > high, high, jnp.where(x == high, _shared(x, high, at_ends), x))
    return x


def _shared(x: jax.Array, bound: Entry, share: float) -> Entry:
    """x where it equals the bound: derivative ``share`` by x and 1 - ``share`` by the bound."""
    if share in (0, 1):
        return x if share else bound
    return share * x + (1 - share) * bound


def _hardtanh(x: jax.Array, low: Entry = -1.0, high: Entry = 1.0, **bounds: Entry) -> jax.Array:
    """min(max(x, low), high), with the derivative zero at x = low and x = high."""
    return _clamp(x, bounds.get("min_val", low), bounds.get("max_val", high), at_ends=0.0)


def _softplus(x: jax.Array, beta: float = 1.0, threshold: float = 20.0) -> jax.Array:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold."""
    beyond = beta * x > threshold  # there 0 takes the place of x in softplus
    return jnp.where(beyond, x, jax.nn.softplus(beta * jnp.where(beyond, 0.0, x)) / beta)


def _elu(x: jax.Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """scale x where x > 0, and scale alpha (exp(input_scale x) - 1) elsewhere."""
    # zero for x > 0, where exp may overflow: jnp.where would still multiply its derivative by zero
    negative = alpha * jnp.expm1(jnp.where(x > 0, 0.0, x) * input_scale)
    return scale * jnp.where(x > 0, x, negative)


def _unchanged(x: Entry, *args: Any, **names: Any) -> Entry:
    """x itself: copies and changes of memory or type do nothing to values here."""
    return x


_OF_JNP = str.split("""
    acos acosh asin asinh atan atan2 atanh ceil cos cosh exp expm1 floor isinf isnan
    log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum reciprocal
    round sign sin sinc sinh sqrt tan tanh trunc where
    bitwise_and bitwise_or bitwise_xor bitwise_not remainder fmod
    """)

TABLE: dict[str, Callable[..., Any]] = {
    **{name: getattr(jnp, name) for name in _OF_JNP},
    "_to_copy": _unchanged,
    "abs": absolute,
    "add": lambda a, b, alpha=1: a + (b if alpha == 1 else alpha * b),
    "clamp": _clamp,
    "alias": _unchanged,
    "clone": _unchanged,
    "detach": jax.lax.stop_gradient,
    "div": _div,
    "elu": _elu,
    "eq": jnp.equal,
    "erf": jax.lax.erf,
    "ge": jnp.greater_equal,
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "gt": jnp.greater,
    "hardsigmoid": lambda x: _hardtanh(x + 3, 0.0, 6.0) / 6,
    # x times the hard sigmoid; the derivative is 0 at -3 and 1 at 3
    "hardswish": lambda x: jnp.where(x <= -3, 0.0, jnp.where(x >= 3, x, x * (x + 3) / 6)),
    "hardtanh": _hardtanh,
    "le": jnp.less_equal,
    # jnp.where in place of jax.nn.leaky_relu: the derivative at 0 is the slope, as in PyTorch
    "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, negative_slope * x),
    "log_sigmoid": jax.nn.log_sigmoid,
    "lt": jnp.less,
    "mul": lambda a, b: a * b,
    "ne": jnp.not_equal,
    "neg": jnp.negative,
    "pow": _pow,
    "relu": jax.nn.relu,
    "rsqrt": jax.lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "softplus": _softplus,
    "sub": lambda a, b, alpha=1: a - (b if alpha == 1 else alpha * b),
}
