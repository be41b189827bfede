"""LAPACK's singular values against many digits, where many of them are nearly equal.

Class of faults: an error that is taken relative to the norm with a constant that repeated singular
values exceed. LAPACK's iterations end at a relative tolerance of its own.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import gnjax
from gnjax.numerics.rounding import singular_errors, singular_values


def _nearly_repeated(rng: np.random.Generator) -> np.ndarray:
    """[B (x) I_4, tiny columns], as the factor of a linear network whose layers are graded."""
    tiny = 10.0 ** -rng.uniform(2, 8) * rng.standard_normal((12, 4))
    return np.hstack([np.kron(rng.standard_normal((3, 2)), np.eye(4)), tiny])


def _exact(matrix: np.ndarray) -> list[mpmath.mpf]:
    with mpmath.workdps(40):
        wide = mpmath.matrix(matrix.tolist())
        squares = mpmath.eigsy(wide * wide.T, eigvals_only=True)
        return sorted((mpmath.sqrt(abs(square)) for square in squares), reverse=True)


@pytest.mark.parametrize("seed", range(12))
def test_repeated_singular_values_are_within_their_errors(seed):
    matrix = _nearly_repeated(np.random.default_rng(seed))
    exact = _exact(matrix)
    for factor in (matrix, matrix.T):
        values = singular_values(factor)
        errors = singular_errors(values, max(factor.shape), np.dtype(np.float64))
        apart = [abs(float(mpmath.mpf(v) - e)) for v, e in zip(values.tolist(), exact, strict=True)]
        assert (np.array(apart) <= errors).all()


def test_the_worst_of_many_draws_needs_the_part_that_is_relative_to_each_value():
    """Of 600 draws some are beyond 12 eps of the norm, which was the whole error before."""
    rng = np.random.default_rng(7)
    matrices = [_nearly_repeated(rng) for _ in range(600)]
    without = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
    with_vectors = [np.linalg.svd(matrix)[1] for matrix in matrices]
    apart = [np.abs(a - b).max() / b[0] for a, b in zip(without, with_vectors, strict=True)]
    matrix, far = matrices[int(np.argmax(apart))], max(apart)
    assert far > 12 * 2.0**-52
    spectrum = gnjax.eigenvalues(gnjax.factored(matrix))
    exact = [float(value**2) for value in _exact(matrix)]
    assert (np.abs(spectrum.values - exact) <= spectrum.errors * (1 + 1e-9)).all()
