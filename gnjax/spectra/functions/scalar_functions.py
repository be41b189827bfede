"""Functions f of an eigenvalue, and what is known of their derivatives and their rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gnjax.numerics.rounding import unit_roundoff

_ULPS = 8.0  # more than NumPy's logarithm, quotient and root are off, in units of rounding


@dataclass(frozen=True)
class ScalarFunction:
    """f, for eigenvalues y as an array.

    Attributes:
      name: in words.
      of: y -> f(y).
      positive: whether f has no value at y <= 0.
      monotone: whether f rises or falls everywhere, so that f of an interval lies between f of its
        ends.
      bends: the sign of the derivatives of f of even order, where those of odd order have the other
        one: -1 for log y, +1 for 1 / y. 0 where nothing is known.
    """

    name: str
    of: Callable[[np.ndarray], np.ndarray]
    positive: bool = False
    monotone: bool = False
    bends: int = 0

    def values(self, y: np.ndarray) -> np.ndarray:
        """f(y) in float64; refused is an f that has another shape."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            values = np.asarray(self.of(y), np.float64)
        if values.shape != y.shape:
            msg = (
                f"f maps an array of eigenvalues to one of the same shape, such as np.exp; got "
                f"shape {values.shape} for {y.shape}"
            )
            raise ValueError(msg)
        return values

    def rounding(self, values: np.ndarray) -> np.ndarray:
        """A bound on the rounding of the ``values`` f(y), where y itself is rounded once.

        The functions by name change by at most |y f'(y)| <= 1 + |f| times a relative change of y.
        """
        return _ULPS * unit_roundoff(np.dtype(float)) * (1 + np.abs(values))


LOG = ScalarFunction("log", np.log, positive=True, monotone=True, bends=-1)
_NAMED = {
    "log": LOG,
    "inverse": ScalarFunction("inverse", np.reciprocal, positive=True, monotone=True, bends=1),
    "sqrt": ScalarFunction("sqrt", np.sqrt, positive=True, monotone=True, bends=-1),
}


def share_of(shift: float) -> ScalarFunction:
    """y / (y + s), the share of a direction that the data decide, for y >= 0."""
    return ScalarFunction("effective dimension", partial(_share, shift), monotone=True, bends=-1)


def _share(shift: float, y: np.ndarray) -> np.ndarray:
    return np.where(np.isposinf(y), 1.0, y / (y + shift))


def scalar_function(f: str | Callable[[np.ndarray], np.ndarray]) -> ScalarFunction:
    """The function of a name, or of the caller's own."""
    if callable(f):
        return ScalarFunction(getattr(f, "__name__", "f"), f)
    if f not in _NAMED:
        msg = f"f={f!r} is neither a function of an array nor one of {', '.join(_NAMED)}"
        raise ValueError(msg)
    return _NAMED[f]
