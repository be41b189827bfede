"""Certified condition numbers: the interval contains the truth, and ``resolved`` is right."""

from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import gnjax
from gnjax import papers
from gnjax.conditioning import condition_number as conditioning
from gnjax.conditioning.ends import Ends, Problem
from gnjax.conditioning.methods.krylov import chance
from gnjax.numerics.certificate import KINDS, Error, certificate
from gnjax.numerics.limits import Limits
from gnjax.numerics.rank_bound import RankBound
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.semidefinite import Enclosure
from tests import exact
from tests.held_out.matrices import rotated

_METHODS = ("auto", "krylov", "inverse", "factored", "dense")


def _weights(rng, widths, condition=None):
    """Random weights; with prescribed singular values from 1 to 1 / condition where given."""
    weights = []
    for columns, rows in pairwise(widths):
        w = rng.standard_normal((rows, columns))
        if condition is not None and min(w.shape) > 1:
            u, s, v = np.linalg.svd(w, full_matrices=False)
            w = (u * np.geomspace(1, 1 / condition, len(s))) @ v
        weights.append(w)
    return weights


def _covariance(rng, inputs, rank):
    if rank is None:
        return None
    x = rng.standard_normal((rank, inputs))
    sigma = x.T @ x / rank
    return (sigma + sigma.T) / 2


def _rank(widths, rank):
    """The staircase count from the widths alone, for factors in general position."""
    left = [min(widths[layer:]) for layer in range(1, len(widths))]
    first = widths[0] if rank is None else rank
    right = [min([first, *widths[1:layer]]) for layer in range(1, len(widths))]
    return int(np.dot(np.diff([0, *left]), right))


def _networks(depths, widths, inputs, outputs):
    return st.fixed_dictionaries(
        {
            "depth": depths,
            "hidden": st.lists(widths, min_size=11, max_size=11),
            "inputs": inputs,
            "outputs": outputs,
            "deficit": st.sampled_from([None, 0, 1, 3]),
            "skip": st.sampled_from([0.0, 0.5, 1.0, -0.7]),
            "seed": st.integers(0, 2**32 - 1),
        }
    )


_any_shape = _networks(st.integers(1, 12), st.integers(1, 8), st.integers(1, 5), st.integers(1, 3))
_few_shapes = _networks(  # each of which is compiled for itself
    *map(st.sampled_from, ([1, 2, 3, 12], [1, 3, 8], [1, 3, 5], [1, 3]))
)


def _build(network, condition):
    rng = np.random.default_rng(network["seed"])
    hidden = network["hidden"][: network["depth"] - 1]
    widths = (network["inputs"], *hidden, network["outputs"])
    deficit = network["deficit"]
    rank = None if deficit is None else max(1, network["inputs"] - deficit)
    weights = _weights(rng, widths, condition)
    return weights, _covariance(rng, network["inputs"], rank), _rank(widths, rank)


def _conditioned(networks):
    return {
        "network": networks,
        "log_condition": st.floats(0, 14),
        "method": st.sampled_from(_METHODS),
    }


def _general(networks):
    return {
        "network": networks.map(
            lambda n: {**n, "outputs": n["outputs"] * 2, "inputs": n["inputs"] * 3}
        ),
        "method": st.sampled_from(_METHODS),
    }


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(**_conditioned(_few_shapes))
def test_interval_contains_the_exact_value(network, log_condition, method):
    _check_against_mpmath(network, log_condition, method)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(**_general(_few_shapes))
def test_interval_contains_the_value_from_the_exact_factor(network, method):
    _check_against_the_factor(network, method)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(**_conditioned(_any_shape))
def test_interval_contains_the_exact_value_of_100_networks(network, log_condition, method):
    _check_against_mpmath(network, log_condition, method)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(**_general(_any_shape))
def test_interval_contains_the_value_from_100_exact_factors(network, method):
    _check_against_the_factor(network, method)


def _check_against_mpmath(network, log_condition, method):
    """Linear and residual networks with weights conditioned up to 1e14, in 50 digits a layer.

    A resolved answer has the right rank and holds kappa. One that is not resolved has a lower
    bound, and holds kappa at the rank that it states where it has two bounds.
    """
    weights, covariance, rank = _build(network, 10**log_condition)
    op = papers.linear_gauss_newton(weights, covariance, network["skip"])
    k = gnjax.condition_number(op, method=method)
    truth = exact.linear_eigenvalues(weights, covariance, network["skip"])
    kappa = truth[0] / truth[rank - 1]
    rounding = 1e-14  # of the printed interval itself
    assert k.interval[0] * (1 - rounding) <= kappa
    if k.resolved:
        assert k.rank == rank
        assert kappa <= k.interval[1] * (1 + rounding)
        assert k.interval[0] <= k.value <= k.interval[1]
        assert float(truth[rank - 1]) > 0
        return
    _check_unresolved(k, truth, rank, rounding)


def _check_unresolved(k, truth, rank, rounding):
    """A lower bound for kappa, or both bounds at the rank that the answer states.

    ``truth`` has the eigenvalues, with a relative error of ``rounding``, and ``rank`` is the true
    one. lambda_min may be left open where it is at most four times the floor that is stated.
    """
    assert k.interval[1] == np.inf
    assert k.rank <= rank
    assert k.at_rank[0] * (1 - rounding) <= truth[0] / truth[k.rank - 1]
    if k.bounded:  # at the rank of a covariance that is cut off, or before a gap
        assert truth[0] / truth[k.rank - 1] <= k.at_rank[1] * (1 + rounding)
    else:
        assert k.value <= truth[0] / truth[rank - 1] * (1 + rounding)
        assert truth[rank - 1] <= 4 * k.floor


@pytest.mark.parametrize("method", _METHODS)
def test_a_kappa_of_2e9_with_zeros_below_is_resolved_by_every_method(method):
    """lambda_min, six times, is 2e4 times the floor of a matrix in float64."""
    hidden = [2, *[1] * 10]
    network = {"depth": 4, "hidden": hidden, "inputs": 9, "outputs": 2, "deficit": None}
    _check_against_the_factor({**network, "skip": -0.7, "seed": 301}, method)


@pytest.mark.parametrize("method", _METHODS)
def test_a_kappa_of_1e12_is_resolved_by_singular_values_and_explained_by_the_floor(method):
    """One layer is 0.7 - 0.7001: 1e-12 of the norm is what a matrix can tell from zero."""
    hidden = [1, 4, *[1] * 9]
    network = {"depth": 10, "hidden": hidden, "inputs": 12, "outputs": 2, "deficit": 0}
    _check_against_the_factor({**network, "skip": -0.7, "seed": 301}, method)


@pytest.mark.parametrize("method", _METHODS)
def test_a_triple_lambda_min_behind_a_bottleneck_is_resolved_by_every_method(method):
    """The terms are far from their mean; a first run sees nothing below the next eigenvalue."""
    hidden = [3, 3, 3, 3, *[1] * 7]
    network = {"depth": 5, "hidden": hidden, "inputs": 6, "outputs": 4, "deficit": None}
    _check_against_the_factor({**network, "skip": 0.0, "seed": 1}, method)


def _check_against_the_factor(network, method):
    """Networks in general position against the singular values of [S_1 (x) T_1, .., ].

    An answer from a matrix, or from products with it, may be a lower bound only where lambda_min is
    at most four times the floor that it states, as for the networks with an exact spectrum.
    """
    weights, covariance, rank = _build(network, None)
    skip = network["skip"]
    sigma = _factor_singular_values(weights, covariance, skip)
    if sigma[rank - 1] < 1e-10 * sigma[0]:
        return  # rounding of this oracle would show; the other test covers these
    k = gnjax.condition_number(papers.linear_gauss_newton(weights, covariance, skip), method=method)
    kappa = (sigma[0] / sigma[rank - 1]) ** 2
    oracle = 1e-4 * (1e-10 * sigma[0] / sigma[rank - 1]) + 1e-12
    by_matrix = method not in ("auto", "factored")
    if by_matrix and not k.resolved and sigma[rank - 1] ** 2 <= 4 * k.floor:
        assert kappa > 1e8
        assert k.floor <= 1e-8 * sigma[0] ** 2
        assert k.interval[0] * (1 - oracle) <= kappa
        _check_unresolved(k, sigma**2, rank, oracle)
        return
    assert k.rank == rank
    inputs, deficit = network["inputs"], network["deficit"]
    assert k.resolved == (not deficit or inputs == 1)  # a covariance that is cut off is assumed
    assert k.at_rank[0] * (1 - oracle) <= kappa
    assert kappa <= k.at_rank[1] * (1 + oracle)
    if method in ("auto", "factored"):
        assert k.bounded
    if k.resolved and kappa < 1e6:
        assert abs(k.value / kappa - 1) < 1e-3


def _factor_singular_values(weights, covariance, skip):
    layers = [w + skip * np.eye(*w.shape) for w in weights]
    outputs, inputs = weights[-1].shape[0], weights[0].shape[1]
    right = np.eye(inputs)
    if covariance is not None:
        values, vectors = np.linalg.eigh(covariance)
        kept = values > 1e-13 * values[-1]
        right = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    blocks = []
    for layer in range(len(layers)):
        left = np.eye(outputs)
        for w in layers[:layer:-1]:
            left = left @ w
        blocks.append(np.kron(left, right))
        right = right @ layers[layer].T
    return np.linalg.svd(np.concatenate(blocks, axis=1), compute_uv=False)


def _positive(eigenvalues, seed=0):
    size = len(eigenvalues)
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    return (q * np.sqrt(eigenvalues)) @ q.T


@pytest.mark.parametrize("method", ["auto", "krylov", "inverse", "dense"])
@pytest.mark.parametrize("least", [6e-5, 1.44e-10])
def test_rank_deficient_matrix_has_its_pseudo_condition_number(method, least):
    """Rank 60 of 136, kappa 2.4e4 and 1e10; the Krylov space runs far past the rank.

    A stored matrix is known to its rounding alone, so that the other eigenvalues may be tiny
    instead of zero: kappa is that at a numerical rank, until the caller vouches for the rank.
    """
    eigenvalues = np.zeros(136)
    eigenvalues[:60] = np.geomspace(least, 1.44, 60)
    root = _positive(eigenvalues)
    k = gnjax.condition_number(root @ root, method=method)
    assert (k.rank, k.rank_source, k.resolved) == (60, "gap", False)  # the rank is an assumption
    assert k.at_rank[0] <= 1.44 / least <= k.at_rank[1] < np.inf
    assert k.interval == (k.at_rank[0], np.inf)
    assert "kappa at numerical rank 60" in str(k)
    given = gnjax.condition_number(root @ root, method="dense", rank=60)
    assert given.resolved
    assert given.interval == given.at_rank
    assert abs(k.value * least / 1.44 - 1) < 1e-4


def test_eigenvalues_that_reach_into_the_floor_are_not_resolved():
    """Without a gap the count above the floor is not a rank, and no value is reported as one."""
    root = _positive(np.geomspace(1, 1e-30, 80))
    k = gnjax.condition_number(root @ root, method="dense")
    assert not k.resolved
    assert k.rank_source == "floor"
    assert k.interval[1] == np.inf
    assert k.value <= 1e30


def test_a_factor_resolves_what_its_gram_matrix_cannot():
    u, v = (np.linalg.qr(np.random.default_rng(s).standard_normal((20, 20)))[0] for s in (0, 1))
    factor = (u * np.geomspace(1, 1e-12, 20)) @ v
    k = gnjax.condition_number(gnjax.factored(factor))
    assert k.resolved
    assert k.interval[0] <= 1e24 <= k.interval[1]
    assert not gnjax.condition_number(factor @ factor.T).resolved


def test_assumed_rank_is_the_callers():
    op = gnjax.dense(np.diag([8.0, 4.0, 2.0, 1.0]))
    for rank, kappa in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)):
        k = gnjax.condition_number(op, rank=rank)
        assert (k.rank, k.rank_source) == (rank, "given")
        np.testing.assert_allclose(k.value, kappa, rtol=1e-12)


def test_an_answer_as_narrow_as_asked_for_is_not_computed_twice():
    """Krylov gives the ends unequal shares of rtol; the factor would take thirty times longer."""
    weights = gnjax.initializers.chain(jax.random.key(0), (256, 384, 384, 8), "kaiming_normal")
    k = gnjax.condition_number(papers.linear_gauss_newton(weights))
    assert k.method == "krylov"
    assert k.interval[1] - k.interval[0] <= 1e-3 * k.value


def test_an_end_of_zero_leaves_kappa_open():
    """Its width cannot be compared with it; matrices that only rounding makes have had one."""
    one, made = Enclosure(1.0, 1.0, 1.0), certificate(Error(0.0))
    for least, is_open in ((Enclosure(0.0, 1e-300, 1e-16), True), (one, False)):
        ends = Ends(one, least, 1, "full", 0.0, "dense", made)
        assert conditioning._too_wide(ends, 1e-3) == is_open


def test_zero_matrix_has_no_condition_number():
    for op in (
        gnjax.dense(np.zeros((3, 3))),
        papers.linear_gauss_newton([np.zeros((4, 5)), np.zeros((3, 4)), np.zeros((2, 3))]),
        papers.linear_gauss_newton([np.ones((3, 4))], np.zeros((4, 4))),
    ):
        for method in ("auto", "krylov", "dense"):
            k = gnjax.condition_number(op, method=method)
            assert np.isnan(k.value)
            assert np.isnan(k.log10)
            assert not k.resolved


@pytest.mark.parametrize("method", ["dense", "krylov"])
def test_what_cannot_be_told_from_zero_rests_on_the_error_of_the_matrix(method):
    """A matrix below its error: the answer names the error's size, kind and chance of failure."""
    for error in (Error(1e-3), Error(1e-3, "probable", 0.25), Error(1e-3, "measured")):
        op = gnjax.dense(1e-9 * np.eye(3), error=error)
        k = gnjax.condition_number(op, method=method)
        assert np.isnan(k.value)
        assert 1e-3 <= k.floor <= 1.001e-3
        assert k.certificate.failure == error.failure
        assert k.certificate.kind == "measured"  # LAPACK's rounding


def test_products_of_zero_whose_error_nobody_states_prove_nothing():
    k = gnjax.condition_number(gnjax.as_operator(aslinearoperator(np.zeros((3, 3)))))
    assert np.isnan(k.value)
    assert k.certificate.kind == "unknown"
    assert k.floor == np.inf
    assert np.isnan(k.confidence)


@pytest.mark.parametrize(
    ("widths", "rank"),
    [((100, 150, 150, 10), None), ((100, 60, 90, 10), 80), ((12, 90, 90, 80), 9)],
)
def test_structured_krylov_gives_the_dense_answer(widths, rank):
    rng = np.random.default_rng(3)
    op = papers.linear_gauss_newton(_weights(rng, widths), _covariance(rng, widths[0], rank))
    dense = gnjax.condition_number(op, method="dense")
    for certify in ("ritz", "inertia"):
        k = gnjax.condition_number(op, method="krylov", certify=certify)
        assert k.method == "krylov"
        assert k.rank == dense.rank == _rank(widths, rank)
        assert abs(k.value / dense.value - 1) < 2e-5
        assert k.at_rank[0] <= dense.value <= k.at_rank[1]
        assert k.at_rank[1] / k.at_rank[0] < 1 + 1.1e-3
        assert k.resolved == (rank is None)  # a covariance of lower rank is cut off: assumed
        if rank is None:
            proved = k.certificate.kind == "proved" and k.confidence == 1
            assert proved if certify == "inertia" else k.confidence >= 0.999


@pytest.mark.parametrize("certify", ["ritz", "inertia"])
@pytest.mark.parametrize(
    ("widths", "kind"),
    [
        ((12, 9, 3, 7, 5), "measured"),  # narrow: singular vectors by LAPACK lead to the range
        ((4, 300, 300, 6), "probable"),  # wide: products probed, and more outputs than inputs
        ((6, 300, 300, 4), "probable"),
    ],
)
def test_an_answer_is_no_better_known_than_what_made_its_matrix(widths, kind, certify):
    """Work on a smaller or turned matrix keeps the evidence of the matrix that was given."""
    op = papers.linear_gauss_newton(_weights(np.random.default_rng(0), widths))
    k = gnjax.condition_number(op, method="krylov", certify=certify)
    assert KINDS.index(k.certificate.kind) >= KINDS.index(kind)
    if kind == "probable":
        assert 0 < op.factors.failure <= k.certificate.failure


def test_certificate_fails_no_more_often_than_it_says():
    """Over 60 random starts no interval misses; at 0.999 each, one miss has a chance of 6%."""
    rng = np.random.default_rng(5)
    op = papers.linear_gauss_newton(_weights(rng, (40, 60, 60, 5)))
    truth = gnjax.condition_number(op, method="dense").value
    for seed in range(60):
        k = gnjax.condition_number(op, method="krylov", seed=seed)
        assert k.interval[0] <= truth * (1 + 1e-12)
        assert truth <= k.interval[1]


def test_a_bound_in_the_wrong_place_is_not_certified():
    """Break the answer on purpose: claimed bounds inside the spectrum have no Cholesky factor."""
    op = gnjax.dense(np.diag([8.0, 4.0, 2.0, 1.0]))
    wrong = Ends(
        Enclosure(8.0, 8.0, 8.0),
        Enclosure(2.0, 2.0, 2.0),
        rank=4,
        rank_source="full",
        floor=0.0,
        method="krylov",
        certificate=certificate(chance(1e-3)),
    )
    mended = conditioning._by_inertia(Problem(op, None, 1e-3, 0), wrong)
    np.testing.assert_allclose(mended.smallest.value, 1.0)
    assert mended.method == "dense"


def test_a_start_that_misses_an_eigenvector_is_found_out():
    """Lanczos on C from rows orthogonal to the lowest eigenvector sees nothing there; the chance
    that it reports for the true eigenvalue stays above what a certificate accepts."""
    matrix = np.diag(np.concatenate([[0.1], np.linspace(1, 10, 60)]))
    start = krylov.random_rows(60, 2, 0)
    blind = np.hstack([np.full((2, 1), 1e-9), start])
    run = krylov.lanczos(lambda rows: rows @ matrix, blind, max_steps=8, noise=1e-14)
    assert krylov.missed_probability(run, 0.1)[0] > 5e-4


def test_reduced_operator_has_the_rank_as_size():
    rng = np.random.default_rng(1)
    widths = (12, 9, 3, 7, 5)
    op = papers.linear_gauss_newton(_weights(rng, widths), _covariance(rng, 12, 8))
    small = op.facts().on_range()
    full = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    packed = np.linalg.eigvalsh(np.asarray(small.as_matrix()))[::-1]
    assert small.shape[0] == _rank(widths, 8) == len(packed)
    np.testing.assert_allclose(packed, full[: len(packed)], atol=1e-12 * full[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, "rank=0"),
        ({"rank": 5}, "rank=5"),
        ({"rtol": 0.0}, "rtol"),
        ({"method": "magic"}, "auto, stated, krylov"),
        ({"certify": "faith"}, "inertia"),
        ({"method": "factored"}, "gnjax.factored"),
        ({"method": "closed_form"}, "method='closed_form' is not one of auto, stated"),
        ({"method": "preconditioned"}, "is called method='sketched' now"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        gnjax.condition_number(np.eye(4), **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "non-empty"),
        (([np.ones((3, 2)), np.ones((2, 4))],), "W2 has 4 columns but W1 has 3 rows"),
        (([np.ones(3)],), "shape"),
        (([np.full((2, 2), np.nan)],), "NaN"),
        (([np.ones((2, 2), complex)],), "real"),
        (([np.ones((2, 2))], np.ones((3, 3))), "2 inputs"),
        (([np.ones((2, 2))], np.array([[1.0, 0.5], [0.0, 1.0]])), "symmetric"),
        (([np.ones((2, 2))], np.diag([1.0, -1.0])), "semidefinite"),
        (([np.ones((2, 2))], None, np.inf), "skip"),
        (([np.ones((2, 2))], None, "a"), "skip"),
    ],
)
def test_bad_networks_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        papers.linear_gauss_newton(*arguments)


def test_krylov_refuses_a_rank_that_is_not_the_range():
    op = papers.linear_gauss_newton([np.ones((3, 4)), np.ones((2, 3))])
    with pytest.raises(ValueError, match="assumed rank"):
        gnjax.condition_number(op, method="krylov", rank=2)


def test_text_says_what_is_known():
    text = str(gnjax.condition_number(np.diag([1.0, 0.5])))
    assert "kappa = 2 in [" in text
    assert "rank 2 of 2, full" in text
    root = _positive(np.geomspace(1, 1e-30, 80))
    assert "NOT RESOLVED" in str(gnjax.condition_number(root @ root))


def test_eigenvalues_of_both_ends_agree_with_all_of_them():
    rng = np.random.default_rng(2)
    op = papers.linear_gauss_newton(_weights(rng, (30, 40, 40, 4)))
    whole = gnjax.eigenvalues(op)
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    assert (np.abs(whole.values - dense) <= whole.errors + 1e-12 * dense[0]).all()
    assert len(whole) == op.shape[0]
    for which, kept in (("largest", slice(0, 5)), ("smallest", slice(-5, None))):
        few = gnjax.eigenvalues(op, k=5, which=which)
        np.testing.assert_allclose(few.values, dense[kept], rtol=1e-10)


def test_a_few_eigenvalues_of_a_large_operator_come_with_residuals():
    rng = np.random.default_rng(2)
    op = papers.linear_gauss_newton(_weights(rng, (400, 500, 500, 8)))
    few = gnjax.eigenvalues(op, k=6, which="largest")
    assert few.method == "krylov"
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1][:6]
    assert (np.abs(few.values - dense) <= few.errors + 1e-9).all()
    assert (few.errors < 1e-6 * dense[0]).all()


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("copies", [1, 2, 3, 7, 20])
def test_a_few_eigenvalues_come_as_often_as_they_are_repeated(which, copies):
    """As in the kernel of a last layer, H H^T (x) I_k, each k times."""
    rng = np.random.default_rng(copies)
    distinct = np.sort(rng.uniform(-1, 2, 300 // copies))[::-1]
    repeated = np.repeat(distinct, copies)
    matrix = rotated(rng, repeated)
    found = gnjax.eigenvalues(matrix, k=8, which=which, limits=Limits(whole_rows=100))
    assert found.method == "krylov"
    expected = repeated[:8] if which == "largest" else repeated[-8:]
    np.testing.assert_allclose(found.values, expected, atol=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        {"which": "some"},
        {"which": "largest"},
        {"k": 3, "which": "all"},
        {"k": 9, "which": "smallest"},
    ],
)
def test_bad_requests_for_eigenvalues_are_refused(arguments):
    with pytest.raises(ValueError, match=r"which|k="):
        gnjax.eigenvalues(gnjax.dense(np.eye(4)), **arguments)


def test_jax_arrays_and_host_arrays_give_the_same_answer():
    rng = np.random.default_rng(0)
    weights = _weights(rng, (5, 8, 3))
    host = gnjax.condition_number(papers.linear_gauss_newton(weights)).value
    device = [jax.numpy.asarray(w) for w in weights]
    assert gnjax.condition_number(papers.linear_gauss_newton(device)).value == host


@dataclass(frozen=True)
class _WithRankBound:
    """diag(values) with a bound on its rank that may not be true."""

    values: tuple[float, ...]
    rank: int

    def facts(self):
        return gnjax.operators.Facts(error=1e-14, rank=self.rank)

    @property
    def dtype(self):
        return np.dtype(float)

    @property
    def shape(self):
        return len(self.values), len(self.values)

    def mv(self, v):
        return self.as_matrix() @ v

    def as_matrix(self):
        return jnp.diag(jnp.asarray(self.values))


@pytest.mark.parametrize("method", ["dense", "krylov"])
def test_eigenvalues_beyond_a_bound_on_the_rank_are_not_ignored(method):
    """Whatever structure was said to allow, a certified eigenvalue is not zero."""
    k = gnjax.condition_number(_WithRankBound((4.0, 3.0, 2.0, 0.0), 2), method=method)
    assert (k.rank, k.rank_source, k.resolved) == (3, "gap", False)
    k = gnjax.condition_number(_WithRankBound((4.0, 3.0, 2.0, 1.0), 2), method=method)
    assert (k.rank, k.rank_source, k.resolved) == (4, "full", True)
    assert k.interval[0] <= 4 <= k.interval[1]
    k = gnjax.condition_number(_WithRankBound((4.0, 3.0, 0.0, 0.0), 2), method=method)
    assert (k.rank, k.rank_source, k.resolved) == (2, "analytic", True)


@pytest.mark.parametrize(
    ("bound", "asked", "answered"),
    [
        (200, None, (200, "floor")),
        (190, None, (190, "floor")),
        (9, None, (200, "floor")),
        (200, 200, (200, "given")),
    ],
)
def test_an_incomplete_run_encloses_kappa_at_the_rank_that_it_states(bound, asked, answered):
    """Forty vectors for 200 eigenvalues: the smallest Ritz value bounds only the last of them.

    The fortieth eigenvalue is near the first. A bound on the rank that more Ritz values than it
    contradict is not used.
    """
    values = np.concatenate([np.linspace(1.0, 0.01, 190), np.full(10, 1e-30)])
    op = _WithRankBound(tuple(values), bound)
    limits = Limits(basis_bytes=8 * 200 * 40)
    k = gnjax.condition_number(op, method="krylov", rank=asked, limits=limits)
    assert (k.rank, k.rank_source, k.resolved) == (*answered, False)
    assert 10 < k.at_rank[0] <= values[0] / values[k.rank - 1] < k.at_rank[1] == np.inf
    assert "lambda_min cannot be told from zero" in str(k)


class _OnTrials(gnjax.Algebra, _WithRankBound):
    """The same, positive semidefinite and symmetric, all on the evidence of somebody's trials."""

    def facts(self):
        rank, positive, symmetric = (
            gnjax.Error(0.0, "measured", reason=f"trials of {fact}")
            for fact in ("rank", "positive", "symmetric")
        )
        bound = RankBound(self.rank, rank)
        stated = super().facts()
        return replace(stated, rank=lambda: bound, positive=positive, symmetric=symmetric)


def test_facts_that_an_answer_needs_are_parts_of_its_certificate():
    """Class: the evidence of a rank, a sign or a symmetry that no part of a certificate shows."""
    values = (4.0, 3.0, 0.0, 0.0)
    for op, kind in ((_WithRankBound(values, 2), "proved"), (_OnTrials(values, 2), "measured")):
        k = gnjax.condition_number(op)
        ranks = [part for part in k.certificate.parts if "rank" in part.reason]
        assert [part.kind for part in ranks] == [kind]
    for method in ("dense", "krylov"):
        k = gnjax.condition_number(_OnTrials(values, 2), method=method)
        assert {"trials of rank", "trials of symmetric"} <= {
            part.reason for part in k.certificate.parts
        }
    k = gnjax.condition_number(_OnTrials((4.0, 3.0, 1.0), 3), certify="inertia")
    assert (k.certificate.kind, str(k.certificate)) == (
        "measured",
        "measured (trials of symmetric)",
    )
    k = gnjax.condition_number(gnjax.dense(np.zeros((4, 4))) + _OnTrials(values, 2) + 0.5)
    assert k.method != "damped"  # nobody says that zeros are positive semidefinite
    k = gnjax.condition_number(gnjax.factored(np.eye(4)[:, :1]) + 2 * _OnTrials(values, 2) + 0.5)
    assert k.method == "damped"
    assert {"trials of rank", "trials of positive"} <= {part.reason for part in k.certificate.parts}
    # lambda_max is 1 + 8 + 0.5, and the rank is at most 3 of 4 by the trials.
    assert k.interval[0] <= 9.5 / 0.5 <= k.interval[1]


@pytest.mark.parametrize(("decades", "method"), [(2, "dense"), (6, "factored")])
def test_a_factor_that_takes_long_comes_after_the_matrix(decades, method):
    """kappa is 10^(2 decades): beyond 1e10 the matrix leaves less than rtol to see."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((20, 20)))[0] for _ in range(2))
    factor = left * np.logspace(0, -decades, 20) @ right
    op = gnjax.factored(factor)
    assert gnjax.condition_number(op).method == "factored"
    found = gnjax.condition_number(op, rtol=1e-3, limits=gnjax.Limits(factor_work=0.0))
    assert found.method == method
    assert found.resolved
    assert found.interval[0] <= 10.0 ** (2 * decades) * (1 + 1e-8)
    assert found.interval[1] >= 10.0 ** (2 * decades) * (1 - 1e-8)
    assert found.interval[1] <= found.interval[0] * (1 + 1e-3)
