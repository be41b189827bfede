"""Eigenvectors: unit rows, and angles to the exact vectors that never exceed their bounds.

The exact ones are mpmath's, in 40 digits, of the numbers that are stored.
"""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax.spectra.eigenvectors import angles
from tests.held_out.matrices import rotated

_KRYLOV = gnjax.Limits(whole_rows=4)


def _exact(matrix):
    """Eigenvalues from the largest down and unit rows, of an mpmath matrix."""
    with mpmath.workdps(40):
        values, vectors = mpmath.eigsy(matrix)
    order = sorted(range(matrix.rows), key=lambda i: -values[i])
    return [values[i] for i in order], [vectors[:, i] for i in order]


def _sine(row, vector):
    """sin of the angle between a row of floats and an mpmath column, in 40 digits."""
    with mpmath.workdps(40):
        x = mpmath.matrix([mpmath.mpf(float(entry)) for entry in row])
        x /= mpmath.norm(x)
        rest = x - (x.T * vector)[0] * vector
        return float(mpmath.norm(rest))


def _check(found, exact, places):
    values, vectors = exact
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-13)
    for at, place in enumerate(places):
        with mpmath.workdps(40):
            off = float(abs(mpmath.mpf(float(found.values[at])) - values[place]))
        assert off <= found.errors[at] + 1e-35, at  # of 40 digits
        if np.isfinite(found.angles[at]):
            assert _sine(found.vectors[at], vectors[place]) <= np.sin(found.angles[at]), at


def _spectrum(rng, size, kind):
    values = np.sort(rng.standard_normal(size))[::-1]
    if kind == "clusters":  # gaps of 1e-3 .. 1e-14
        values[1::2] = values[::2] - 10.0 ** rng.uniform(-14, -3, size // 2)
    if kind == "repeated":
        values[: size // 2] = np.repeat(values[: size // 4], 2)
    if kind == "deficient":
        values = np.abs(values) * (np.arange(size) < size // 2)
    return values


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["simple", "clusters", "repeated", "deficient"]),
    limits=st.sampled_from([gnjax.Limits(), _KRYLOV]),
)
def test_no_angle_exceeds_its_bound(seed, kind, limits):
    rng = np.random.default_rng(seed)
    matrix = rotated(rng, _spectrum(rng, 12, kind))
    exact = _exact(mpmath.matrix(matrix.tolist()))
    for which, places in (("largest", range(4)), ("smallest", range(8, 12))):
        found = gnjax.eigenvalues(matrix, k=4, which=which, vectors=True, limits=limits)
        assert found.method == ("krylov" if limits is _KRYLOV else "dense")
        _check(found, exact, places)
    _check(gnjax.eigenvalues(matrix, vectors=True), exact, range(12))


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), columns=st.sampled_from([5, 8, 20]))
def test_singular_vectors_of_a_factor_have_angles_too(seed, columns):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((8, columns)) * np.logspace(0, -5, 8)[:, None]
    with mpmath.workdps(40):
        stored = mpmath.matrix(factor.tolist())
        exact = _exact(stored * stored.T)
    found = gnjax.eigenvalues(gnjax.factored(factor), vectors=True)
    assert found.method == "factored"
    _check(found, exact, range(8))
    assert found.angles[: min(columns, 8)].max() < 1e-6  # sigma^2 down to 1e-10 of the largest


def test_bounds_are_sharp_where_gaps_are_wide_and_absent_where_values_repeat():
    rng = np.random.default_rng(0)
    values = np.concatenate([[9.0, 7.0, 7.0, 5.0, 3.0], np.linspace(1, 0, 55)])
    matrix = rotated(rng, values)
    for limits in (gnjax.Limits(), _KRYLOV):
        found = gnjax.eigenvalues(matrix, k=5, vectors=True, limits=limits)
        assert np.isinf(found.angles).tolist() == [False, True, True, False, False]
        assert found.angles[[0, 3, 4]].max() < 1e-7
    shifted = gnjax.eigenvalues(gnjax.dense(np.diag(values)) + 2.0, k=2, vectors=True)
    np.testing.assert_allclose(shifted.values, [11, 9], rtol=1e-13)
    assert abs(shifted.vectors[0, 0]) == pytest.approx(1)


def test_the_neighbour_that_was_not_asked_for_counts():
    """The k-th vector of a pair that is hardly apart has no small bound."""
    values = np.concatenate([[4.0, 2.0, 2.0 - 1e-9], np.linspace(1, 0, 37)])
    for limits in (gnjax.Limits(), _KRYLOV):
        found = gnjax.eigenvalues(np.diag(values), k=2, vectors=True, rtol=1e-8, limits=limits)
        assert found.vectors.shape == (2, 40)
        assert found.angles[1] > 1e-7


def test_unknown_errors_give_unknown_angles():
    bounds = angles(np.array([3.0, 2.0]), np.array([1e-9, np.inf]), np.array([np.inf, np.inf]))
    assert np.isinf(bounds).all()


def test_null_vectors_that_no_run_enters_are_unit_rows_with_small_products():
    factor = np.random.default_rng(1).standard_normal((40, 3))
    op = gnjax.factored(factor)
    found = gnjax.eigenvalues(op, k=6, vectors=True, limits=_KRYLOV)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(6), atol=1e-10)
    images = np.asarray(op @ found.vectors.T).T
    off = np.linalg.norm(images - found.values[:, None] * found.vectors, axis=1)
    assert off.max() <= 1e-9 * found.values[0]
    assert np.isfinite(found.angles).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize("rtol", [1e-10, 1e-6])
def test_vectors_of_a_network_are_trees_of_its_parameters(rtol):
    """On the side of the parameters, where values alone would come from the outputs' side."""
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((2, 3))
    op = gnjax.gauss_newton(model, x)
    values, basis = np.linalg.eigh(np.asarray(op.as_matrix()))
    found = gnjax.eigenvalues(op, k=2, vectors=True, rtol=rtol, limits=_KRYLOV)
    assert found.vectors.shape == (2, op.shape[0])
    for row, exact, bound in zip(found.vectors, basis.T[::-1], found.angles, strict=False):
        assert np.linalg.norm(row - (row @ exact) * exact) <= bound + 1e-12
        assert bound < 1e3 * rtol
        np.testing.assert_allclose(op.ravel(op.unravel(row)), row)
    np.testing.assert_allclose(found.values, values[::-1][:2], rtol=1e-6)


def test_a_matrix_too_large_for_all_of_its_vectors_is_refused():
    with pytest.raises(ValueError, match=r"all eigenvalues of 9 rows .* limits allow 8 rows"):
        gnjax.eigenvalues(gnjax.dense(np.eye(9)), vectors=True, limits=gnjax.Limits(matrix_rows=8))
