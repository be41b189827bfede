"""The bounds of paper A hold where their assumptions do, and are silent elsewhere."""

from itertools import pairwise

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.papers.bounds.enclosures import extreme_singular_values
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
    bound = papers.bounds.linear(weights, covariance, skip)
    assert bound.applicable == (bound.reason == "") == (bound.convex is not None)
    if hidden and min(hidden) < max(d, k):
        assert not bound.applicable
    if not bound.applicable:
        assert bound.maximum is None
        return
    k_exact = gnjax.condition_number(papers.linear_gauss_newton(weights, covariance, skip))
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
    bound = papers.bounds.linear([v, w], sigma)
    np.testing.assert_allclose(bound.convex, 8 * expected, rtol=1e-10)
    np.testing.assert_allclose(papers.bounds.linear([v, w]).convex, expected, rtol=1e-10)


def test_bounds_on_data_of_each_covariance_take_the_singular_values_once(monkeypatch):
    rng = np.random.default_rng(2)
    weights = _weights(rng, (4, 9, 6, 3))
    sigmas = (None, _covariance(rng, 4, 6), _covariance(rng, 4, 2), np.diag([2.0, 0.0, 1.0, 0.0]))
    alone = [papers.bounds.linear(weights, sigma, skip=0.5) for sigma in sigmas]
    decomposed = []

    def counted(matrix, stored_error):
        decomposed.append(matrix.shape)
        return extreme_singular_values(matrix, stored_error)

    monkeypatch.setattr("gnjax.papers.bounds.linear_networks.extreme_singular_values", counted)
    together = papers.bounds.linear_on_each(weights, iter(sigmas), skip=0.5)
    assert len(decomposed) == 2 * len(weights)
    for one, other in zip(together, alone, strict=True):
        assert (one.convex, one.maximum, one.reason) == (other.convex, other.maximum, other.reason)
        assert str(one.certificate) == str(other.certificate)


def test_large_products_take_the_gram_road_and_agree_with_the_svd():
    rng = np.random.default_rng(1)
    weights = _weights(rng, (230, 400, 400, 7))
    bound = papers.bounds.linear(weights)
    for layer, product in enumerate((np.eye(230), weights[0], weights[1] @ weights[0])):
        values = np.linalg.svd(product, compute_uv=False)
        np.testing.assert_allclose(bound.right_largest[layer], values[0], rtol=1e-10)
        np.testing.assert_allclose(bound.right_smallest[layer], values[-1], rtol=1e-8)


@pytest.mark.parametrize("decades", [1, 4, 9, 13])
@pytest.mark.parametrize("columns", [250, 400])
def test_extreme_singular_values_of_a_large_matrix_are_those_that_it_was_made_with(
    decades, columns
):
    rng = np.random.default_rng(decades)
    rows = 250
    left, _ = np.linalg.qr(rng.standard_normal((rows, rows)))
    right, _ = np.linalg.qr(rng.standard_normal((columns, rows)))
    exact = np.logspace(1, 1 - decades, rows)
    matrix = (left * exact) @ right.T
    made = 4 * rows * 2.0**-53 * exact[0]  # the rounding of this product
    found = extreme_singular_values(matrix)
    assert found.below - made <= exact[-1]
    assert found.above + made >= exact[0]
    np.testing.assert_allclose(found.largest, exact[0], rtol=1e-12)
    np.testing.assert_allclose(found.smallest, exact[-1], rtol=1e-9, atol=2e-14 * exact[0])
    assert found.below >= (1 - 1e-6) * exact[-1] - 4e-12  # and the bound is not loose


def test_a_large_diagonal_matrix_has_its_entries_as_singular_values():
    entries = np.random.default_rng(0).standard_normal(300)
    found = extreme_singular_values(np.diag(entries), 0.25)
    assert (found.largest, found.smallest) == (np.abs(entries).max(), np.abs(entries).min())
    assert found.error == pytest.approx(0.25)


def test_a_large_singular_matrix_has_no_smallest_singular_value_above_its_error():
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((260, 259)) @ rng.standard_normal((259, 300))
    found = extreme_singular_values(matrix)
    assert found.below == 0
    np.testing.assert_allclose(found.largest, np.linalg.norm(matrix, 2), rtol=1e-12)


def test_eq_8_goes_to_1_as_beta_grows():
    """Appendix I.3: kappa(W + beta I) is within 2 |W| / (beta - |W|) of 1, whatever W is."""
    w = np.random.default_rng(0).standard_normal((6, 6))
    norm = np.linalg.norm(w, 2)
    for beta in (2 * norm, 20 * norm, 2000 * norm):
        values = np.linalg.svd(w + beta * np.eye(6), compute_uv=False)
        assert values[0] / values[-1] - 1 <= 2 * norm / (beta - norm) * (1 + 1e-12)


def test_small_initial_weights_do_not_align_the_layers():
    """Singular vectors do not change with the scale of a matrix; training aligns them."""
    rng = np.random.default_rng(0)
    aligned = []
    for scale in (1.0, 1e-6):
        first, second = (scale * rng.standard_normal((5, 5)) for _ in range(2))
        left, right = np.linalg.svd(first)[0], np.linalg.svd(second)[2]
        aligned.append(np.abs(np.diag(right @ left)).min())
    assert max(aligned) < 0.5


def test_singular_values_do_not_just_move_by_beta():
    """Eq 8 needs left and right singular vectors to coincide: here W + I is singular, W is not."""
    w = np.array([[0.0, -1.0], [-1.0, 0.0]])
    moved = np.linalg.svd(w + np.eye(2), compute_uv=False)
    np.testing.assert_allclose(np.linalg.svd(w, compute_uv=False), [1.0, 1.0])
    np.testing.assert_allclose(moved, [2.0, 0.0], atol=1e-15)


_nearly = st.sampled_from([0.0, 1e-17, 1e-15, 1e-12, 1e-6, 1.0])


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 5),
    gap=_nearly,
    scale=st.sampled_from([1e-200, 1e-9, 1.0, 1e9, 1e150]),
    diagonal=st.booleans(),
)
def test_weyl_holds_in_many_digits_for_nearly_singular_sums(seed, size, gap, scale, diagonal):
    """lambda_min(A) + lambda_min(B) is ``gap`` of the norm: rounding must not make it positive."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(0, 1, size)) * scale
    q = np.eye(size) if diagonal else np.linalg.qr(rng.standard_normal((size, size)))[0]
    a = (q * values) @ q.T
    a = (a + a.T) / 2
    b = np.eye(size) * (gap * scale - values[0])
    sides = papers.bounds.weyl(a, b)
    assert sides.certificate.kind == "proved"
    with mpmath.workdps(60):
        spectra = [_exact_eigenvalues(m, 60) for m in (a, b)]
        exact = _exact_eigenvalues(a, 60, b)
        (a_least, a_top), (b_least, b_top) = ((s[0], s[-1]) for s in spectra)
        if a_least + b_least <= 0:
            assert sides.upper is None
        elif sides.upper is not None:
            assert (a_top + b_top) / (a_least + b_least) <= sides.upper
        if exact[0] > 0:
            assert sides.lower <= exact[-1] / exact[0]


def _exact_eigenvalues(a, digits, plus=None):
    with mpmath.workdps(digits):
        matrix = mpmath.matrix(a.tolist())
        matrix = matrix if plus is None else matrix + mpmath.matrix(plus.tolist())
        return sorted(mpmath.eigsy(matrix, eigvals_only=True))


def test_weyl_of_a_singular_sum_does_not_divide_by_rounding():
    """lambda_min(A) + lambda_min(B) = 1/3 - 1/3, which floating point can put above zero."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        a = (q * [0.0, 1.0, 2.0, 3.0]) @ q.T
        assert papers.bounds.weyl((a + a.T) / 2, np.zeros((4, 4))).upper is None


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.integers(1, 4),
    decades=st.sampled_from([0, 3, 7, 12]),
    scale=st.sampled_from([1e-100, 1e-6, 1.0, 1e100]),
    deficit=st.booleans(),
)
def test_lemma_2_is_rounded_upwards(seed, depth, decades, scale, deficit):
    """Never below its formula in 60 digits, and None where a product is singular."""
    rng = np.random.default_rng(seed)
    d, k, m = 3, 2, 4
    weights = _weights(rng, (d, *[m] * (depth - 1), k))
    weights = [
        w * 10.0 ** -rng.uniform(0, decades, w.shape) * scale ** (1 / depth) for w in weights
    ]
    if deficit:
        weights[0][:, 0] = weights[0][:, 1]
    x = rng.standard_normal((5, d)) * 10.0 ** -rng.uniform(0, decades / 2, d)
    sigma = x.T @ x / 5
    sigma = (sigma + sigma.T) / 2
    bound = papers.bounds.linear(weights, sigma)
    if not bound.applicable:
        return
    assert not (deficit and depth > 1)
    with mpmath.workdps(60):
        values = _exact_eigenvalues(sigma, 60)
        condition = values[-1] / values[0]
        terms, tops, bottoms = _exact_terms(weights)
        if "the rank of" not in str(bound.certificate):
            assert condition <= bound.covariance_condition
        assert all(t <= b for t, b in zip(terms, bound.terms, strict=True))
        assert bound.covariance_condition * sum(tops) / sum(bottoms) <= bound.convex
        assert bound.covariance_condition * max(terms) <= bound.maximum


def _exact_terms(weights):
    """t_l, and the largest and smallest eigenvalues of A_l (x) B_l."""
    layers = [mpmath.matrix(w.tolist()) for w in weights]
    tops, bottoms = [], []
    right = mpmath.eye(layers[0].cols)
    for layer in range(len(layers)):
        left = mpmath.eye(layers[-1].rows)
        for w in layers[:layer:-1]:
            left = left * w
        a, b = (
            sorted(mpmath.eigsy(g, eigvals_only=True)) for g in (left * left.T, right.T * right)
        )
        tops.append(a[-1] * b[-1])
        bottoms.append(a[0] * b[0])
        right = layers[layer] * right
    return [t / b for t, b in zip(tops, bottoms, strict=True)], tops, bottoms


def test_a_zero_covariance_leaves_nothing_to_bound():
    bound = papers.bounds.linear([np.eye(2)], np.zeros((2, 2)))
    assert not bound.applicable
    assert bound.convex is bound.maximum is None
    assert "zero" in bound.reason


def test_a_rank_of_sigma_that_is_not_proved_is_in_the_certificate():
    rng = np.random.default_rng(0)
    weights = _weights(rng, (4, 6, 2))
    assert "the rank of" in str(papers.bounds.linear(weights, _covariance(rng, 4, 2)).certificate)
    dead = papers.bounds.linear(weights, np.diag([2.0, 0.0, 1.0, 0.0]))
    assert "the rank of" not in str(dead.certificate)
    np.testing.assert_allclose(dead.covariance_condition, 2.0, rtol=1e-11)


@settings(max_examples=300, deadline=None)
@given(
    d=st.integers(1, 40),
    k=st.integers(1, 40),
    extra=st.integers(0, 5),
    t=st.floats(0, 2),
    variances=st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)),
    condition=st.floats(1, 1e12),
)
def test_lemma_7_and_eq_22_are_rounded_upwards(d, k, extra, t, variances, condition):
    m = max(d, k) + extra
    bounds = (
        papers.bounds.gaussian_init(d, k, m, *variances, condition, t),
        papers.bounds.asymptotic(d, k, m, *variances, condition),
    )
    with mpmath.workdps(60):
        var_v, var_w, condition, t = (mpmath.mpf(x) for x in (*variances, condition, t))
        for bound, size, shift in zip(bounds, (mpmath.mpf(1), mpmath.mpf(m)), (t, 0), strict=True):
            root, outer, inner = (mpmath.sqrt(n / size) for n in (m, k, d))
            top = var_w * (root + outer + shift) ** 2 + var_v * (root + inner + shift) ** 2
            gaps = [max(root - other - shift, mpmath.mpf(0)) for other in (outer, inner)]
            bottom = var_w * gaps[0] ** 2 + var_v * gaps[1] ** 2
            if bound.value is None:
                assert bottom < 1e-25 * top
            else:
                assert condition * top / bottom <= bound.value
                assert bound.value <= condition * top / bottom * (1 + 1e-6) or bottom < 1e-12 * top
        assert bounds[0].probability <= max(0, 1 - 8 * mpmath.exp(-(t**2) / 2))
    assert bounds[0].certificate.kind == "probable"
    assert bounds[0].certificate.failure >= min(1.0, 1 - bounds[0].probability - 1e-15)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    decades=st.sampled_from([0, 4, 9]),
    shape=st.sampled_from([(2, 3), (3, 3), (3, 2)]),
    gap=st.sampled_from([0.0, 1e-14, 1e-8, 1.0]),
)
def test_eq_18_holds_in_many_digits(seed, decades, shape, gap):
    """kappa(Omega) at the rank of R, for residuals that nearly cancel and graded data."""
    rng = np.random.default_rng(seed)
    (k, d), m = shape, 4
    w, v = rng.standard_normal((k, m)), rng.standard_normal((m, d))
    z = w @ v + gap * rng.standard_normal((k, d))
    x = rng.standard_normal((6, d)) * 10.0 ** -rng.uniform(0, decades / 2, d)
    sigma = x.T @ x / 6
    sigma = (sigma + sigma.T) / 2
    bound = papers.bounds.functional_hessian(w, v, z, sigma)
    if bound.value is None or "the rank of" in str(bound.certificate):
        assert bound.value is None or gap < 1
        return
    with mpmath.workdps(60):
        w, v, z, sigma = (mpmath.matrix(m.tolist()) for m in (w, v, z, sigma))
        omega = (w * v - z) * sigma
        gram = omega * omega.T if k <= d else omega.T * omega
        values = sorted(mpmath.eigsy(gram, eigvals_only=True))
        assert mpmath.sqrt(values[-1] / values[0]) <= bound.value


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    slope=st.sampled_from([0.0, 1 / 3, 1.0]),
    decades=st.sampled_from([0, 5]),
    sizes=st.sampled_from([(2, 5, 2, 2), (3, 4, 2, 3)]),
)
def test_eq_11_is_rounded_outwards(seed, slope, decades, sizes):
    rng = np.random.default_rng(seed)
    d, m, k, n = sizes
    v, w, x = (
        rng.standard_normal(s) * 10.0 ** -rng.uniform(0, decades, s)
        for s in ((m, d), (k, m), (d, n))
    )
    bound = papers.bounds.leaky_relu(v, w, x, slope)
    with mpmath.workdps(50):
        exact_w, exact_x = mpmath.matrix(w.tolist()), mpmath.matrix(x.tolist())
        z = mpmath.matrix(v.tolist()) * exact_x
        s = mpmath.mpf(slope)
        hidden = z.apply(lambda e: e if e >= 0 else s * e)
        data, outer, gamma = (
            sorted(mpmath.eigsy(g, eigvals_only=True))
            for g in (exact_x.T * exact_x, exact_w * exact_w.T, hidden.T * hidden)
        )
        assert data[-1] * outer[-1] + gamma[-1] <= bound.largest
        assert (
            bound.smallest <= s**2 * max(data[0], 0) * max(outer[0], 0) + max(gamma[0], 0) + 1e-45
        )


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6), shift=st.floats(0, 3))
def test_weyl_encloses_the_sum(seed, size, shift):
    rng = np.random.default_rng(seed)
    a, b = (_covariance(rng, size, size + 2) for _ in range(2))
    b = b - shift * np.eye(size) * 0.1 * np.linalg.eigvalsh(a)[0]
    values = np.linalg.eigvalsh(a + b)
    sides = papers.bounds.weyl(a, b)
    if values[0] <= 0:
        assert sides.upper is None
        return
    kappa = values[-1] / values[0]
    assert sides.lower <= kappa * (1 + 1e-9)
    assert sides.upper is None or kappa <= sides.upper * (1 + 1e-9)


def test_weyl_takes_the_extremes_over_all_j():
    """Eq 12's lower side, where the largest sum is in the middle: 3 + 3 over 0.1 + 3.1."""
    a = b = np.diag([0.1, 3.0, 3.1])
    sides = papers.bounds.weyl(a, b)
    np.testing.assert_allclose(sides.lower, 6.0 / 3.2, rtol=1e-14)  # by the ends alone 1
    assert sides.lower <= 31 <= sides.upper * (1 + 1e-14)


@pytest.mark.parametrize(
    ("a", "b", "kappa", "printed"),
    [((2, -1), (-1, 0.9), 10, 1.45), ((2, -1), (0, 1.5), 4, 3.5)],
    ids=["A + B indefinite", "A + B positive"],
)
def test_eq_12_as_printed_fails_for_indefinite_matrices(a, b, kappa, printed):
    """Hermitian is not enough; gnjax gives no upper side there."""
    a, b = np.diag(a).astype(float), np.diag(b).astype(float)
    ends = np.array([np.linalg.eigvalsh(m)[[0, -1]] for m in (a, b)]).sum(axis=0)
    assert abs(ends[1] / ends[0]) == pytest.approx(printed)
    assert np.linalg.cond(a + b) == pytest.approx(kappa)
    assert papers.bounds.weyl(a, b).upper is None


@given(seed=st.integers(0, 2**32 - 1), sizes=st.tuples(*[st.integers(1, 5)] * 2))
def test_eqs_13_and_14_are_the_ends_of_kronecker_products(seed, sizes):
    rng = np.random.default_rng(seed)
    a, b = (_covariance(rng, size, size + 1) for size in sizes)
    ends = [np.linalg.eigvalsh(m)[[0, -1]] for m in (a, b)]
    whole = np.linalg.eigvalsh(np.kron(a, b))[[0, -1]]
    scale = ends[0][1] * ends[1][1]
    np.testing.assert_allclose(whole, ends[0] * ends[1], rtol=0, atol=1e-13 * scale)


def test_weyl_lower_side_can_be_attained():
    sides = papers.bounds.weyl(np.diag([1.0, 5.0]), np.eye(2))
    assert sides.lower <= 3.0 <= sides.upper  # some units in the last place apart
    np.testing.assert_allclose([sides.lower, sides.upper], 3.0, rtol=4e-15)


def test_lemma_6_covers_the_singular_values_of_gaussian_matrices():
    """At t = 1.5 the probability is at least 0.35; of 200 matrices fewer than 130 may leave."""
    low, high, probability = papers.bounds.gaussian_singular_values(30, 8, 1.5)
    np.testing.assert_allclose([low, high], [30**0.5 - 8**0.5 - 1.5, 30**0.5 + 8**0.5 + 1.5])
    assert 0.35 < probability <= 1 - 2 * np.exp(-(1.5**2) / 2)
    rng = np.random.default_rng(0)
    values = [np.linalg.svd(rng.standard_normal((30, 8)), compute_uv=False) for _ in range(200)]
    inside = [low <= s[-1] and s[0] <= high for s in values]
    assert np.mean(inside) >= probability
    assert papers.bounds.gaussian_singular_values(9, 16, 0.1)[0] == 0.0


@pytest.mark.parametrize("m", [10**5, 10**7])
def test_eq_21_is_what_eq_20_comes_near_to_in_wide_networks(m):
    """Within d / m, the weight of the terms that are left out; and kappa(Sigma) is the limit."""
    d, k, t, condition = 400, 10, 2.0, 5.0
    printed = papers.bounds.wide_init(d, m, condition, t)
    whole = papers.bounds.gaussian_init(d, k, m, 1 / d, 1 / m, condition, t).value
    np.testing.assert_allclose(printed, whole, rtol=d / m)
    assert condition < printed < condition * (1 + 5 * (d**0.5 + t) / m**0.5)
    assert papers.bounds.wide_init(d, d, condition, t) == np.inf


def test_gaussian_init_covers():
    """Lemma 7 at t with probability 1 - 8 exp(-t^2/2) = 0.29: the bound holds in 60 of 60 draws."""
    d, k, m, t = 6, 3, 200, 2.2
    bound = papers.bounds.gaussian_init(d, k, m, 1 / d, 1 / m, 1.0, t)
    assert bound.applicable
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(60):
        v, w = rng.standard_normal((m, d)) / d**0.5, rng.standard_normal((k, m)) / m**0.5
        held += gnjax.condition_number(papers.linear_gauss_newton([v, w])).value <= bound.value
    assert held / 60 >= bound.probability


def test_gaussian_init_does_not_square_a_negative_number():
    """At t = 20 both differences are negative; their squares would give a finite false bound."""
    bound = papers.bounds.gaussian_init(6, 3, 40, 1.0, 1.0, 1.0, 20.0)
    assert bound.value is None
    assert not bound.applicable
    assert not papers.bounds.gaussian_init(50, 3, 40, 1.0, 1.0, 1.0, 0.1).applicable


def test_asymptotic_is_what_large_networks_approach():
    """Lemma 1's value for one draw at m = 2000 is within 5% of Eq 22 (fluctuations m^{-2/3})."""
    d, k, m = 400, 200, 2000
    rng = np.random.default_rng(0)
    v, w = rng.standard_normal((m, d)) / d**0.5, rng.standard_normal((k, m)) / m**0.5
    limit = papers.bounds.asymptotic(d, k, m, 1 / d, 1 / m, 1.0)
    np.testing.assert_allclose(papers.bounds.linear([v, w]).convex, limit.value, rtol=0.05)
    assert not papers.bounds.asymptotic(5, 5, 5, 1.0, 1.0, 1.0).applicable
    assert not papers.bounds.asymptotic(6, 5, 5, 1.0, 1.0, 1.0).applicable


@pytest.mark.parametrize("k", [2, 4])
def test_functional_hessian_bound(k):
    """Eq 18 against the Hessian less the Gauss-Newton matrix by autodiff."""
    d, m, n = 4, 3, 30
    rng = np.random.default_rng(k)
    v, w, z = (rng.standard_normal(s) for s in ((m, d), (k, m), (k, d)))
    x = rng.standard_normal((n, d))
    h = references.functional_hessian(
        lambda p, inputs: inputs @ p["v"].T @ p["w"].T,
        {"v": v, "w": w},
        x,
        x @ z.T,
    )
    bound = papers.bounds.functional_hessian(w, v, z, x.T @ x / n)
    np.testing.assert_allclose(bound.kappa, references.pseudo_condition(h), rtol=1e-8)
    assert bound.kappa <= bound.value * (1 + 1e-12)


def test_the_smallest_eigenvalue_of_h_f_is_sigma_min_of_omega():
    """Before Eq 18 the paper prints |H_F^-1| = sigma_min, where the reciprocal is meant."""
    rng = np.random.default_rng(3)
    omega = rng.standard_normal((3, 3)) @ np.diag([4.0, 1.0, 0.1])
    block = np.kron(omega, np.eye(2))
    h = np.block([[np.zeros((6, 6)), block], [block.T, np.zeros((6, 6))]])
    smallest = np.linalg.svd(omega, compute_uv=False)[-1]
    np.testing.assert_allclose(np.linalg.norm(np.linalg.inv(h), 2), 1 / smallest, rtol=1e-10)


def test_functional_hessian_bound_is_silent_where_it_fails():
    """R = diag(1, 1, 0), Sigma the projector on (1, 0, 0) and (0, e, 1): kappa is 1/e, not 1."""
    e = 1e-3
    p = np.array([0.0, e, 1.0]) / np.hypot(e, 1.0)
    sigma = np.diag([1.0, 0.0, 0.0]) + np.outer(p, p)
    r = np.diag([1.0, 1.0, 0.0])
    bound = papers.bounds.functional_hessian(np.eye(3), r, np.zeros((3, 3)), sigma)
    assert bound.value is None
    assert "singular" in bound.reason
    np.testing.assert_allclose(bound.kappa, 1 / p[1], rtol=1e-10)
    assert papers.bounds.functional_hessian(np.eye(3), r, r, np.eye(3)).value is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: papers.bounds.weyl(np.eye(2), np.eye(3)), "same size"),
        (lambda: papers.bounds.weyl(np.ones((2, 3)), np.eye(3)), "symmetric"),
        (lambda: papers.bounds.gaussian_init(0, 1, 1, 1, 1, 1, 1), "at least 1"),
        (lambda: papers.bounds.gaussian_init(1, 1, 1, -1, 1, 1, 1), "variance"),
        (lambda: papers.bounds.gaussian_init(1, 1, 1, 1, 1, 1, -1), "negative"),
        (lambda: papers.bounds.asymptotic(1, 1, 1, 1, 1, 0.5), "cov_cond"),
        (
            lambda: papers.bounds.functional_hessian(np.eye(2), np.eye(3), np.eye(2), np.eye(3)),
            "must be",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_bound_of_a_jitted_models_weights():
    weights = gnjax.initializers.chain(jax.random.key(0), (6, 20, 20, 3), "kaiming_normal")
    assert papers.bounds.linear(weights).applicable


@pytest.mark.parametrize("variance", [1e-305, 1e-8, 1e300, 1e305, 1e308])
def test_gaussian_bounds_do_not_depend_on_a_common_scale_of_the_variances(variance):
    for bound, sizes in (
        (papers.bounds.gaussian_init, (10, 5, 4000)),
        (papers.bounds.asymptotic, (100, 100, 10_000)),
    ):
        options = {"cov_cond": 1.0, **({"t": 5.0} if sizes[0] == 10 else {})}
        expected = bound(*sizes, 1.0, 1.0, **options).value
        assert bound(*sizes, variance, variance, **options).value == pytest.approx(expected, 1e-12)


def test_what_overflows_is_refused_in_words():
    v, w, x = (np.random.default_rng(0).standard_normal(s) for s in ((9, 3), (2, 9), (3, 3)))
    for call in (
        lambda: papers.bounds.leaky_relu(1e160 * v, w, x, slope=0.5),
        lambda: papers.bounds.gaussian_init(10, 5, 4000, 1.0, 1.0, cov_cond=1.0, t=1e200),
        lambda: papers.bounds.gaussian_init(10**400, 5, 10**401, 1.0, 1.0, cov_cond=1.0, t=1.0),
    ):
        with pytest.raises(ValueError, match=r"beyond floats|at most 1e.100"):
            call()


def test_appendix_g2_is_about_v_transposed_v():
    """For V (m, d), m > d, V V^T is singular; the ends of V^T V are those of Silverstein."""
    m, d = 4000, 1000
    v = np.random.default_rng(0).standard_normal((m, d)) / np.sqrt(m)
    wide = np.linalg.eigvalsh(v[: 2 * d // 10, : d // 10] @ v[: 2 * d // 10, : d // 10].T)
    assert abs(wide[0]) < 1e-12
    lowest, *_, highest = np.linalg.eigvalsh(v.T @ v)
    edge = np.sqrt(d / m)
    np.testing.assert_allclose([lowest, highest], [(1 - edge) ** 2, (1 + edge) ** 2], rtol=0.05)
