"""The compiled Lanczos run from a given vector."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnjax.spectra.krylov.tracked import Tracked, tracked

SIZE, STEPS = 40, 40


def run(matrix: np.ndarray, start: np.ndarray, rtol: float) -> Tracked:
    product = partial(jnp.matmul, jax.device_put(matrix))
    return tracked(product, jax.device_put(start), rtol=rtol, steps=STEPS)


def symmetric(values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return (vectors * values) @ vectors.T, vectors


@example(values=[0.0] * (SIZE - 1) + [3.8542e-305], seed=0)
@given(
    values=st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=SIZE, max_size=SIZE),
    seed=st.integers(0, 99),
)
def test_an_eigenvalue_lies_within_the_residual_and_none_is_exceeded(values, seed):
    matrix, _ = symmetric(np.array(values), seed)
    start = np.random.default_rng(seed).standard_normal(SIZE)
    found = run(matrix, start, 1e-3)
    true = np.linalg.eigvalsh(matrix)
    flushed = np.finfo(float).tiny  # what XLA takes for zero in an entry of the matrix
    rounding = SIZE * (1e-13 * np.abs(true).max() + flushed)
    assert np.abs(true - found.value).min() <= found.residual + rounding
    assert found.value <= true.max() + rounding
    assert np.abs(true).max() + rounding >= found.scale


@pytest.mark.parametrize("exponent", [-900, -700, 0, 700, 1015])
def test_a_residual_does_not_underflow_at_any_scale(exponent):
    """A class of wrong numbers: squares of residuals were zero below 1e-154, infinite above."""
    matrix, _ = symmetric(np.geomspace(1, 3, SIZE))
    start = np.random.default_rng(0).standard_normal(SIZE)
    plain, found = run(matrix, start, 1e-3), run(np.ldexp(matrix, exponent), start, 1e-3)
    assert found.products == plain.products
    assert found.value == pytest.approx(float(np.ldexp(plain.value, exponent)), rel=1e-12)
    assert found.residual == pytest.approx(float(np.ldexp(plain.residual, exponent)), rel=1e-6)


def test_the_residual_is_that_of_the_vector():
    matrix, _ = symmetric(np.linspace(-3, 5, SIZE))
    found = run(matrix, np.ones(SIZE), 1e-2)
    x = np.asarray(found.vector)
    assert np.linalg.norm(x) == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(matrix @ x - found.value * x) == pytest.approx(found.residual, rel=1e-6)
    assert found.residual <= 1e-2 * found.scale
    assert 2 < found.products < STEPS


def test_a_negative_definite_matrix_has_its_largest_eigenvalue_found():
    matrix, _ = symmetric(-np.linspace(1, 5, SIZE))
    assert run(matrix, np.ones(SIZE), 1e-8).value == pytest.approx(-1, abs=1e-10)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_a_multiple_of_the_identity_needs_no_more_than_two_products(value):
    found = run(value * np.eye(SIZE), np.ones(SIZE), 1e-3)
    assert found.value == pytest.approx(value, abs=1e-14)
    assert found.products == 2
    assert found.residual <= 1e-13


def test_an_eigenvector_as_the_start_is_not_taken_at_its_word():
    """A start with a small part of another eigenvector moves towards it in the second product."""
    values = np.zeros(SIZE)
    values[:2] = 1.0, 5.0
    matrix, vectors = symmetric(values)
    start = vectors[:, 0] + 1e-2 * vectors[:, 1]
    assert run(matrix, start, 0.5).value == pytest.approx(5, abs=1e-10)


def test_what_is_not_finite_ends_the_run():
    matrix = np.eye(SIZE)
    matrix[0, 0] = np.nan
    found = run(matrix, np.ones(SIZE), 1e-3)
    assert not np.isfinite(found.value)
    assert found.products <= 2
