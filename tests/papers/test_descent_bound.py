"""Eqs 2, 3, 27 and 28: how curvature slows gradient descent, and where constants must hold."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnjax import papers


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6), steps=st.integers(1, 8))
def test_eq_2_holds_for_strongly_convex_quadratics(seed, size, steps):
    """With any steps of at most 1 / lambda_max; the slowest direction is nearest to the bound."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.01, 2.0, size)
    rates = rng.uniform(0.1, 1.0, steps) / values.max()
    bounds = papers.bounds.descent(rates, values.min())
    start = theta = rng.standard_normal(size)
    for rate, bound in zip(rates, bounds[1:], strict=True):
        theta = theta - rate * values * theta
        assert theta @ theta <= bound * (start @ start) * (1 + 1e-12)


def test_eq_3_is_the_product_of_the_steps():
    found = papers.bounds.descent([0.5, 0.25, 0.1], [1.0, 2.0, 4.0])
    np.testing.assert_allclose(found, [1, 0.5, 0.25, 0.15], rtol=1e-14)
    assert (papers.bounds.descent([1 / 3] * 60, 0.1) >= (1 - 0.1 / 3) ** np.arange(61)).all()


@given(seed=st.integers(0, 2**32 - 1))
def test_the_bound_is_rounded_up_where_the_factor_cancels(seed):
    """Another road: the product of 1 - eta mu in fractions, for eta mu at any distance from 1."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 1.0, 5)
    curvatures = (1 - 10 ** rng.uniform(-17, 0, 5)) / rates
    curvatures = np.where(rates * curvatures > 1, np.nextafter(curvatures, 0), curvatures)
    exact = Fraction(1)
    bounds = papers.bounds.descent(rates, curvatures)
    for rate, curvature, bound in zip(rates, curvatures, bounds[1:], strict=True):
        exact *= max(1 - Fraction(rate) * Fraction(curvature), 0)
        assert exact <= Fraction(bound) <= (exact + Fraction(2) ** -50) * (1 + Fraction(2) ** -40)


def test_eq_3_fails_with_constants_at_the_iterate_alone():
    """f = cosh - 1 from theta = 1: at theta mu = L = cosh 1, and a step of 1 / L should arrive."""
    curvature = np.cosh(1.0)
    at_iterate = papers.bounds.descent(1 / curvature, curvature)[1]
    theta = 1 - np.sinh(1.0) / curvature
    assert at_iterate <= 1e-15 < theta**2
    on_segment = papers.bounds.descent(1 / curvature, 1.0)[1]  # f'' >= 1 from 0 to 1
    assert theta**2 <= on_segment


def test_a_flat_direction_leaves_no_bound():
    np.testing.assert_array_equal(papers.bounds.descent([0.1, 0.2], 0.0) >= 1.0, True)


@pytest.mark.parametrize(
    ("rates", "curvatures", "words"),
    [
        ([0.1, -0.1], 1.0, "positive step sizes"),
        ([0.1, 0.1], -1.0, "between 0 and 1 / rate"),
        ([0.1, 0.1], [1.0, 11.0], "between 0 and 1 / rate"),
    ],
)
def test_mistakes_say_what_came(rates, curvatures, words):
    with pytest.raises(ValueError, match=words):
        papers.bounds.descent(rates, curvatures)
