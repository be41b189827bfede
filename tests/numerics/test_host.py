"""Arrays that JAX and NumPy share in host memory."""

import jax
import numpy as np
import pytest

from gnjax.numerics.host import on_device, zeros


@pytest.mark.parametrize("shape", [(7, 11), (1,), (0, 3), (3, 0, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_zeros(shape, dtype):
    found = zeros(shape, dtype)
    assert found.shape == shape
    assert found.dtype == dtype
    assert not found.any()
    found += 1
    assert (found == 1).all()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices have their own memory")
def test_a_cpu_takes_zeros_over_without_a_copy():
    """A copy of a large matrix takes as long as to form it."""
    with jax.enable_x64(True):
        for rows in (3, 100, 1001):
            host = zeros((rows, rows), np.float64)
            host[:] = rows
            shared = on_device(host)
            assert shared.unsafe_buffer_pointer() == host.ctypes.data
            assert float(shared[-1, -1]) == rows
