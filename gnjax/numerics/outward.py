"""Numbers that must not be too small: norms and sums of errors, rounded away from zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.host import by_numpy, on_cpu, on_device
from gnjax.numerics.rounding import gamma, unit_roundoff

# Each sum or product of non-negative numbers in float64 has a relative error of at most u. This
# margin covers 4000 operations.
_MARGIN = 1 + 2.0**-40
_SAFE = 1e-100, 1e100  # entries whose squares are far from both ends of float64


def raised(bound: float) -> float:
    """A bound from a float64 formula without differences, moved above its own rounding."""
    return float(bound) * _MARGIN


def lowered(bound: float) -> float:
    """A lower bound that is not negative, moved below the rounding of its float64 formula."""
    return float(bound) / _MARGIN


def above(result: float) -> float:
    """The next number above a result that one operation has rounded."""
    return math.nextafter(float(result), math.inf)


def below(result: float) -> float:
    """The next number below a result that one operation has rounded."""
    return math.nextafter(float(result), -math.inf)


def stored_bound(bounds: float | Sequence[float], dtype: jnp.dtype) -> jax.Array:
    """Bounds as a JAX array of the ``dtype``, each rounded up: none is below its float64 value."""
    exact = np.asarray(bounds, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        converted = exact.astype(dtype)
    next_numbers = np.nextafter(converted, np.asarray(np.inf, converted.dtype))
    return on_device(np.where(converted.astype(np.float64) < exact, next_numbers, converted))


def frobenius_norm(matrix: jax.Array | np.ndarray) -> float:
    """An upper bound on the Frobenius norm ||M||_F, in which its own rounding is counted.

    Entries are scaled, so that their squares cannot under- or overflow. The squares of a row are
    added up in float64 on a CPU, and elsewhere in the precision of the matrix.
    """
    by_numpy_itself = on_cpu(matrix) and matrix.dtype in (np.float32, np.float64)
    row_squares = _host_row_squares if by_numpy_itself else _row_squares
    scale, squared_lengths = row_squares(matrix)
    if float(scale) == 0.0:
        return 0.0
    # The sum of a row's squares loses at most gamma_{columns + 4} of itself: division by the scale,
    # squares and additions. Underflow does not count, as the largest square is 1e-200 or more.
    lost = gamma(matrix.shape[-1] + 4, squared_lengths.dtype)
    total = float(np.asarray(squared_lengths, np.float64).sum())
    return raised(float(scale) * math.sqrt(total * (1 + 2 * lost)))


@jax.jit
def _row_squares(matrix: jax.Array | np.ndarray) -> tuple[jax.Array, jax.Array]:
    """The scale s = max |M_ij|, and the squared length of each row of M / s, by XLA."""
    scale = jnp.abs(matrix).max()
    return scale, jnp.square(matrix / jnp.where(scale == 0, 1, scale)).sum(axis=-1)


def _host_row_squares(matrix: jax.Array | np.ndarray) -> tuple[float, np.ndarray]:
    """A scale s, and the squared length of each row of M / s, by NumPy in float64.

    If the largest |M_ij| is between 1e-100 and 1e100, no square of an entry can overflow, and none
    that counts can underflow: then s is 1 and nothing is copied. On a CPU this is several times
    faster than XLA.
    """
    entries = np.asarray(matrix)
    scale = float(max(entries.max(initial=0.0), -entries.min(initial=0.0)))
    if _SAFE[0] < scale < _SAFE[1]:
        return 1.0, np.einsum("...j,...j->...", entries, entries, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        scaled = entries.astype(np.float64) / (scale or 1.0)
    return scale, np.einsum("...j,...j->...", scaled, scaled)


def underflow(terms: int, entries: int, dtype: jnp.dtype) -> float:
    """A bound on what underflow changes in a matrix product, in Frobenius norm.

    The product has ``entries`` entries, each a sum of ``terms`` products. XLA may set every result
    below the smallest normal number to zero: in each entry ``terms`` products and as many sums.
    """
    return 2 * terms * math.sqrt(entries) * float(jnp.finfo(dtype).tiny)


def conversion_error(original: ArrayLike, stored: jax.Array | np.ndarray) -> float:
    """A bound on ||original - stored||_F for an array and its copy in the working precision.

    It is exactly 0 where nothing was rounded. In 32-bit mode JAX stores float64 input in float32.
    """
    host = original if isinstance(original, jax.Array) else np.asarray(original)
    if host.dtype == stored.dtype:
        return 0.0
    host, rounded = np.asarray(host), np.asarray(stored)
    if host.dtype.itemsize > 8:  # beyond float64: what one rounding does to each entry
        # |a - fl(a)| <= u |a|, and |a| <= |fl(a)| / (1 - u); the last factor covers 1 / (1 - u)
        relative = unit_roundoff(stored.dtype) * frobenius_norm(stored) * (1 + 2.0**-20)
        # An entry below the smallest normal number may be stored as zero, and loses less than that.
        tiny = float(np.finfo(stored.dtype).tiny)
        lost = np.count_nonzero((host != 0) & (np.abs(rounded) < tiny))
        return raised(relative + tiny * math.sqrt(lost))
    if host.dtype.kind in "iu":  # float64 may round an integer above 2^53: compare integers
        wide = host.astype(np.float64)
        may_differ = (rounded.astype(np.float64) != wide) | (np.abs(wide) >= 2.0**53)
        pairs = zip(host[may_differ], rounded[may_differ], strict=True)
        return raised(math.sqrt(sum(float(int(exact) - int(kept)) ** 2 for exact, kept in pairs)))
    exact = np.asarray(host, np.float64)
    # XLA may take a number below the smallest normal one for zero, so the larger distance counts.
    is_tiny = np.abs(rounded) < np.finfo(rounded.dtype).tiny
    as_stored, as_zero = (a.astype(np.float64) for a in (rounded, np.where(is_tiny, 0, rounded)))
    distance = np.maximum(np.abs(exact - as_stored), np.abs(exact - as_zero))
    scale = float(distance.max(initial=0.0)) or 1.0  # so that no square of an entry overflows
    return raised(scale * float(np.linalg.norm(distance / scale)))


def symmetric_part(original: ArrayLike, stored: jax.Array) -> tuple[jax.Array, float]:
    """(M + M^T) / 2 for the stored M, and a bound on its error in Frobenius norm.

    The error is the distance from (A + A^T) / 2 for the ``original`` matrix A, of which M is the
    rounded copy.
    """
    error = conversion_error(original, stored)
    matrix = by_numpy(stored)
    if bool((matrix == matrix.T).all()):
        return stored, error
    rounding = unit_roundoff(stored.dtype) * frobenius_norm(stored)
    rounding += underflow(1, stored.size, stored.dtype)  # of the halves
    return on_device(matrix / 2 + matrix.T / 2), raised(error + rounding)
