"""The bounds of paper A hold where their assumptions do, and are silent elsewhere."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gnjax
from tests import references


def _weights(rng, widths):
    return [rng.standard_normal((rows, columns)) for columns, rows in pairwise(widths)]


def _covariance(rng, inputs, rank):
    x = rng.standard_normal((rank, inputs))
    return (x.T @ x + (x.T @ x).T) / (2 * rank)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    depth=st.sampled_from([1, 2, 3, 5, 8]),
    extra=st.lists(st.sampled_from([-1, 0, 3, 9]), min_size=7, max_size=7),
    d=st.sampled_from([2, 5]),
    k=st.sampled_from([1, 3]),
    rank=st.sampled_from([None, 1, 3, 8]),
    skip=st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_kappa_is_below_convex_is_below_maximum(depth, extra, d, k, rank, skip, seed):
    rng = np.random.default_rng(seed)
    hidden = [max(1, max(d, k) + e) for e in extra[: depth - 1]]
    weights = _weights(rng, (d, *hidden, k))
    covariance = None if rank is None else _covariance(rng, d, rank)
    bound = gnjax.bounds.linear(weights, covariance, skip)
    assert bound.applicable == (bound.reason == "") == (bound.convex is not None)
    if hidden and min(hidden) < max(d, k):
        assert not bound.applicable
    if not bound.applicable:
        assert bound.maximum is None
        return
    k_exact = gnjax.condition_number(gnjax.linear_gauss_newton(weights, covariance, skip))
    assert k_exact.interval[0] <= bound.convex <= bound.maximum
    np.testing.assert_allclose(bound.weights.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(
        bound.convex,
        bound.covariance_condition * (bound.weights @ bound.terms),
        rtol=1e-4,
    )


def test_lemma_1_is_its_formula():
    """Two layers: kappa(Sigma) (s1(W)^2 + s1(V)^2) / (sk(W)^2 + sd(V)^2)."""
    rng = np.random.default_rng(0)
    v, w = _weights(rng, (4, 9, 3))
    sv, sw = (np.linalg.svd(m, compute_uv=False) for m in (v, w))
    expected = (sw[0] ** 2 + sv[0] ** 2) / (sw[-1] ** 2 + sv[-1] ** 2)
    sigma = np.diag([4.0, 3.0, 2.0, 0.5])
    bound = gnjax.bounds.linear([v, w], sigma)
    np.testing.assert_allclose(bound.convex, 8 * expected, rtol=1e-10)
    np.testing.assert_allclose(gnjax.bounds.linear([v, w]).convex, expected, rtol=1e-10)


def test_large_products_take_the_gram_road_and_agree_with_the_svd():
    rng = np.random.default_rng(1)
    weights = _weights(rng, (230, 400, 400, 7))
    bound = gnjax.bounds.linear(weights)
    for layer, product in enumerate((np.eye(230), weights[0], weights[1] @ weights[0])):
        values = np.linalg.svd(product, compute_uv=False)
        np.testing.assert_allclose(bound.right_largest[layer], values[0], rtol=1e-10)
        np.testing.assert_allclose(bound.right_smallest[layer], values[-1], rtol=1e-8)


def test_singular_values_do_not_just_move_by_beta():
    """Eq 8 needs left and right singular vectors to coincide: here W + I is singular, W is not."""
    w = np.array([[0.0, -1.0], [-1.0, 0.0]])
    moved = np.linalg.svd(w + np.eye(2), compute_uv=False)
    np.testing.assert_allclose(np.linalg.svd(w, compute_uv=False), [1.0, 1.0])
    np.testing.assert_allclose(moved, [2.0, 0.0], atol=1e-15)


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6), shift=st.floats(0, 3))
def test_weyl_encloses_the_sum(seed, size, shift):
    rng = np.random.default_rng(seed)
    a, b = (_covariance(rng, size, size + 2) for _ in range(2))
    b = b - shift * np.eye(size) * 0.1 * np.linalg.eigvalsh(a)[0]
    values = np.linalg.eigvalsh(a + b)
    sides = gnjax.bounds.weyl(a, b)
    if values[0] <= 0:
        assert sides.upper is None
        return
    kappa = values[-1] / values[0]
    assert sides.lower <= kappa * (1 + 1e-9)
    assert sides.upper is None or kappa <= sides.upper * (1 + 1e-9)


def test_weyl_lower_side_can_be_attained():
    sides = gnjax.bounds.weyl(np.diag([1.0, 5.0]), np.eye(2))
    assert (sides.lower, sides.upper) == (3.0, 3.0)


def test_gaussian_init_covers():
    """Lemma 7 at t with probability 1 - 8 exp(-t^2/2) = 0.29: the bound holds in 60 of 60 draws."""
    d, k, m, t = 6, 3, 200, 2.2
    bound = gnjax.bounds.gaussian_init(d, k, m, 1 / d, 1 / m, 1.0, t)
    assert bound.applicable
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(60):
        v, w = rng.standard_normal((m, d)) / d**0.5, rng.standard_normal((k, m)) / m**0.5
        held += gnjax.condition_number(gnjax.linear_gauss_newton([v, w])).value <= bound.value
    assert held / 60 >= bound.probability


def test_gaussian_init_does_not_square_a_negative_number():
    """At t = 20 both differences are negative; their squares would give a finite false bound."""
    bound = gnjax.bounds.gaussian_init(6, 3, 40, 1.0, 1.0, 1.0, 20.0)
    assert bound.value is None
    assert not bound.applicable
    assert not gnjax.bounds.gaussian_init(50, 3, 40, 1.0, 1.0, 1.0, 0.1).applicable


def test_asymptotic_is_what_large_networks_approach():
    """Lemma 1's value for one draw at m = 2000 is within 5% of Eq 22 (fluctuations m^{-2/3})."""
    d, k, m = 400, 200, 2000
    rng = np.random.default_rng(0)
    v, w = rng.standard_normal((m, d)) / d**0.5, rng.standard_normal((k, m)) / m**0.5
    limit = gnjax.bounds.asymptotic(d, k, m, 1 / d, 1 / m, 1.0)
    np.testing.assert_allclose(gnjax.bounds.linear([v, w]).convex, limit.value, rtol=0.05)
    assert not gnjax.bounds.asymptotic(5, 5, 5, 1.0, 1.0, 1.0).applicable
    assert not gnjax.bounds.asymptotic(6, 5, 5, 1.0, 1.0, 1.0).applicable


@pytest.mark.parametrize("k", [2, 4])
def test_functional_hessian_bound(k):
    """Eq 18 against the Hessian less the Gauss-Newton matrix by autodiff."""
    d, m, n = 4, 3, 30
    rng = np.random.default_rng(k)
    v, w, z = (rng.standard_normal(s) for s in ((m, d), (k, m), (k, d)))
    x = rng.standard_normal((n, d))
    h = references.functional_hessian(
        lambda p, inputs: inputs @ p["v"].T @ p["w"].T,
        {"v": jnp.asarray(v), "w": jnp.asarray(w)},
        jnp.asarray(x),
        jnp.asarray(x @ z.T),
    )
    bound = gnjax.bounds.functional_hessian(w, v, z, x.T @ x / n)
    np.testing.assert_allclose(bound.kappa, references.pseudo_condition(h), rtol=1e-8)
    assert bound.kappa <= bound.value * (1 + 1e-12)


def test_functional_hessian_bound_is_silent_where_it_fails():
    """R = diag(1, 1, 0), Sigma the projector on (1, 0, 0) and (0, e, 1): kappa is 1/e, not 1."""
    e = 1e-3
    p = np.array([0.0, e, 1.0]) / np.hypot(e, 1.0)
    sigma = np.diag([1.0, 0.0, 0.0]) + np.outer(p, p)
    r = np.diag([1.0, 1.0, 0.0])
    bound = gnjax.bounds.functional_hessian(np.eye(3), r, np.zeros((3, 3)), sigma)
    assert bound.value is None
    assert "singular" in bound.reason
    np.testing.assert_allclose(bound.kappa, 1 / p[1], rtol=1e-10)
    assert gnjax.bounds.functional_hessian(np.eye(3), r, r, np.eye(3)).value is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gnjax.bounds.weyl(np.eye(2), np.eye(3)), "same size"),
        (lambda: gnjax.bounds.weyl(np.ones((2, 3)), np.eye(3)), "symmetric"),
        (lambda: gnjax.bounds.gaussian_init(0, 1, 1, 1, 1, 1, 1), "at least 1"),
        (lambda: gnjax.bounds.gaussian_init(1, 1, 1, -1, 1, 1, 1), "variance"),
        (lambda: gnjax.bounds.gaussian_init(1, 1, 1, 1, 1, 1, -1), "negative"),
        (lambda: gnjax.bounds.asymptotic(1, 1, 1, 1, 1, 0.5), "cov_cond"),
        (
            lambda: gnjax.bounds.functional_hessian(np.eye(2), np.eye(3), np.eye(2), np.eye(3)),
            "must be",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_bound_of_a_jitted_models_weights():
    weights = gnjax.initializers.chain(jax.random.key(0), (6, 20, 20, 3), "kaiming_normal")
    assert gnjax.bounds.linear(weights).applicable
