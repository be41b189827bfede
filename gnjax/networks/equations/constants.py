"""Numbers in the equations of a network that were rounded to float32 when they were written."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_DIGITS = 6  # digits of a decimal in a program; few other float32 numbers have so few
_LARGEST_ROOT = 256.0  # roots of integers up to its square, 65,536, are recognised
_KNOWN = (math.sqrt(2 / math.pi), math.pi, 2 * math.pi, math.log(2), 1 / 3, 2 / 3)


def unrounded(number: Any) -> Any:
    """The float64 from which a float32 number was rounded, where it is easily recognised.

    That is a decimal of six digits, a constant such as pi, or the root of an integer or its
    inverse, if it rounds to this float32. Any other float32 is converted as it is. A number that is
    no float32, or that is traced, not finite or zero comes back unchanged.
    """
    if getattr(number, "dtype", None) != jnp.float32 or isinstance(number, jax.core.Tracer):
        return number
    value = np.float32(number)
    magnitude = abs(float(value))
    if not np.isfinite(value) or magnitude == 0:
        return number
    # the integers m and n of which the number may be sqrt(m) or 1 / sqrt(n)
    square = round(magnitude**2) if magnitude < _LARGEST_ROOT else 0
    inverse = round(magnitude**-2) if magnitude > 1 / _LARGEST_ROOT else 0
    guesses = [float(f"{magnitude:.{_DIGITS}g}"), *_KNOWN, square**0.5]
    guesses += [inverse**-0.5] if inverse else []
    matches = [guess for guess in guesses if np.float32(guess) == np.float32(magnitude)]
    return np.float64(np.copysign(matches[0], float(value)) if matches else float(value))
