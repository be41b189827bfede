"""Powers of two, by which numbers are multiplied without rounding, unless they under- or overflow.

Squares and products of numbers near 1 stay within the range of float64. So :func:`reach` says how
far from 1 the norm of an operator may be.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import on_cpu, on_device

_REACH = 307  # squares of errors of a norm of 2^-307 are still far above the end of float64
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


def reach(dtype: Any) -> int:
    """The largest r for which a norm of 2^-r .. 2^r leaves room for squares, sums and errors."""
    return min(_REACH, int(jnp.finfo(dtype).maxexp) // 2)


def exponent_of(number: float) -> int | None:
    """e with 2^{e-1} <= |number| < 2^e; None for zero and for what is not finite."""
    return math.frexp(number)[1] if number and math.isfinite(number) else None


def largest_exponent(array: Any) -> int | None:
    """e with 2^{e-1} <= max |A_ij| < 2^e; None where every entry is zero, or one is not finite."""
    # A device takes numbers below the normal ones for zeros: where it finds none, the host looks.
    if not on_cpu(array):
        exponent = exponent_of(float(jnp.abs(array).max()))
        if exponent is not None:
            return exponent
    host = np.asarray(array)
    return exponent_of(max(float(host.max()), -float(host.min())))


def times_power(array: Any, exponent: int) -> Any:
    """2^exponent times an array, numbers below the smallest normal one included."""
    with np.errstate(under="ignore", over="ignore"):
        return on_device(np.ldexp(np.asarray(array), exponent))


def values_in_units(
    values: np.ndarray, errors: np.ndarray | float, exponent: int
) -> tuple[np.ndarray, np.ndarray]:
    """2^exponent times ``values`` and times bounds on their ``errors``, which stay bounds.

    Multiples are exact unless they underflow. Then a bound is rounded up, and a value that is
    rounded has a further error of at most the smallest float, which is added to its bound. Values
    beyond the largest float are refused.
    """
    with np.errstate(under="ignore", over="ignore"):
        multiples, bounds = np.ldexp(values, exponent), np.ldexp(errors, exponent)
        # Multiplied back, a number that was rounded is not what it was.
        is_rounded = np.ldexp(multiples, -exponent) != values
        is_too_small = np.ldexp(bounds, -exponent) < errors
    if not np.isfinite(multiples).all():
        decimal_exponent = math.log10(float(np.abs(values).max())) + exponent * math.log10(2)
        msg = (
            f"the answer is about 1e{decimal_exponent:+.0f}, beyond the largest float; divide "
            "the matrix, or its factor, by a power of two"
        )
        raise ValueError(msg)
    bounds = np.where(is_too_small, np.nextafter(bounds, np.inf), bounds)
    return multiples, np.where(is_rounded, bounds + SMALLEST, bounds)
