"""The distance of two histograms of eigenvalues, against many digits."""

import mpmath
import numpy as np
import pytest

from gnjax.numerics.certificate import certificate
from gnjax.spectra.distance import _between, _Histogram


def _histogram(shares):
    return _Histogram(np.arange(len(shares)), np.asarray(shares), 0.0, certificate())


def _distance_in_many_digits(p, q):
    with mpmath.workdps(60):
        halves = [(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(p, q, strict=True)]
        terms = [x * mpmath.log(2 * x / (a + b), 2) for a, b in halves for x in (a, b)]
        return float(mpmath.sqrt(mpmath.fsum(terms) / 2))


@pytest.mark.parametrize("difference", [0.0, 1e-16, 1e-12, 1e-9, 1e-8, 1e-7, 1e-3])
@pytest.mark.parametrize("bins", [2, 7])
def test_the_error_covers_the_rounding_of_histograms_that_are_nearly_equal(bins, difference):
    p = np.full(bins, 1 / bins)
    q = p + difference * np.r_[1, -1, np.zeros(bins - 2)]
    value, error = _between(_histogram(p), _histogram(q))
    assert abs(value - _distance_in_many_digits(p, q)) <= error.value
    if not difference:
        assert (value, error.value) == (0, 0)
