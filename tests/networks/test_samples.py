"""How samples are split into runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnjax.networks.arguments.samples import even_size, same_size


@given(n=st.integers(1, 5000), data=st.data())
def test_parts_are_equal_where_a_divisor_is_near_and_as_few_as_can_be_elsewhere(n, data):
    near = data.draw(st.integers(1, n))
    size = same_size(n, near)
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    below = [d for d in divisors if near // 2 < d <= near]
    above = [d for d in divisors if near < d <= 1.25 * near]
    assert size == max(below, default=min(above, default=even_size(n, near)))


@pytest.mark.parametrize(
    ("n", "near", "size"),
    [(1000, 23, 20), (125, 24, 25), (250, 23, 25), (997, 23, 23), (6, 6, 6), (5, 1, 1)],
)
def test_sizes_by_hand(n, near, size):
    assert same_size(n, near) == size
