"""Eigenvalues of graded matrices to nearly all digits, against those of Arb in many digits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from gnjax.numerics.decompositions.lapack import eigenpairs, graded_eigenpairs
from tests.held_out import many_digits


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.floats(0, 30), st.integers(0, 999))
def test_property_every_eigenvalue_of_a_graded_matrix_has_small_relative_errors(n, decades, seed):
    """D B D for B with a condition number below 10, whatever D is."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-decades / 2, 0, n)
    noise = rng.standard_normal((n, n))
    middle = np.eye(n) + 0.8 * noise @ noise.T / max(np.linalg.norm(noise @ noise.T, 2), 1.0)
    graded = scales[:, None] * middle * scales
    graded = (graded + graded.T) / 2
    values, columns = graded_eigenpairs(graded)
    exact = [float(v) for v in many_digits.eigenvalues(graded, many_digits.MATRIX_DIGITS)][::-1]
    assert_allclose(values, exact, rtol=1e-13)
    assert_allclose(columns.T @ columns, np.eye(n), atol=1e-13)
    assert_allclose(graded @ columns, columns * values, atol=1e-14 * max(values))


def test_an_indefinite_matrix_is_left_to_the_usual_eigenvalues():
    matrix = np.diag([-1.0, 2.0])
    for one, other in zip(graded_eigenpairs(matrix), eigenpairs(matrix), strict=True):
        assert np.array_equal(one, other)
