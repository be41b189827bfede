"""Eq 10 and Lemma 4, against automatic differentiation and the equations written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.models.mlp import MLP, mlp_weights
from gnjax.papers.bounds import leaky_relu as leaky_bound
from gnjax.papers.closed_form.leaky_relu import (
    leaky_relu_gauss_newton,
    leaky_relu_gauss_newtons,
)
from tests import references

_SLOPES = st.sampled_from([0.0, 0.01, 0.3, 1.0])


def _draw(seed, n, d, m, k):
    rng = np.random.default_rng(seed)
    shapes = ((m, d), (k, m), (d, n))
    return tuple(rng.standard_normal(shape) for shape in shapes)


@jax.jit
def _jacobian(v, w, x, slope):
    """(n k, p), samples first, of W sigma(V x) by reverse mode."""

    def apply(params, rows):
        return jax.nn.leaky_relu(rows @ params["v"].T, slope) @ params["w"].T

    return references.jacobian(apply, {"v": v, "w": w}, x.T)


def _written(v, w, x, slope):
    """Eq 10 as it stands, unit by unit."""
    total = 0.0
    for i in range(len(v)):
        lam = np.diag(np.where(v[i] @ x >= 0, 1.0, slope))
        total = total + np.kron(lam @ x.T @ x @ lam, np.outer(w[:, i], w[:, i]))
        total = total + np.kron(lam @ x.T @ np.outer(v[i], v[i]) @ x @ lam, np.eye(len(w)))
    return total


def _gamma(v, x, slope):
    z = v @ x
    hidden = np.where(z >= 0, z, slope * z)
    return hidden.T @ hidden


@settings(max_examples=30)
@given(
    sizes=st.sampled_from([(1, 1, 1, 1), (5, 3, 7, 2), (3, 8, 6, 1), (4, 4, 1, 3)]),
    slope=_SLOPES,
    work=st.sampled_from([0, 1e10]),
    seed=st.integers(0, 2**32 - 1),
)
def test_three_roads_to_eq_10(sizes, slope, work, seed):
    """J J^T by autodiff, the sum over units, and the operator, formed or with a factor.

    Each has at most (m + d) rounding errors of the size of |J| |J|^T, below 1e-13 ||J||_F^2.
    """
    v, w, x = _draw(seed, *sizes)
    jacobian = _jacobian(v, w, x, slope)
    op = leaky_relu_gauss_newton(v, w, x, slope, limits=gnjax.Limits(factor_work=work))
    assert isinstance(op, gnjax.operators.Factored if work else gnjax.operators.Dense)
    scale = float(jnp.linalg.norm(jacobian)) ** 2
    auto = jacobian @ jacobian.T
    np.testing.assert_allclose(op.as_matrix(), auto, rtol=0, atol=1e-12 * np.abs(auto).max())
    np.testing.assert_allclose(_written(v, w, x, slope), auto, rtol=0, atol=1e-13 * scale)
    distance = np.linalg.norm(np.asarray(op.as_matrix() - auto), 2)
    error = float(op.stored_error)
    allowed = (2 * scale**0.5 + error) * error if work else error
    assert distance <= allowed + 1e-14 * scale
    assert allowed <= 1e-12 * scale + 1e-300  # what underflow could have taken, of nothing


def test_minus_alpha_in_lambda_is_the_derivative_of_a_mirrored_function():
    """Appendix H prints -alpha: J J^T of max(x, -alpha x), and far from that of Leaky ReLU."""
    v, w, x = _draw(3, 5, 4, 6, 2)
    printed = _written(v, w, x, -0.5)
    mirrored, leaky = (_jacobian(v, w, x, slope) for slope in (-0.5, 0.5))
    np.testing.assert_allclose(printed, mirrored @ mirrored.T, rtol=1e-10, atol=1e-10)
    z = np.linspace(-2, 2, 9)
    np.testing.assert_allclose(jax.nn.leaky_relu(z, -0.5), np.maximum(z, -0.5 * z))
    true = leaky @ leaky.T
    assert np.linalg.norm(printed - true) > 0.1 * np.linalg.norm(true)


@pytest.mark.parametrize("work", [0, 1e10])
def test_several_slopes_give_the_matrices_of_each(work):
    v, w, x = _draw(5, 4, 6, 7, 2)
    limits, slopes = gnjax.Limits(factor_work=work), (0.3, 0.0, 1.0, 0.01)
    ops = leaky_relu_gauss_newtons(v, w, x, slopes, limits=limits)
    for slope, op in zip(slopes, ops, strict=True):
        alone = leaky_relu_gauss_newton(v, w, x, slope, limits=limits)
        np.testing.assert_array_equal(op.as_matrix(), alone.as_matrix())
        assert op.stored_error == alone.stored_error


@pytest.mark.parametrize("work", [0, 1e10])
def test_slope_1_is_the_linear_network(work):
    """n times the spectrum for Sigma = X X^T / n, which has the same non-zero eigenvalues."""
    limits = gnjax.Limits(factor_work=work)
    for n, d in ((9, 4), (4, 9)):
        v, w, x = _draw(n, n, d, 12, 3)
        values = gnjax.eigenvalues(leaky_relu_gauss_newton(v, w, x, 1.0, limits=limits)).values
        linear = gnjax.eigenvalues(papers.linear_gauss_newton([v, w], x @ x.T / n)).values * n
        common = min(len(values), len(linear))
        np.testing.assert_allclose(values[:common], linear[:common], atol=1e-12 * linear[0])
        assert np.abs(values[common:]).max(initial=0) <= 1e-12 * linear[0]
        assert np.abs(linear[common:]).max(initial=0) <= 1e-12 * linear[0]


def test_formed_and_factored_give_one_condition_number():
    v, w, x = _draw(3, 12, 20, 40, 3)
    answers = []
    for work in (0, 1e10):
        op = leaky_relu_gauss_newton(v, w, x, 0.01, limits=gnjax.Limits(factor_work=work))
        answers.append(gnjax.condition_number(op))
    assert [a.method for a in answers] == ["dense", "factored"]
    assert all(a.resolved and a.rank == 36 for a in answers)
    reference = references.pseudo_condition(_jacobian(v, w, x, 0.01)) ** 2
    for answer in answers:
        assert answer.interval[0] <= reference * (1 + 1e-12)
        assert reference <= answer.interval[1] * (1 + 1e-12)


def test_singular_values_resolve_what_the_matrix_cannot():
    """Two samples 1e-9 apart: kappa is about 1e18, and 1/eps is 4.5e15."""
    v, w, x = _draw(4, 3, 5, 6, 1)
    x[:, 1] = x[:, 0] + 1e-9 * x[:, 2]
    answer = gnjax.condition_number(leaky_relu_gauss_newton(v, w, x, 0.5))
    assert answer.resolved
    assert answer.rank == 3
    np.testing.assert_allclose(
        answer.value, references.pseudo_condition(_jacobian(v, w, x, 0.5), 0) ** 2, rtol=1e-5
    )


def test_at_exactly_zero_the_slope_is_1():
    """v x = 0: jax differentiates leaky_relu to 1 there, so the block of V is |w|^2 |x|^2."""
    v, w, x = np.array([[1.0, -1.0]]), np.array([[2.0]]), np.array([[1.0], [1.0]])
    np.testing.assert_allclose(leaky_relu_gauss_newton(v, w, x, 0.25).as_matrix(), [[8.0]])
    np.testing.assert_allclose(_jacobian(v, w, x, 0.25), [[2.0, 2.0, 0.0]])


def test_the_model_with_this_activation():
    model = MLP((6, 7, 2), activation="leaky_relu", slope=0.2, bias=False, key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((5, 6))
    v, w = mlp_weights(model)
    np.testing.assert_allclose(
        model(jnp.asarray(x)), jax.nn.leaky_relu(x @ v.T, 0.2) @ w.T, rtol=1e-12
    )
    jacobian = _jacobian(v, w, x.T, 0.2)
    op = leaky_relu_gauss_newton(v, w, x.T, 0.2)
    np.testing.assert_allclose(op.as_matrix(), jacobian @ jacobian.T, rtol=1e-10, atol=1e-12)


@settings(max_examples=60)
@given(
    n=st.sampled_from([2, 6]),
    d=st.sampled_from([1, 9]),
    m=st.sampled_from([1, 14]),
    k=st.sampled_from([1, 3]),
    slope=_SLOPES,
    size=st.sampled_from([1e-4, 1.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_kappa_is_below_eq_11(n, d, m, k, slope, size, seed):
    v, w, x = _draw(seed, n, d, m, k)
    w = size * w
    bound = leaky_bound(v, w, x, slope)
    assert bound.applicable == (bound.reason == "") == (bound.value is not None)
    if n > m and (slope == 0 or n > d or k > m):
        assert not bound.applicable
    if not bound.applicable:
        return
    values = np.linalg.eigvalsh(_written(v, w, x, slope))
    rounding = 1e-13 * values[-1]
    assert values[-1] <= bound.largest + rounding
    assert values[0] >= bound.smallest - rounding
    if values[0] > 1e3 * rounding:
        assert values[-1] / values[0] <= bound.value * 1.01


def test_eq_11_is_its_formula():
    v, w, x = _draw(0, 4, 6, 12, 3)
    sx, sw = (np.linalg.svd(matrix, compute_uv=False) for matrix in (x, w))
    gamma = np.linalg.eigvalsh(_gamma(v, x, 0.3))
    plain = np.linalg.eigvalsh(x.T @ v.T @ v @ x)
    above, below = sx[0] ** 2 * sw[0] ** 2, 0.09 * sx[-1] ** 2 * sw[-1] ** 2
    bound = leaky_bound(v, w, x, 0.3)
    np.testing.assert_allclose(bound.value, (above + gamma[-1]) / (below + gamma[0]), rtol=1e-10)
    np.testing.assert_allclose(
        bound.estimate, (above + plain[-1]) / (below + 0.09 * plain[0]), rtol=1e-10
    )


def test_eq_11_is_attained():
    """One sample, one unit, one output: G = |w|^2 |x|^2 + (v x)^2 is a number."""
    bound = leaky_bound([[2.0]], [[3.0]], [[1.0]], 0.5)
    assert bound.largest == pytest.approx(13.0)
    assert bound.value == pytest.approx(13.0 / (0.25 * 9 + 4))


def test_the_square_of_a_small_slope_counts_the_first_term_a_thousandfold_too_low():
    """Why Eq 11 is loose at m = n: Gamma is nearly singular there, and of its size at 4 n."""
    n, d, k, slope = 60, 94, 6, 0.01
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.standard_normal((d, n)))[0]
    quotients, gammas = [], []
    for m in (n, 4 * n):
        v, w = rng.standard_normal((m, d)) / d**0.5, rng.standard_normal((k, m)) / m**0.5
        z = v @ x
        signs = np.where(z > 0, 1.0, slope)
        term = np.einsum("oi,pi,is,it,st->ospt", w, w, signs, signs, x.T @ x, optimize=True)
        own = np.linalg.eigvalsh(term.reshape(k * n, k * n))[0]
        counted = slope**2 * np.linalg.svd(w, compute_uv=False)[-1] ** 2
        quotients.append(own / counted)
        gammas.append(np.linalg.svd(signs * z, compute_uv=False)[-1] ** 2 / own)
    assert min(quotients) > 1000
    assert gammas[0] < 0.01
    assert gammas[1] > 0.5


def test_eq_25_fails_and_the_estimate_with_it():
    """Gamma is singular where slope^2 lambda_min(V^T V) = 0.096; a small W then lets kappa grow."""
    v, x = np.array([[-2.0, 0.5], [1.0, -1.0]]), np.eye(2)
    np.testing.assert_allclose(np.linalg.eigvalsh(_gamma(v, x, 0.5))[0], 0.0, atol=1e-15)
    right = 0.25 * np.linalg.eigvalsh(v.T @ v)[0]
    assert right == pytest.approx(0.096, abs=1e-3)
    w = np.array([[1e-3, 1e-3]])
    bound = leaky_bound(v, w, x, 0.5)
    answer = gnjax.condition_number(leaky_relu_gauss_newton(v, w, x, 0.5))
    assert answer.interval[0] > 1e3 * bound.estimate
    assert answer.interval[0] <= bound.value


def test_eq_26_fails():
    v = np.array([[1.0, 1.0], [1.0, -1.0]])
    gamma = np.linalg.eigvalsh(_gamma(v, np.eye(2), 0.0))[-1]
    assert gamma == pytest.approx((3 + 5**0.5) / 2)
    assert gamma > np.linalg.eigvalsh(v.T @ v)[-1] == pytest.approx(2.0)


def test_eq_26_fails_in_a_few_of_a_hundred_draws():
    """n=4, d=6, m=12, ReLU: between 0.5% and 5% of 400 Gaussian draws (1.6% in longer runs)."""
    rng = np.random.default_rng(0)
    failures = 0
    for _ in range(400):
        v, x = rng.standard_normal((12, 6)), rng.standard_normal((6, 4))
        top = np.linalg.eigvalsh(x.T @ v.T @ v @ x)[-1]
        failures += np.linalg.eigvalsh(_gamma(v, x, 0.0))[-1] > top * (1 + 1e-9)
    assert 2 <= failures <= 20


def test_eq_26_is_exceeded_28_times_by_relu_on_whitened_samples():
    """With Gram matrix I, V X has independent entries N(0, 2/d), and ReLU's outputs have a mean.

    m n / (2 pi (sqrt(m) + sqrt(n))^2) is the mean's part of the quotient, 27.3. The top eigenvalue
    of the whole Gauss-Newton term by power iteration on outputs of a network is the other road.
    """
    n, d, m = 500, 3072, 1000
    rng = np.random.default_rng(0)
    for _ in range(3):
        z = (2 / d) ** 0.5 * rng.standard_normal((m, n))
        gamma = np.linalg.eigvalsh(_gamma(z, np.eye(n), 0.0))[-1]
        linear = np.linalg.eigvalsh(z.T @ z)[-1]
        assert 26 < gamma / linear < 30
        vector = np.ones(n) / n**0.5  # near the top one, as all outputs have one mean
        for _ in range(20):
            vector = np.maximum(z, 0).T @ (np.maximum(z, 0) @ vector)
            vector /= np.linalg.norm(vector)
        assert np.linalg.norm(np.maximum(z, 0) @ vector) ** 2 == pytest.approx(gamma, rel=1e-9)
    assert m * n / (2 * np.pi * (m**0.5 + n**0.5) ** 2) == pytest.approx(27.3, abs=0.1)


def test_eq_11_with_the_singular_values_of_a_wide_x_is_no_bound():
    """X = (1, -1) has one singular value, sqrt(2); the smallest of n = 2 is 0, as Lemma 4 needs."""
    v, w, x, slope = np.array([[1.0], [-1.0]]), np.ones((1, 2)), np.array([[1.0, -1.0]]), 0.9
    gamma = np.linalg.eigvalsh(_gamma(v, x, slope))
    printed = (2 * 2 + gamma[1]) / (slope**2 * 2 * 2 + gamma[0])
    kappa = ((1 + slope) / (1 - slope)) ** 2  # G is 2 Gamma
    answer = gnjax.condition_number(leaky_relu_gauss_newton(v, w, x, slope))
    assert answer.value == pytest.approx(kappa, rel=1e-9)
    assert answer.interval[0] > 100 * printed
    assert answer.interval[0] <= leaky_bound(v, w, x, slope).value


def test_eq_10_is_not_that_of_every_piecewise_linear_activation():
    """sigma(z) = sigma'(z) z needs straight lines through 0; hard tanh has others, too."""
    v, w, x = _draw(3, 3, 3, 5, 2)

    def apply(params, rows):
        return jnp.clip(rows @ params["v"].T, -1, 1) @ params["w"].T

    jacobian = np.asarray(references.jacobian(apply, {"v": v, "w": w}, x.T))
    lambdas = [np.diag((np.abs(unit @ x) < 1).astype(float)) for unit in v]
    equation = sum(
        np.kron(lam @ x.T @ x @ lam, np.outer(w[:, i], w[:, i]))
        + np.kron(lam @ x.T @ np.outer(v[i], v[i]) @ x @ lam, np.eye(len(w)))
        for i, lam in enumerate(lambdas)
    )
    gram = jacobian @ jacobian.T
    assert np.linalg.norm(equation - gram) > 0.1 * np.linalg.norm(gram)


def test_silent_bound_says_why():
    v, w, x = _draw(0, 5, 6, 3, 2)
    bound = leaky_bound(v, w, x, 0.0)
    assert (bound.value, bound.estimate, bound.smallest) == (None, None, 0.0)
    assert "n=5, m=3" in bound.reason
    assert leaky_bound(v, w, x, 0.5).applicable


_GOOD = _draw(0, 4, 3, 5, 2)


@pytest.mark.parametrize("call", [leaky_relu_gauss_newton, leaky_bound])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slope": -0.1}, "between 0"),
        ({"slope": 1.5}, "between 0"),
        ({"slope": np.nan}, "finite number"),
        ({"slope": "relu"}, "must be a number"),
        ({"x": _GOOD[2].T}, "transpose it if samples are rows"),
        ({"w": _GOOD[1].T}, "W has 2 columns but V has 5 rows"),
        ({"v": np.full((5, 3), np.nan)}, "V contains NaN or Inf"),
        ({"x": np.full((3, 4), np.inf)}, "X contains NaN or Inf"),
        ({"x": np.zeros((3, 0))}, "X must be a non-empty matrix"),
        ({"w": np.ones(5)}, "W must be a non-empty matrix"),
        ({"v": np.ones((5, 3), complex)}, "real numbers"),
    ],
)
def test_bad_input_is_refused(call, changes, words):
    given_ = {"v": _GOOD[0], "w": _GOOD[1], "x": _GOOD[2], "slope": 0.1} | changes
    with pytest.raises(ValueError, match=words):
        call(given_["v"], given_["w"], given_["x"], given_["slope"])


def test_a_matrix_that_would_not_fit_is_refused():
    v, w, x = np.ones((50, 2)), np.ones((100, 50)), np.ones((2, 300))
    with pytest.raises(ValueError, match="draw at most 200 samples"):
        leaky_relu_gauss_newton(v, w, x, 0.0)
