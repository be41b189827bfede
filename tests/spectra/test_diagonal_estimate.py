"""The diagonal from random signs: by the variance of its samples, and against exact diagonals."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.integers(2, 90), st.integers(0, 999), st.integers(-290, 290))
def test_property_the_standard_errors_are_those_of_the_samples(size, probes, seed, exponent):
    """Entry i has the variance sum_{j != i} A_ij^2 / probes: its errors average to about that."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((size, size)) * 10.0 ** rng.uniform(-2, 2, size)
    matrix = matrix + matrix.T
    answer = gnjax.estimate_diagonal(np.ldexp(matrix, exponent), probes=probes, seed=seed)
    values, errors = (np.ldexp(each, -exponent) for each in (answer.values, answer.standard_errors))
    outside = matrix - np.diag(np.diag(matrix))
    true_errors = np.linalg.norm(outside, axis=1) / probes**0.5
    rounding = 1e-13 * np.linalg.norm(matrix)
    assert (np.abs(values - np.diag(matrix)) <= 6 * true_errors + rounding).all()
    if probes >= 30 and size >= 10:
        assert 0.6 <= np.mean(errors**2) / np.mean(true_errors**2) <= 1.5
    assert answer.products == probes
    assert answer.finished


def test_a_hessian_of_a_network_has_an_estimate_that_covers_its_diagonal():
    model = gnjax.models.MLP((6, 20, 4), activation="tanh", key=jax.random.key(0))
    rng = np.random.default_rng(0)
    op = gnjax.hessian(
        model, rng.standard_normal((30, 6)), rng.integers(0, 4, 30), loss="cross_entropy"
    )
    exact = np.diagonal(np.asarray(op))
    answer = gnjax.estimate_diagonal(op, probes=300)
    off = np.abs(answer.values - exact)
    assert np.mean(off <= 2 * answer.standard_errors) > 0.9
    assert (off <= 6 * answer.standard_errors).all()
    assert answer.certificate.kind == "measured"


def test_one_sample_has_no_spread_and_none_is_refused():
    assert np.isinf(gnjax.estimate_diagonal(np.ones((3, 3)), probes=1).standard_errors).all()
    for probes in (0, 2.5, True):
        with pytest.raises(ValueError, match="not an integer of at least 1"):
            gnjax.estimate_diagonal(np.eye(3), probes=probes)


def test_samples_that_happen_to_be_equal_are_not_called_exact():
    """A diagonal of zero, whose samples are +-1: two are equal in half of the draws.

    Of 4000 such entries one has twenty equal samples in one draw of 130; so more are needed.
    """
    swapped = np.array([[0.0, 1.0], [1.0, 0.0]])
    for scale, probes in ((1.0, 2), (0.1, 3)):  # the mean of three equal samples is rounded
        runs = [
            gnjax.estimate_diagonal(scale * swapped, probes=probes, seed=seed) for seed in range(20)
        ]
        assert any(np.isinf(answer.standard_errors).any() for answer in runs)
        for answer in runs:
            assert (np.abs(answer.values) <= 2 * answer.standard_errors + 1e-12).all()
    for size, probes in ((3, 21), (3, 22), (4000, 31), (4000, 32)):
        op = gnjax.diagonal(np.ones(size))
        is_unknown = size / 2 ** (probes - 1) > 2e-6
        errors = gnjax.estimate_diagonal(op, probes=probes).standard_errors
        assert (errors == (np.inf if is_unknown else 0.0)).all()


def test_ctrl_c_returns_the_samples_so_far():
    def interrupt(done, expected):
        if done >= 32:
            raise KeyboardInterrupt

    answer = gnjax.estimate_diagonal(np.ones((5, 5)), probes=500, progress=interrupt)
    assert not answer.finished
    assert answer.products == 32
    assert np.isfinite(answer.standard_errors).all()


@pytest.mark.parametrize("estimate", [gnjax.trace, gnjax.spectral_density])
def test_a_truth_value_is_no_number_of_samples(estimate):
    with pytest.raises(ValueError, match="probes"):
        estimate(np.eye(3), probes=True)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 6.0])
def test_a_tolerance_is_reached_as_often_as_stated(spread):
    """|d - diag(A)| <= |d| / 2 in 95% of 60 draws, less 3 sigma (0.085)."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((40, 40))
    matrix += matrix.T
    matrix[0, 1:] *= spread  # most of the error is in one entry, or in none
    matrix[1:, 0] = matrix[0, 1:]
    matrix += np.diag(20 * rng.random(40))
    truth, op = np.diag(matrix), gnjax.dense(matrix)
    runs = [gnjax.estimate_diagonal(op, rtol=0.5, seed=seed) for seed in range(60)]
    assert all(run.converged for run in runs)
    distances = [np.linalg.norm(r.values - truth) / np.linalg.norm(r.values) for r in runs]
    assert np.mean(np.array(distances) <= 0.5) >= 0.95 - 0.085


def test_a_tolerance_that_the_probes_do_not_reach_is_told():
    matrix = np.ones((30, 30)) + np.eye(30)
    answer = gnjax.estimate_diagonal(matrix, rtol=0.01, probes=50)
    assert (answer.products, answer.converged, answer.finished) == (50, False, True)
    enough = gnjax.estimate_diagonal(np.eye(30), rtol=0.01)  # every sample is exact
    assert (enough.products, enough.converged) == (32, True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        gnjax.estimate_diagonal(matrix, rtol=1.0)
