"""Traces: exact ones against numpy, random ones by their mean, their error and their definition."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax.operators.base import Operator
from gnjax.spectra.trace import probe_stream, trace

_RANDOM = ("hutchinson", "hutch++", "xtrace")


class Products:
    """A symmetric matrix behind the protocol, which counts its products."""

    def __init__(self, matrix):
        self.matrix, self.count = jnp.asarray(matrix), 0
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    def mv(self, v):
        self.count += 1 if v.ndim == 1 else v.shape[1]
        return self.matrix @ v

    def as_matrix(self):
        return self.matrix


def _matrix(eigenvalues, seed=0):
    size = len(eigenvalues)
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    matrix = (q * np.asarray(eigenvalues)) @ q.T
    return (matrix + matrix.T) / 2


def _slow_xtrace(matrix, probes, seed):
    """Each t_i from a basis of its own, as the definition stands."""
    size = len(matrix)
    tests = probe_stream(seed).standard_normal((min(probes // 2, size), size)).T
    count, estimates = tests.shape[1], []
    for i in range(count):
        basis = np.linalg.qr(matrix @ np.delete(tests, i, axis=1))[0]
        complement = np.eye(size) - basis @ basis.T
        rest = complement @ tests[:, i]
        quotient = rest @ matrix @ rest / (rest @ rest)
        estimates.append(np.trace(basis.T @ matrix @ basis) + (size - count + 1) * quotient)
    return np.mean(estimates), np.std(estimates, ddof=1) / math.sqrt(count)


@given(size=st.sampled_from([1, 2, 5, 30]), seed=st.integers(0, 2**32 - 1))
def test_exact_is_the_sum_of_the_diagonal(size, seed):
    rng = np.random.default_rng(seed)
    a, j = rng.standard_normal((size, size)), rng.standard_normal((size, 3))
    for op in (gnjax.dense(a + a.T), gnjax.factored(j), Products(a + a.T)):
        t = trace(op, method="exact")
        np.testing.assert_allclose(t.value, np.trace(op.as_matrix()), rtol=1e-12, atol=1e-12)
        assert (t.standard_error, t.products) == (0.0, 0)


def test_exact_of_a_network_multiplies_traces():
    rng = np.random.default_rng(0)
    op = gnjax.linear_gauss_newton([rng.standard_normal(s) for s in ((9, 5), (8, 9), (4, 8))])
    t = trace(op, method="exact")
    np.testing.assert_allclose(t.value, np.trace(op.as_matrix()), rtol=1e-13)


def test_exact_of_a_large_unknown_operator_takes_n_products():
    diagonal = np.random.default_rng(0).standard_normal(1003)
    op = Products(np.diag(diagonal))
    t = trace(op, method="exact")
    np.testing.assert_allclose(t.value, diagonal.sum(), rtol=1e-12)
    assert t.products == op.count == 1003


@settings(max_examples=60)
@given(
    size=st.sampled_from([2, 3, 10, 40]),
    probes=st.integers(4, 60),
    spread=st.floats(0, 6),
    signs=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_xtrace_is_its_definition(size, probes, spread, signs, seed):
    """The two roads differ by rounding times the condition of A W, about that of A."""
    eigenvalues = np.geomspace(1, 10**-spread, size)
    eigenvalues[::2] *= -1 if signs else 1
    matrix = _matrix(eigenvalues, seed)
    t = trace(gnjax.dense(matrix), method="xtrace", probes=probes, seed=seed)
    value, error = _slow_xtrace(matrix, probes, seed)
    np.testing.assert_allclose(t.value, value, atol=1e-9 * size)
    np.testing.assert_allclose(t.standard_error, error, atol=1e-9 * size)


@pytest.mark.parametrize("method", _RANDOM)
@pytest.mark.parametrize("signs", [1, -1])
def test_random_methods_are_unbiased(method, signs):
    """The mean of 400 runs is within 5 of its own standard errors."""
    eigenvalues = np.geomspace(3, 0.1, 30)
    eigenvalues[::2] *= signs
    op = gnjax.dense(_matrix(eigenvalues))
    values = [trace(op, method=method, probes=12, seed=seed).value for seed in range(400)]
    assert abs(np.mean(values) - eigenvalues.sum()) <= 5 * np.std(values) / 20


@pytest.mark.parametrize("method", _RANDOM)
def test_the_standard_error_is_that_of_the_value(method):
    """Over 200 runs: 5 errors cover nearly always, and the errors match the spread of values."""
    eigenvalues = np.geomspace(1, 0.05, 80)
    op = gnjax.dense(_matrix(eigenvalues))
    runs = [trace(op, method=method, probes=30, seed=seed) for seed in range(200)]
    values, errors = (np.array([getattr(t, n) for t in runs]) for n in ("value", "standard_error"))
    assert (np.abs(values - eigenvalues.sum()) <= 5 * errors).mean() >= 0.97
    assert 0.7 <= np.sqrt((errors**2).mean()) / values.std() <= 1.4


def test_decaying_spectra_favour_hutch_plus_plus_and_xtrace():
    """lambda_i = 0.8^i, 60 products: the tails start at 0.8^20 and 0.8^29."""
    eigenvalues = 0.8 ** np.arange(200)
    op, truth = gnjax.dense(_matrix(eigenvalues)), eigenvalues.sum()
    rms = {}
    for method in _RANDOM:
        values = [trace(op, method=method, probes=60, seed=seed).value for seed in range(20)]
        rms[method] = np.sqrt(np.mean((np.array(values) - truth) ** 2))
    assert rms["hutch++"] < rms["hutchinson"] / 20
    assert rms["xtrace"] < rms["hutch++"] / 3


@pytest.mark.parametrize("base", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("probes", [20, 100, 200])
def test_xtrace_past_the_numerical_rank(base, probes):
    """base^i falls below rounding before the products end: within 5 errors, or rounding."""
    eigenvalues = base ** np.arange(300)
    t = trace(gnjax.dense(_matrix(eigenvalues)), method="xtrace", probes=probes)
    assert abs(t.value - eigenvalues.sum()) <= 5 * t.standard_error + 1e-13
    assert t.products <= probes


@pytest.mark.parametrize("method", ["hutch++", "xtrace"])
@pytest.mark.parametrize("rank", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("size", [10, 40])
def test_low_rank_is_exact(method, rank, size):
    eigenvalues = np.zeros(size)
    eigenvalues[:rank] = np.linspace(1, 2, rank) * (-1) ** np.arange(rank)
    t = trace(gnjax.dense(_matrix(eigenvalues)), method=method, probes=60)
    np.testing.assert_allclose(t.value, eigenvalues.sum(), atol=1e-12)
    assert 0 <= t.standard_error <= 1e-12


@pytest.mark.parametrize("method", _RANDOM)
@pytest.mark.parametrize("probes", [3, 4, 100])
def test_one_by_one_and_zero(method, probes):
    one = trace(gnjax.dense([[-2.5]]), method=method, probes=probes)
    np.testing.assert_allclose(one.value, -2.5, rtol=1e-15)
    assert one.standard_error <= 1e-15
    zero = trace(gnjax.dense(np.zeros((7, 7))), method=method, probes=probes)
    assert zero.value == 0
    assert not math.isnan(zero.standard_error)


@settings(max_examples=40)
@given(
    method=st.sampled_from(_RANDOM),
    size=st.sampled_from([1, 2, 10, 40]),
    probes=st.integers(3, 90),
)
def test_the_budget_is_kept_and_reported(method, size, probes):
    op = Products(_matrix(np.linspace(1, 2, size)))
    assert isinstance(op, Operator)
    t = trace(op, method=method, probes=probes)
    assert t.products == op.count <= probes
    assert math.isfinite(t.value)
    assert t.standard_error >= 0


@pytest.mark.parametrize("method", _RANDOM)
def test_seeds_decide(method):
    op = gnjax.dense(_matrix(np.linspace(1, 2, 50)))
    first, again, other = (trace(op, method=method, probes=20, seed=s) for s in (3, 3, 4))
    assert first == again
    assert first.value != other.value


def test_a_single_sample_has_no_error_estimate():
    op = gnjax.dense(_matrix(np.linspace(1, 2, 50)))
    for method, probes in (("hutchinson", 1), ("hutch++", 3), ("xtrace", 2)):
        assert trace(op, method=method, probes=probes).standard_error == math.inf


@pytest.mark.parametrize("method", [*_RANDOM, "exact"])
def test_single_precision_and_plain_arrays(method):
    matrix = _matrix(np.linspace(-1, 2, 20))
    single = trace(Products(matrix.astype(np.float32)), method=method, probes=30)
    double = trace(matrix, method=method, probes=30)
    np.testing.assert_allclose(single.value, double.value, atol=1e-4)
    assert method in str(double)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "magic"}, "hutch++"),
        ({"probes": 0}, "at least 1"),
        ({"probes": 2.5}, "at least 1"),
        ({"method": "hutch++", "probes": 2}, "at least 3"),
        ({"method": "xtrace", "probes": 1}, "at least 2"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        trace(gnjax.dense(np.eye(3)), **arguments)


@pytest.mark.parametrize("method", [*_RANDOM, "exact"])
def test_products_that_are_not_finite_are_refused(method):
    with pytest.raises(ValueError, match="NaN or Inf"):
        trace(Products(np.full((4, 4), np.nan)), method=method)
