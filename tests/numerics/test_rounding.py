"""Bounds on rounding, at the end of their range."""

import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.numerics.rounding import gamma


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 24), (np.float64, 53)])
def test_gamma_grows_until_no_digit_is_left_and_is_infinite_from_there_on(dtype, digits):
    terms = [1, 2 ** (digits // 2), 2**digits - 1, 2**digits, 2**digits + 1, 2 ** (digits + 9)]
    bounds = [gamma(count, jnp.dtype(dtype)) for count in terms]
    assert (np.diff(bounds[:4]) > 0).all()
    assert bounds[3:] == [np.inf] * 3
