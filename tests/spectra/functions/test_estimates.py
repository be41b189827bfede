"""Estimates from random vectors: their coverage, the bounds of quadratures, and interruptions."""

import jax
import numpy as np
import pytest
import scipy.stats

import gnjax
from gnjax.spectra.functions.bracket import sample
from gnjax.spectra.functions.scalar_functions import scalar_function
from gnjax.spectra.stochastic.probes import half_width, standard_error, student
from gnjax.spectra.stochastic.quadratures import quadratures, quadratures_from
from tests.held_out.matrices import rotated

_VALUES = {
    "decay": 10.0 ** -np.linspace(0, 4, 40),
    "flat": np.linspace(0.5, 1.5, 40),
    "few": np.r_[np.full(3, 50.0), np.full(37, 1e-2)],
}
_SHIFT = 1e-2
_FUNCTIONS = ("log", "inverse", "sqrt")


def _exact(f, values):
    return {"log": np.log, "inverse": np.reciprocal, "sqrt": np.sqrt}[f](values + _SHIFT).sum()


def _psd(values, seed=0):
    """A positive semidefinite operator with these eigenvalues, from a factor."""
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    return gnjax.factored(q * np.sqrt(values))


@pytest.mark.parametrize("f", _FUNCTIONS)
@pytest.mark.parametrize("spectrum", _VALUES)
@pytest.mark.parametrize("steps", [2, 5, 12])
def test_the_exact_form_lies_between_both_quadratures(f, spectrum, steps):
    """v^T f(A + s I) v of a diagonal A is a sum; Gauss and Gauss-Radau enclose it."""
    values = _VALUES[spectrum]
    batches = quadratures(
        lambda rows: rows * values, 40, probes=10, steps=steps, noise=1e-15, seed=3
    )
    rng = np.random.default_rng([7919, 3])  # that of the library's random vectors
    starts = [rng.standard_normal(40) for _ in range(10)]
    function = scalar_function(f)
    widths = []
    for rule, start in zip([rule for batch in batches for rule in batch], starts, strict=True):
        v = start / np.linalg.norm(start)
        exact = v**2 @ function.values(values + _SHIFT)
        found = sample(rule, function, _SHIFT, _SHIFT, 1e-15 * values.max())  # of rounding
        assert abs(found.value - exact) <= found.gap + found.moved, (f, spectrum)
        widths.append(found.gap)
    assert (max(widths) > 0) == (spectrum != "few")  # two eigenvalues take two steps


# The least number of 1,000 draws within a half-width of 95%, but once in a million times.
_COVERED = scipy.stats.binom.ppf(1e-6, 1000, 0.95)


@pytest.mark.parametrize("probes", [10, 30])
@pytest.mark.parametrize("kind", ["normal", "one eigenvalue", "two eigenvalues", "all but one"])
def test_half_widths_cover_the_mean_of_skewed_samples_as_often_as_they_state(kind, probes):
    """Quadratic forms n sum_i f_i v_i^2 of random unit vectors v, whose mean is the sum of f."""
    f = {
        "normal": np.linspace(0.9, 1.1, 60),
        "one eigenvalue": np.eye(60)[0],
        "two eigenvalues": np.eye(60)[:2].sum(axis=0),
        "all but one": 1 - np.eye(60)[0],
    }[kind]
    v = np.random.default_rng(probes).standard_normal((1000, probes, 60))
    samples = 60 * (v**2 @ f) / (v**2).sum(axis=2)
    inside = [abs(each.mean() - f.sum()) <= half_width(each) for each in samples]
    assert _COVERED <= sum(inside) <= 999
    of_student = [
        abs(each.mean() - f.sum()) <= student(probes) * standard_error(each) for each in samples
    ]
    assert sum(of_student) <= sum(inside)


def test_half_widths_of_few_or_equal_samples():
    assert half_width(np.arange(9.0)) == np.inf
    assert half_width(np.ones(10)) == 0.0
    symmetric = np.r_[np.arange(10.0), -np.arange(10.0)]
    assert half_width(symmetric) == student(20) * standard_error(symmetric)


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", ["decay", "few"])
def test_estimates_cover_the_truth_as_often_as_they_state(spectrum):
    op, inside = _psd(_VALUES[spectrum]), []
    exact = _exact("log", _VALUES[spectrum])
    for seed in range(1000):
        found = gnjax.logdet(
            op, damping=_SHIFT, method="quadrature", steps=8, probes=10, rtol=1e-6, seed=seed
        )
        inside.append(abs(found.value - exact) <= found.error)
    assert _COVERED <= sum(inside) <= 999


@pytest.mark.slow
def test_estimated_variances_cover_the_truth_as_often_as_they_state():
    """40 entries in 1,000 draws of 30 systems, each entry by itself."""
    op = _psd(_VALUES["decay"])
    exact = np.diagonal(np.linalg.inv(np.asarray(op.as_matrix()) + _SHIFT * np.eye(40)))
    inside = [
        np.abs(d.values - exact) <= d.errors
        for d in (
            gnjax.inverse_diagonal(op, damping=_SHIFT, method="estimate", probes=30, seed=seed)
            for seed in range(1000)
        )
    ]
    assert np.sum(inside, axis=0).min() >= _COVERED
    assert np.sum(inside, axis=0).min() <= 999


_STEEP = 10.0 ** -np.linspace(0, 8, 200)


@pytest.mark.parametrize("shift", [1e-1, 1e-3])
def test_few_large_eigenvalues_are_set_aside_where_random_vectors_spread(shift):
    """An effective dimension to 1%, which five times as many random vectors alone would reach."""
    op, f = _psd(_STEEP), _STEEP / (_STEEP + shift)
    variance = 2 * 200 / 202 * ((f**2).sum() - f.sum() ** 2 / 200)  # of n sum_i f_i v_i^2
    assert (2 / 0.01) ** 2 * variance / f.sum() ** 2 > 500  # vectors for 1%, at two deviations
    found = gnjax.effective_dimension(op, damping=shift, method="quadrature")
    assert found.finished
    assert found.products < 5000
    assert abs(found.value - f.sum()) <= found.error <= 0.01 * f.sum()


def test_rows_aside_change_no_trace_whatever_they_are():
    """Two parts of tr f(A) by rows that have nothing to do with A, with all of the complement."""
    op, rng = _psd(_VALUES["decay"]), np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((40, 40)))[0].T
    matrix = np.asarray(op.as_matrix())
    rules = quadratures_from(lambda v: v @ matrix, rows, steps=8, noise=1e-14)
    least = _SHIFT
    parts = [sample(rule, scalar_function("log"), _SHIFT, least, 1e-14) for rule in rules]
    error = sum(part.gap + part.moved for part in parts)
    exact = _exact("log", _VALUES["decay"])
    assert abs(sum(part.value for part in parts) - exact) <= error < 0.1 * abs(exact)
    batches = quadratures(
        lambda v: v @ matrix, 40, probes=3, steps=2, noise=1e-14, outside_of=rows[:39]
    )
    inside = [rule.nodes @ rule.weights for batch in batches for rule in batch]
    np.testing.assert_allclose(inside, rows[39] @ matrix @ rows[39], rtol=1e-9)


def test_more_vectors_are_drawn_until_the_tolerance_is_reached():
    op = _psd(_VALUES["flat"])
    loose, tight = (
        gnjax.logdet(op, damping=1.0, method="quadrature", rtol=rtol, probes=1000)
        for rtol in (0.05, 0.005)
    )
    assert loose.finished
    assert tight.finished
    assert loose.products < tight.products
    assert tight.error <= 0.005 * abs(tight.value)
    few = gnjax.logdet(op, damping=1.0, method="quadrature", rtol=1e-6, probes=20)
    assert not few.finished
    assert "NOT FINISHED" in str(few)


def test_a_network_with_more_parameters_than_outputs_is_worked_on_from_its_outputs():
    """The zeros beyond the rank count by number, with no error and no product."""
    model = gnjax.models.MLP((5, 30, 2), activation="tanh", key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (8, 5))
    op, kernel = 8 * gnjax.gauss_newton(model, x), gnjax.ntk(model, x)
    zeros = op.shape[0] - kernel.shape[0]
    for method in ("exact", "quadrature"):
        whole = gnjax.logdet(op, damping=0.1, method=method, probes=20)
        part = gnjax.logdet(kernel, damping=0.1, method=method, probes=20)
        assert abs(whole.value - part.value - zeros * np.log(0.1)) < 1e-9
    exact = gnjax.logdet(op, damping=0.1)
    assert exact.products == 0
    random = gnjax.logdet(op, damping=0.1, method="quadrature", probes=60)
    assert abs(random.value - exact.value) <= random.error


def test_a_function_of_ones_own_is_measured():
    op = _psd(_VALUES["flat"])
    exact = gnjax.trace_of(np.tanh, op)
    assert abs(exact.value - np.tanh(_VALUES["flat"]).sum()) <= exact.error
    assert exact.certificate.kind == "measured"
    random = gnjax.trace_of(np.tanh, op, method="quadrature", probes=60)
    assert abs(random.value - exact.value) <= 2 * random.error
    assert random.standard_error > 0


def test_an_interruption_returns_what_there_is():
    op = _psd(_VALUES["decay"])

    def after(products):
        def report(done, expected):
            if done >= products:
                raise KeyboardInterrupt

        return report

    trace = gnjax.logdet(op, damping=1e-2, method="quadrature", steps=10, progress=after(150))
    assert not trace.finished
    assert trace.products < 1000
    limits = gnjax.Limits(whole_rows=1)
    x = gnjax.solve(op, np.ones(40), damping=1e-6, limits=limits, progress=after(5))
    assert not x.finished
    exact = np.linalg.solve(np.asarray(op.as_matrix()) + 1e-6 * np.eye(40), np.ones(40))
    assert np.linalg.norm(x.value - exact) <= x.error
    d = gnjax.inverse_diagonal(op, damping=1.0, method="estimate", limits=limits, progress=after(9))
    assert not d.finished


def test_an_estimated_distance_lies_within_its_error():
    rng = np.random.default_rng(5)
    a, p = rotated(rng, _VALUES["decay"]), np.diag(rng.uniform(0, 1, 40))
    exact = np.linalg.norm(a - p) / np.linalg.norm(a)
    inside = []
    for seed in range(100):
        found = gnjax.distance(a, p, probes=30, seed=seed, limits=gnjax.Limits(whole_rows=1))
        assert found.method == "estimate"
        inside.append(abs(found.value - exact) <= found.error)
    assert np.mean(inside) >= 0.9
