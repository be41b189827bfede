"""The triangle of a QR factorisation against NumPy's, and against the Gram matrix."""

from __future__ import annotations

import numpy as np
import pytest

from gnjax.numerics.decompositions.triangular import triangular_factor


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(0, 3), (3, 0), (1, 1), (5, 5), (3, 7), (9, 4), (300, 130), (700, 600), (520, 900)]
)
def test_the_triangle_is_that_of_numpy_and_has_the_gram_matrix(shape, dtype):
    matrix = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for given in (matrix, np.asfortranarray(matrix), matrix[::-1]):
        kept = given.copy()
        found = triangular_factor(given)
        assert found.shape == (min(shape), shape[1])
        assert found.dtype == dtype
        np.testing.assert_array_equal(given, kept)
        np.testing.assert_array_equal(found, np.triu(found))
        scale = 1e3 * np.finfo(dtype).eps
        np.testing.assert_allclose(found.T @ found, given.T @ given, atol=scale * len(given))
        np.testing.assert_allclose(abs(found), abs(np.linalg.qr(given, mode="r")), atol=scale)


def test_small_singular_values_of_a_graded_matrix_survive():
    """Householder's reflections keep what the Gram matrix would lose."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((200, 20)))[0] for _ in range(2))
    sigma = np.logspace(0, -12, 20)
    matrix = (left * sigma) @ right.T
    found = np.linalg.svd(triangular_factor(matrix), compute_uv=False)[:20]
    np.testing.assert_allclose(found, sigma, atol=1e-15)
