"""The Jensen-Shannon distance between two spectra, with its error.

The eigenvalues that are not zero are sorted into bins, four to a decade of their size, with bins
of their own for negative ones. With p and q the shares of both spectra in each bin and
m = (p + q) / 2,

    d(p, q)^2 = 1/2 sum p log2(p / m) + 1/2 sum q log2(q / m).

The distance d is a metric (Endres and Schindelin, 2003): 0 for equal histograms, 1 for those that
share no bin.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from gnjax.numerics.certificate import Error, unknown, weakest
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma
from gnjax.spectra.spectrum import Spectrum

_TO_A_DECADE = 4
_LOGARITHM = 1e-12  # of a bin: more than rounding moves four times a logarithm

Bin = tuple[bool, int]
"""Whether eigenvalues are negative, and the number of the bin of their size."""


def jensen_shannon(one: Spectrum, other: Spectrum, floor: float) -> tuple[float, Error]:
    """d between the eigenvalues of both that are larger than ``floor`` in size, and its error.

    An eigenvalue whose error leaves open in which bin it lies, or whether it lies above the floor,
    could move; the share of those that could is t, and bounds how far p is from the true histogram
    in total variation. In base 2 the square of d is at most the total variation (Lin, 1991), and so
    the distance is off by at most t_1^{1/2} + t_2^{1/2} by the triangle inequality. It is not
    defined, and nan, where a spectrum has no eigenvalue above the floor.
    """
    (p, p_open), (q, q_open) = _histogram(one, floor), _histogram(other, floor)
    if not p or not q:
        return math.nan, unknown("a spectrum has no eigenvalue above the floor")
    bins = sorted(p.keys() | q.keys())
    first, second = (_shares(found, bins) for found in (p, q))
    middle = (first + second) / 2
    squared = min(max((_relative(first, middle) + _relative(second, middle)) / 2, 0.0), 1.0)
    rounding = gamma(8 * len(bins) + 8, np.dtype(np.float64)) * 2 if squared else 0.0
    error = math.sqrt(squared + rounding) - math.sqrt(squared) + p_open**0.5 + q_open**0.5
    kinds = one.certificate, other.certificate
    kind = weakest(*(known.kind for known in kinds))
    if kind == "unknown":
        return math.sqrt(squared), unknown("the errors of eigenvalues are not known")
    failure = min(1.0, sum(known.failure for known in kinds))
    reason = "eigenvalues whose errors leave open in which bin they lie"
    return math.sqrt(squared), Error(min(raised(error), 1.0), kind, failure, reason)


def _histogram(found: Spectrum, floor: float) -> tuple[Counter[Bin], float]:
    """How many eigenvalues lie in each bin, and the largest share of them that could move."""
    counts: Counter[Bin] = Counter()
    certain, moving = 0, 0
    for value, error in zip(found.values.tolist(), found.errors.tolist(), strict=True):
        here = _bin(value, floor, 0.0)
        ends = {_bin(value + way * error, floor, way) for way in (-1.0, 1.0)} if error else {here}
        if here is not None:
            counts[here] += 1
        if ends != {here}:
            moving += 1
        elif here is not None:
            certain += 1
    return counts, moving / (certain + moving) if moving else 0.0


def _bin(value: float, floor: float, way: float) -> Bin | None:
    """The bin of an eigenvalue, or of one a little further off in a direction; None: it is zero."""
    size = abs(value)
    if not size > floor or not math.isfinite(size):
        return None
    place = _TO_A_DECADE * math.log10(size)
    outwards = way if value > 0 else -way
    return value < 0, math.floor(place + outwards * _LOGARITHM)


def _shares(counts: Counter[Bin], bins: list[Bin]) -> np.ndarray:
    found = np.array([counts[place] for place in bins], float)
    return found / found.sum()


def _relative(p: np.ndarray, m: np.ndarray) -> float:
    """sum p log2(p / m) over the bins where p is not zero."""
    held = p > 0
    return float((p[held] * np.log2(p[held] / m[held])).sum())
