"""How samples are split into runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnjax.networks.forms.samples import even_size, same_size


@given(n=st.integers(1, 5000), data=st.data())
def test_runs_are_equal_where_a_divisor_is_near_and_as_few_as_can_be_elsewhere(n, data):
    most = data.draw(st.integers(1, n))
    size = same_size(n, most)
    divisors = [d for d in range(1, n + 1) if n % d == 0 and most // 2 < d <= most]
    assert size == max(divisors, default=even_size(n, most))
    assert 1 <= size <= most


@pytest.mark.parametrize(
    ("n", "most", "size"), [(1000, 23, 20), (997, 23, 23), (6, 6, 6), (5, 1, 1)]
)
def test_sizes_by_hand(n, most, size):
    assert same_size(n, most) == size
