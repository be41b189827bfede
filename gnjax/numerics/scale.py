"""Powers of two, by which numbers are multiplied without rounding, unless they under- or overflow.

An eigenvalue of A is 2^e times that of 2^{-e} A, and a condition number is the same. Squares and
products of numbers near 1 stay within the range of float64, so that the engine works on 2^{-e} A
where the norm of A is far from 1, and multiplies the answer by 2^e.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import Certificate, Error
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


def times_power(array: Any, exponent: int) -> tuple[Any, float]:
    """2^exponent times an array, and a bound on the Frobenius norm of what underflow changes.

    Numbers below the smallest normal one are stored, but XLA may take them for zeros. Each of them
    then changes by less than that smallest number.
    """
    host = np.asarray(array)
    with np.errstate(under="ignore", over="ignore"):
        multiple = np.ldexp(host, exponent)
    smallest_normal = float(jnp.finfo(host.dtype).tiny)
    lost_entries = int(np.count_nonzero((np.abs(multiple) < smallest_normal) & (host != 0)))
    return on_device(multiple), smallest_normal * math.sqrt(lost_entries)


def raised_power(bound: float, exponent: int) -> float:
    """2^exponent times a bound that is not negative, and no less: infinite beyond float64."""
    with np.errstate(under="ignore", over="ignore"):
        multiple = float(np.ldexp(bound, exponent))
        is_below = np.ldexp(multiple, -exponent) < bound
    return math.nextafter(multiple, math.inf) if is_below else multiple


def values_in_units(
    values: np.ndarray, errors: np.ndarray | float, exponent: int
) -> tuple[np.ndarray, np.ndarray]:
    """2^exponent times values and bounds on their errors, rounded up where they underflow.

    A multiple that underflow rounds has an error more, of at most the smallest float. Values beyond
    the largest float are refused.
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


def error_in_units(error: Error, exponent: int) -> Error:
    """The error of 2^exponent times the number, with the same evidence."""
    return error.to(raised_power(error.value, exponent)) if error.value else error


def certificate_in_units(certificate: Certificate, exponent: int) -> Certificate:
    """The certificate of 2^exponent times the number: each of its errors is multiplied."""
    return Certificate(tuple(error_in_units(part, exponent) for part in certificate.parts))
