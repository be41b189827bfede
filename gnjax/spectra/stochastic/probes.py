"""Random vectors, the products with them, and the spread of what is computed from them."""

from __future__ import annotations

import math

import numpy as np

from gnjax.numerics.host import HostProduct, entries_in_parts
from gnjax.numerics.limits import Limits
from gnjax.numerics.scale import exponent_of
from gnjax.operators.facts import facts_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.host_products import refuse_nonfinite

BLOCK = 16  # the number of vectors that one product multiplies
_STREAM = 7919
_SQUARES = 1e-100  # the squares of numbers from here to its inverse neither under- nor overflow
_COVERED = 0.975  # the quantile of a two-sided interval of 95%
FEWEST = 10  # samples whose skewness tells how far they are from normal
_SYMMETRIC = 1e-6  # a skewness that changes nothing
_BY_CHANCE = 2e-6  # the chance of equal samples that may be taken for a number without an error


def probe_stream(seed: int, part: int = 0) -> np.random.Generator:
    """A generator that differs from ``default_rng(seed)``, which the caller may have used.

    Every ``part`` of a seed has random numbers of its own.
    """
    return np.random.default_rng([_STREAM, seed, part] if part else [_STREAM, seed])


def together(op: Operator, limits: Limits) -> int:
    """How many random vectors are multiplied at once: as many of sixteen as have room in memory.

    It is one where several take as long as one after the other.

    ``limits.basis_bytes`` is the room for all of them with their products, and one goes in any
    case, unless it needs more than the larger ``limits.density_bytes``, which is refused.
    """
    # A test of the symmetry takes two vectors, where the operator does not state it.
    facts = facts_of(op)
    vectors = 1 if facts.symmetric else 2
    # of a vector and its product, in float64 and in the precision of the operator
    bytes_of_vector = 2.0 * (8 + max(8, np.dtype(op.dtype).itemsize)) * vectors * op.shape[0]
    if bytes_of_vector > limits.density_bytes:
        msg = (
            f"one random vector of {op.shape[0]:,} numbers and its product take "
            f"{1e-9 * bytes_of_vector:,.0f} GB, and limits allow {1e-9 * limits.density_bytes:.3g};"
            f" pass limits=gnjax.Limits(density_bytes={bytes_of_vector:_.0f}) if the machine has "
            "the memory"
        )
        raise ValueError(msg)
    most = 1 if facts.one_by_one else BLOCK
    return int(min(most, max(1, limits.basis_bytes / bytes_of_vector)))


def signs(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Rows (count, size) of independent random signs, each 1 or -1."""
    rows = np.empty((count, size))
    for part in entries_in_parts(rows):  # not all at once, so that the integers take little memory
        np.subtract(2 * rng.integers(0, 2, part.size), 1, out=part)
    return rows


def images_of(product: HostProduct, rows: np.ndarray) -> np.ndarray:
    """A x for every row x of ``rows`` (b, n), as rows (b, n), sixteen of them at a time."""
    images = np.empty_like(rows)
    for first in range(0, len(rows), BLOCK):
        images[first : first + BLOCK] = product(rows[first : first + BLOCK])
    refuse_nonfinite(images)
    return images


def lengths_of(rows: np.ndarray, images: np.ndarray) -> np.ndarray:
    """|x| |A x| for every row x."""
    return row_lengths(rows) * row_lengths(images)


def row_lengths(rows: np.ndarray) -> np.ndarray:
    """The 2-norm of every row (b,), for rows (b, n), without under- or overflow of the squares."""
    largest = float(max(rows.max(initial=0.0), -rows.min(initial=0.0)))
    if _SQUARES < largest < 1 / _SQUARES:  # a division would take the memory of the rows once more
        return np.linalg.norm(rows, axis=1)
    scale = 2.0 ** ((exponent_of(largest) or 1) - 1)  # a power of two near the largest entry
    lengths: np.ndarray = np.linalg.norm(rows / scale, axis=1) * scale
    return lengths


def standard_error(values: np.ndarray) -> float:
    """The standard error of the mean of independent samples; infinite for one sample."""
    return float(spread_of_mean(values))


def spread_of_mean(samples: np.ndarray) -> np.ndarray:
    """The standard error of the mean of ``samples`` over their first axis; infinite for one."""
    if len(samples) == 1:
        return np.full(samples.shape[1:], np.inf)
    # A power of two near the largest sample, so that a division by it is exact.
    scale = 2.0 ** ((exponent_of(float(np.abs(samples).max(initial=0.0))) or 1) - 1)
    spread: np.ndarray = (samples / scale).std(axis=0, ddof=1) / math.sqrt(len(samples)) * scale
    return spread


def beyond_chance(
    spread: np.ndarray | float, rounding: float, samples: int, *, degree: int
) -> np.ndarray:
    """The standard errors ``spread`` of means of ``samples``; infinite where they may be chance.

    A sample is a polynomial of ``degree`` in independent random signs. Unless it is constant, it
    differs from any given value with a probability of at least 2^-degree (the minimum distance of
    Reed-Muller codes). So all samples of one of the numbers are equal, up to their ``rounding``,
    with a chance of at most (1 - 2^-degree)^(samples - 1).
    """
    spreads = np.asarray(spread)
    chance = spreads.size * (1 - 0.5**degree) ** (samples - 1)
    return np.where((spreads <= rounding) & (chance > _BY_CHANCE), np.inf, spreads)


def student(samples: int, looks: int = 1) -> float:
    """Student's 95% half-width for the mean of normal samples, in standard errors.

    Where the samples are looked at several times, the half-widths of all ``looks`` hold together.
    """
    from scipy.special import stdtrit  # imported here, as it would add 0.1 s to importing gnjax

    covered = 1 - (1 - _COVERED) / looks
    return float(stdtrit(samples - 1, covered)) if samples > 1 else math.inf


def half_width(samples: np.ndarray, looks: int = 1) -> float:
    """The 95% half-width for the mean of samples, skewed or not; infinite for less than ten.

    Student's is too short on one side where samples are skewed, as v^T f(A) v is where few
    eigenvalues count. With their skewness c, of n samples, Hall (1992) takes

        t + c t^2 / (3 n^{1/2}) + c^2 t^3 / (27 n) + c / (6 n^{1/2})

    for normal in place of t, whose inverse is a cube root. Of his two sides and of Student's the
    longest is taken.
    """
    n, spread = len(samples), standard_error(samples)
    if n < FEWEST or not spread:
        return 0.0 if n >= FEWEST else math.inf
    t = student(n, looks)
    scaled = (samples - samples.mean()) / (spread * math.sqrt(n))
    skewness = n / ((n - 1) * (n - 2)) * float((scaled**3).sum())
    if abs(skewness) < _SYMMETRIC:
        return t * spread
    slope = skewness / math.sqrt(n)
    ends = [3 / slope * (math.cbrt(1 + slope * y - slope**2 / 6) - 1) for y in (-t, t)]
    return max(t, *map(abs, ends)) * spread
