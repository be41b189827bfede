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
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from gnjax.numerics.certificate import Certificate, Error, unknown, weakest
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma
from gnjax.spectra.spectrum import Spectrum

_TO_A_DECADE = 4
_LOGARITHM = 1e-12  # the rounding of a logarithm is less than this fraction of a bin

_ZERO = np.iinfo(int).min  # the bin of zeros; bin i is 2 i, or 2 i + 1 for negative values


def jensen_shannon(one: Spectrum, other: Spectrum, floor: float) -> tuple[float, Error]:
    """The Jensen-Shannon distance d between two spectra, and its error.

    The eigenvalues whose absolute values are above ``floor`` are counted in bins. For each spectrum
    let t be the share of the eigenvalues whose errors leave open in which bin they lie, or whether
    they lie above the floor. It bounds the total variation between its histogram and the true one,
    which in base 2 is at least the square of d (Lin, 1991). So, by the triangle inequality, the
    error of the distance is at most t_1^{1/2} + t_2^{1/2}. The distance is nan if a spectrum has no
    eigenvalue above the floor.
    """
    return _between(_histogram(one, floor), _histogram(other, floor))


def distances(spectra: Sequence[Spectrum], floor: float) -> tuple[np.ndarray, np.ndarray]:
    """The Jensen-Shannon distances of b spectra to each other (b, b), and their errors (b, b).

    Both are zero on the diagonal. Eigenvalues up to ``floor`` in size are left out.
    """
    histograms = [_histogram(spectrum, floor) for spectrum in spectra]
    values, errors = np.zeros((2, len(histograms), len(histograms)))
    for (i, one), (j, other) in combinations(enumerate(histograms), 2):
        value, error = _between(one, other)
        values[i, j] = values[j, i] = value
        errors[i, j] = errors[j, i] = error.value
    return values, errors


class _Histogram(NamedTuple):
    """The shares of the eigenvalues in bins, and the share whose bin is uncertain."""

    bins: np.ndarray
    shares: np.ndarray
    moving: float
    certificate: Certificate


def _between(one: _Histogram, other: _Histogram) -> tuple[float, Error]:
    """The Jensen-Shannon distance d of two histograms, and the error of d.

    An error e of d^2 by rounding makes one of (d^2 + e)^{1/2} - d. The shares ``moving`` of
    eigenvalues that may lie in another bin add t_1^{1/2} + t_2^{1/2} (see :func:`jensen_shannon`).
    """
    if not len(one.bins) or not len(other.bins):
        return math.nan, unknown("a spectrum has no eigenvalue above the floor")
    bins = np.union1d(one.bins, other.bins)
    p, q = np.zeros((2, len(bins)))  # the shares of both in the bins that either has
    p[np.searchsorted(bins, one.bins)] = one.shares
    q[np.searchsorted(bins, other.bins)] = other.shares
    m = (p + q) / 2
    squared = min(max((_relative(p, m) + _relative(q, m)) / 2, 0.0), 1.0)
    # The sizes of all terms add up to less than 2, and each passes fewer roundings than this.
    bound = gamma(8 * len(bins) + 8, np.dtype(np.float64)) * 2
    rounding = 0.0 if np.array_equal(p, q) else bound  # of equal histograms, d is exactly 0
    moved = one.moving**0.5 + other.moving**0.5
    error = math.sqrt(squared + rounding) - math.sqrt(squared) + moved
    certificates = one.certificate, other.certificate
    kind = weakest(*(part.kind for part in certificates))
    if kind == "unknown":
        return math.sqrt(squared), unknown("the errors of eigenvalues are not known")
    failure = min(1.0, sum(part.failure for part in certificates))
    reason = "eigenvalues whose errors leave open in which bin they lie"
    return math.sqrt(squared), Error(min(raised(error), 1.0), kind, failure, reason)


def _histogram(spectrum: Spectrum, floor: float) -> _Histogram:
    """The histogram of the eigenvalues whose absolute values are above ``floor``.

    An eigenvalue with an error is uncertain if an end of its interval, moved outwards by the
    rounding of the logarithm, lies in another bin or on the other side of the floor. Uncertain ones
    below the floor count too, as they may belong above.
    """
    values, errors = (np.asarray(array, np.float64) for array in (spectrum.values, spectrum.errors))
    bin_of_value = _bins(values, floor, 0.0)
    exact = errors == 0
    is_uncertain = np.zeros(len(values), bool)
    for direction in (-1.0, 1.0):
        end_bins = _bins(values + direction * errors, floor, direction)
        is_uncertain |= ~exact & (end_bins != bin_of_value)
    bins, counts = np.unique(bin_of_value[bin_of_value != _ZERO], return_counts=True)
    certain = int((~is_uncertain & (bin_of_value != _ZERO)).sum())
    uncertain = float(is_uncertain.sum())
    share = uncertain / (certain + uncertain) if uncertain else 0.0
    return _Histogram(bins, counts / max(counts.sum(), 1), share, spectrum.certificate)


def _bins(values: np.ndarray, floor: float, direction: float) -> np.ndarray:
    """The number of the bin of each eigenvalue; ``_ZERO`` for those up to ``floor``.

    Values are moved by the rounding of the logarithm towards ``direction``: -1, 0 or 1.
    """
    sizes = np.abs(values)
    nonzero = (sizes > floor) & np.isfinite(sizes)
    positions = _TO_A_DECADE * np.log10(np.where(nonzero, sizes, 1.0))
    outwards = np.where(values > 0, direction, -direction)  # of the absolute value
    bins = np.floor(positions + outwards * _LOGARITHM).astype(int)
    return np.where(nonzero, 2 * bins + (values < 0), _ZERO)


def _relative(p: np.ndarray, m: np.ndarray) -> float:
    """sum p log2(p / m) over the bins where p is not zero."""
    support = p > 0
    return float((p[support] * np.log2(p[support] / m[support])).sum())
