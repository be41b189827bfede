"""Paper B's equations beside autodiff, and each statement of its text that needs correcting."""

import math
from fractions import Fraction
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import gnjax
from gnjax.papers import balanced
from tests import references

SIGMA = 1.7  # sigma_x of most tests: a power of it in the wrong place shows


def apply(weights, x):
    for weight in weights:
        x = x @ weight.T
    return x


def white(samples, inputs, sigma_x, seed):
    drawn = np.random.default_rng(seed).standard_normal((samples, inputs))
    return gnjax.data.orthogonalise(drawn, sigma_x)


def normal(seed, widths):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((b, a)) / a**0.5 for a, b in pairwise(widths)]


def sampled(key, widths, values):
    """Balanced weights in host memory."""
    return [np.asarray(w) for w in balanced.sample(key, widths, values)]


def dense(operator):
    return np.asarray(operator.as_matrix())


def network_matrices(weights, x, y):
    """(G, H), both (p, p), by the library's autodiff."""
    model = (apply, jax.device_put(weights))
    return dense(gnjax.gauss_newton(model, x, side="parameters")), dense(gnjax.hessian(model, x, y))


def largest_first(matrix):
    return np.linalg.eigvalsh(matrix)[::-1]


def same_nonzero(found, expected, scale):
    """Equal but for zeros at the end, within 1e-10 of the largest."""
    size = max(len(found), len(expected))
    pad = [np.pad(values, (0, size - len(values))) for values in (found, expected)]
    assert_allclose(np.sort(pad[0]), np.sort(pad[1]), rtol=0, atol=1e-10 * scale)


# Autodiff compiles for each shape, so what it checks is drawn from a few: a single layer, a bottle
# neck, a wide layer, a single input and output. What numpy checks has any widths.
COMPILED = st.sampled_from([(4, 3), (3, 5, 2), (5, 1, 4), (4, 5, 2, 3), (1, 3, 4, 2, 1)])
ANY = st.lists(st.integers(1, 5), min_size=2, max_size=6).map(tuple)


@st.composite
def balanced_nets(draw, nets=ANY):
    """Widths, and singular values of any rank: some equal, some nearly, some 0."""
    widths = draw(nets)
    rank = draw(st.integers(1, min(widths)))
    first = draw(st.floats(0.3, 1.5))
    others = st.sampled_from([first, first * (1 + 1e-9), 0.0, 0.7, 1.3])
    values = [first, *draw(st.lists(others, min_size=rank - 1, max_size=rank - 1))]
    return widths, np.array(values)


# Eqs 8, 9: balanced networks --------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(balanced_nets(COMPILED), st.integers(0, 99))
def test_eq_9_is_the_spectrum_of_the_gauss_newton_matrix_and_of_the_hessian(net, seed):
    widths, values = net
    depth, inputs, outputs = len(widths) - 1, widths[0], widths[-1]
    weights = sampled(jax.random.key(seed), widths, values)
    x = white(inputs + 3, inputs, SIGMA, seed)
    g, h = network_matrices(weights, x, apply(weights, x))  # labels that are fitted
    found = balanced.eigenvalues(values, depth, SIGMA, inputs, outputs)
    assert len(found) == inputs * outputs
    for matrix in (g, h):
        same_nonzero(largest_first(matrix), found, found[0])


@settings(max_examples=15)
@given(balanced_nets(), st.integers(0, 9))
def test_the_three_steps_give_balanced_weights_of_any_widths(net, seed):
    widths, values = net
    weights = sampled(jax.random.key(seed), widths, values)
    assert [w.shape for w in weights] == [(b, a) for a, b in pairwise(widths)]
    for before, after in pairwise(weights):
        assert_allclose(before @ before.T, after.T @ after, atol=1e-13)
    kept = np.sort(values)[::-1]
    for weight in weights:
        assert_allclose(np.linalg.svd(weight)[1][: len(kept)], kept, atol=1e-13)


def test_left_singular_vectors_of_a_layer_are_the_right_ones_of_the_next():
    """Section 3 prints it the other way round, against step 3 of its own Appendix C."""
    first, second = sampled(jax.random.key(0), (4, 4, 4), np.array([2.0, 1.0, 0.5]))
    (left, _, right), (next_left, _, next_right) = map(np.linalg.svd, (first, second))
    aligned = np.abs(np.diag(left.T @ next_right.T))[:3]
    assert_allclose(aligned, 1.0, rtol=1e-10)
    as_printed = np.abs(np.diag(right @ next_left))[:3]
    assert as_printed.max() < 0.95


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15, 0.0])
def test_eq_9_keeps_its_digits_where_two_singular_values_meet(gap):
    """The quotient of 9b is the oracle far apart, L sigma^{2(L-1)} at the limit."""
    depth, a, b = 6, 0.8, 0.8 * (1 + gap)
    pair = balanced.eigenvalues([a, b], depth)[1:3]  # the two mixed pairs of four
    limit = depth * a ** (2 * (depth - 1))
    assert_allclose(pair, limit, rtol=6 * gap + 1e-14)
    if gap >= 1e-3:
        assert_allclose(pair, (b ** (2 * depth) - a ** (2 * depth)) / (b**2 - a**2), rtol=1e-12)
    quotient = (b ** (2 * depth) - a ** (2 * depth)) / (b**2 - a**2) if 0 < gap < 1e-14 else limit
    assert gap != 1e-15 or abs(quotient / limit - 1) > 1e-3  # what 9b would have returned


def test_the_second_branch_of_eq_9b_is_not_a_square_times_l_minus_1():
    """Printed as L sigma^2(L-1); the exponent is 2 (L-1)."""
    (value,) = balanced.eigenvalues([0.5], 4)
    assert value == pytest.approx(4 * 0.5**6)
    assert value != pytest.approx(4 * 0.5**2 * 3)


@settings(max_examples=15)
@given(balanced_nets(), st.integers(0, 9))
def test_the_number_of_nonzero_eigenvalues_is_r_times_d0_plus_dl_minus_r(net, seed):
    widths, values = net
    depth, inputs, outputs = len(widths) - 1, widths[0], widths[-1]
    found = balanced.eigenvalues(values, depth, 1.0, inputs, outputs)
    rank = np.count_nonzero(values)
    expected = rank * (inputs + outputs - rank) if depth > 1 else inputs * outputs
    assert np.count_nonzero(found) == expected
    weights = sampled(jax.random.key(seed), widths, values)
    gram = references.linear_gauss_newton(weights)
    assert np.linalg.matrix_rank(gram, tol=1e-11 * found[0]) == expected


def test_the_paper_counts_only_r_squared_of_them():
    found = balanced.eigenvalues([1.0, 0.5], 3, 1.0, 7, 4)
    assert np.count_nonzero(found) == 18
    assert np.count_nonzero(balanced.eigenvalues([1.0, 0.5], 3)) == 4  # r^2


def test_one_layer_has_sigma_x_squared_everywhere():
    assert_allclose(balanced.eigenvalues([0.5, 0.0], 1, 3.0, 4, 2), np.full(8, 9.0))


# Eqs 4, 6, 7: any weights -----------------------------------------------------------------------


@settings(max_examples=25)
@given(COMPILED, st.integers(0, 99))
def test_eq_7_is_the_trace_of_the_full_hessian_anywhere_on_raw_inputs(widths, seed):
    rng = np.random.default_rng(seed)
    n = widths[0] + 3
    x, y = rng.standard_normal((n, widths[0])), 3 * rng.standard_normal((n, widths[-1]))
    weights = normal(seed, widths)
    for matrix in network_matrices(weights, x, y):
        found = balanced.trace(weights, covariance=x.T @ x / n)
        assert_allclose(found, np.trace(matrix), rtol=1e-10)
    for matrix in network_matrices(weights, gnjax.data.orthogonalise(x, SIGMA), y):
        assert_allclose(balanced.trace(weights, SIGMA), np.trace(matrix), rtol=1e-10)


def test_the_hessian_differs_from_its_gauss_newton_part_where_eq_7_holds():
    """Otherwise the test above would not be about the Hessian."""
    x = np.random.default_rng(0).standard_normal((6, 3))
    g, h = network_matrices(normal(0, (3, 5, 2)), x, np.ones((6, 2)))
    assert np.abs(h - g).max() > 0.1


@settings(max_examples=10)
@given(ANY, st.integers(0, 99))
def test_eq_6_bounds_the_sharpness_on_raw_inputs(widths, seed):
    x = np.random.default_rng(seed).standard_normal((4, widths[0]))
    weights = normal(seed, widths)
    gram = references.linear_gauss_newton(weights, x.T @ x / 4)
    bound = balanced.bound(weights, covariance=x.T @ x / 4)
    assert largest_first(gram)[0] <= bound * (1 + 1e-10)


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=6))
def test_eq_6_is_rounded_up(entries):
    """For layers of one entry w_l, where Eq 6 is an equality: prod w^2 sum_l w_l^-2, exactly."""
    squares = [Fraction(w) ** 2 for w in entries]
    exact = sum(math.prod(squares) / square for square in squares) * Fraction(SIGMA) ** 2
    found = Fraction(balanced.bound([np.array([[w]]) for w in entries], SIGMA))
    assert exact <= found <= exact * (1 + Fraction(2) ** -30)


def test_eq_6_is_an_equality_for_balanced_weights_and_not_in_general():
    key = jax.random.key(3)
    values = np.array([0.9, 0.6])
    weights = sampled(key, (5, 4, 3), values)
    top = balanced.eigenvalues(values, 2, SIGMA, 5, 3)[0]
    assert top <= balanced.bound(weights, SIGMA) <= top * (1 + 2.0**-36)  # rounded up
    weights = normal(0, (5, 4, 4, 3))
    top = SIGMA**2 * largest_first(references.linear_gauss_newton(weights))[0]
    assert balanced.bound(weights, SIGMA) > 1.01 * top


def test_eq_4_holds_with_partial_products_that_leave_the_data_out():
    """J_l = (P_l X)^T (x) S_l for vec stacking columns; the printed P_l contains X already."""
    weights = normal(1, (4, 3, 5, 2))
    x = np.random.default_rng(1).standard_normal((6, 4))
    jacobian = references.jacobian(apply, weights, x)
    sizes = np.cumsum([w.size for w in weights])[:-1]
    before = [np.eye(4), weights[0], weights[1] @ weights[0]]  # P_l
    after = [weights[2] @ weights[1], weights[2], np.eye(2)]  # S_l
    blocks = np.split(np.asarray(jacobian), sizes, axis=1)
    for block, weight, p, s in zip(blocks, weights, before, after, strict=True):
        columns = block.reshape(-1, *weight.shape).swapaxes(1, 2).reshape(block.shape)
        assert_allclose(columns, np.kron((p @ x.T).T, s), atol=1e-12)


# Eqs 10, 11, 15, 16: two layers -----------------------------------------------------------------


@settings(max_examples=20)
@given(st.sampled_from([(3, 5, 2), (5, 1, 4), (2, 4, 6), (6, 4, 3)]), st.integers(0, 99))
def test_eq_15_and_16_for_two_layers_of_any_widths(widths, seed):
    inputs, hidden, outputs = widths
    weights = normal(seed, widths)
    x = white(inputs + 3, inputs, SIGMA, seed)
    model = (apply, jax.device_put(weights))
    gram = dense(gnjax.gauss_newton(model, x, side="outputs"))
    pairs = balanced.shallow(*weights, SIGMA)
    same_nonzero(largest_first(gram), pairs.values, pairs.values[0])
    vectors = pairs.vectors(x)
    assert_allclose(vectors.T @ vectors, np.eye(inputs * outputs), atol=1e-12)
    assert_allclose(gram @ vectors, vectors * pairs.values[None, :], atol=1e-10 * pairs.values[0])
    zero = (inputs - min(inputs, hidden)) * (outputs - min(hidden, outputs))
    kept = np.count_nonzero(pairs.values > 1e-12 * pairs.values[0])
    assert kept == inputs * outputs - zero


@settings(max_examples=25)
@given(st.tuples(*[st.integers(1, 6)] * 3), st.integers(0, 99))
def test_eq_10_and_11_follow_from_eq_15_with_its_zeros(widths, seed):
    w1, w2 = normal(seed, widths)
    values = balanced.shallow(w1, w2, SIGMA).values
    norms = [np.linalg.norm(w, 2) ** 2 for w in (w1, w2)]
    assert values[0] == pytest.approx(SIGMA**2 * sum(norms), rel=1e-12)
    total = SIGMA**2 * (widths[2] * (w1**2).sum() + widths[0] * (w2**2).sum())
    assert values.sum() == pytest.approx(total, rel=1e-12)
    assert balanced.trace([w1, w2], SIGMA) == pytest.approx(total, rel=1e-12)


def test_the_sharpness_of_two_layers_is_a_sum_and_no_maximum_of_norms():
    """Eq 10 against the maximum of both norms, of Singh et al.: the whole matrix decides."""
    weights = normal(4, (4, 6, 3))
    x = white(9, 4, SIGMA, 4)
    g, _ = network_matrices(weights, x, np.zeros((9, 3)))
    squares = SIGMA**2 * np.array([np.linalg.norm(w, 2) ** 2 for w in weights])
    assert largest_first(g)[0] == pytest.approx(squares.sum(), rel=1e-10)
    assert squares.max() < 0.8 * squares.sum()


def test_balanced_layers_remain_balanced_to_the_order_of_the_step():
    """Exactly so under gradient flow: half the step leaves half the drift after the same time."""
    target = np.random.default_rng(5).standard_normal((3, 4))
    drifts = []
    for steps in (400, 800):
        first, last = sampled(jax.random.key(5), (4, 3, 3), np.array([0.9, 0.6, 0.3]))
        for _ in range(steps):
            residual = last @ first - target  # of whitened inputs
            moves = last.T @ residual, residual @ first.T
            first, last = first - moves[0] / steps, last - moves[1] / steps
        drifts.append(np.linalg.norm(first @ first.T - last.T @ last))
    assert drifts[0] < 0.02 * np.linalg.norm(first @ first.T)
    assert drifts[1] == pytest.approx(drifts[0] / 2, rel=0.05)


def test_the_printed_ranges_of_eq_15_contradict_eq_11():
    """Pairs of singular values of both layers alone miss those where one of them is 0."""
    w1, w2 = normal(0, (6, 3, 4))
    squares = [np.linalg.svd(w, compute_uv=False) ** 2 for w in (w1, w2)]
    printed = (squares[0][:, None] + squares[1][None, :]).sum()
    assert printed < 0.8 * balanced.trace([w1, w2])


@settings(max_examples=20)
@given(st.sampled_from([(3, 5, 2), (5, 1, 4)]), st.integers(0, 99))
def test_no_eigenvalue_is_further_from_eq_15_than_the_gap(widths, seed):
    """H - G has plus and minus the singular values of B - W_2 W_1 C, once for a hidden unit."""
    weights = normal(seed, widths)
    x = white(widths[0] + 3, widths[0], SIGMA, seed)
    y = np.random.default_rng(seed).standard_normal((len(x), widths[2]))
    g, h = network_matrices(weights, x, y)
    covariance, cross = x.T @ x / len(x), y.T @ x / len(x)
    residual = np.linalg.svd(cross - weights[1] @ weights[0] @ covariance, compute_uv=False)
    signed = np.concatenate([residual, -residual])
    expected = np.tile(signed[signed != 0], widths[1])
    found = np.linalg.eigvalsh(h - g)
    same_nonzero(found[np.argsort(-np.abs(found))[: len(expected)]], expected, residual[0])
    gap = balanced.shallow_gap(*weights, covariance, cross)
    assert gap == pytest.approx(np.linalg.norm(h - g, 2), rel=1e-10)
    pairs = balanced.shallow(*weights, SIGMA).values[: len(h)]
    apart = largest_first(h) - np.pad(pairs, (0, len(h) - len(pairs)))
    assert np.abs(apart).max() <= gap * (1 + 1e-10)


# Eqs 12-14: from labels -------------------------------------------------------------------------


def one_hot(shares, samples, inputs, sigma_x, seed):
    """Whitened inputs and labels of given shares, which they cannot fit for n > d."""
    counts = np.round(np.array(shares) * samples).astype(int)
    labels = np.repeat(np.arange(len(shares)), counts)
    x = white(len(labels), inputs, sigma_x, seed)
    return x, gnjax.data.one_hot(labels, len(shares))


def balanced_factors(target, widths):
    """W_1 .. W_L, balanced, with the given product."""
    lefts, values, rights = np.linalg.svd(target, full_matrices=False)
    rank, depth = len(values), len(widths) - 1
    root = values ** (1 / depth)
    bases = [rights.T, *(np.eye(width, rank) for width in widths[1:-1]), lefts]
    return [(after * root[None, :]) @ before.T for before, after in pairwise(bases)]


def gauge(weights, seed, strength):
    """Another point with the same product: W_{l+1} A^{-1}, A W_l between layers."""
    moved = [np.array(w) for w in weights]
    rng = np.random.default_rng(seed)
    for layer in range(len(moved) - 1):
        size = moved[layer].shape[0]
        change = np.eye(size) + strength * rng.standard_normal((size, size)) / size**0.5
        moved[layer] = change @ moved[layer]
        moved[layer + 1] = moved[layer + 1] @ np.linalg.inv(change)
    return moved


@settings(max_examples=20)
@given(st.sampled_from([(4, 3), (4, 3, 3), (4, 5, 6, 3)]), st.integers(0, 99))
def test_eqs_12_to_14_at_a_balanced_minimum_of_labels_that_cannot_be_fitted(widths, seed):
    depth = len(widths) - 1
    x, y = one_hot([0.5, 0.3, 0.2], 40, 4, SIGMA, seed)
    target = balanced.minimiser(x, y, SIGMA)
    assert_allclose(target, np.linalg.lstsq(x, y, rcond=None)[0].T, atol=1e-12)
    weights = balanced_factors(target, widths)
    assert np.abs(apply(weights, x) - y).max() > 0.1
    g, h = network_matrices(weights, x, y)
    assert_allclose(h, g, atol=1e-10 * np.abs(g).max())  # the loss is not near zero, and H = G
    values = balanced.layer_singular_values(x, y, depth, SIGMA)
    expected = balanced.eigenvalues(values, depth, SIGMA, 4, 3)
    same_nonzero(largest_first(h), expected, expected[0])
    least = balanced.least_sharpness(x, y, depth, SIGMA)
    assert largest_first(h)[0] == pytest.approx(least, rel=1e-10)


def test_eq_12_needs_layers_that_are_no_bottleneck():
    """One hidden unit: the minimum over rank one is Eckart and Young's, and not Eq 12's map."""
    x, y = one_hot([0.5, 0.3, 0.2], 40, 4, SIGMA, 0)
    target = balanced.minimiser(x, y, SIGMA)
    u, values, v = np.linalg.svd(target)
    best = values[0] * np.outer(u[:, 0], v[0])
    missed = ((x @ best.T - y) ** 2).sum() - ((x @ target.T - y) ** 2).sum()
    assert missed == pytest.approx(len(x) * SIGMA**2 * (values[1:] ** 2).sum()) != 0
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((3, 1)), rng.standard_normal((1, 4))
    for _ in range(50):  # alternating least squares comes to the least loss of rank one
        w = np.linalg.lstsq(x @ v.T, y, rcond=None)[0].T
        v = np.linalg.lstsq(w, np.linalg.lstsq(x, y, rcond=None)[0].T, rcond=None)[0]
    assert_allclose(w @ v, best, atol=1e-6)


def test_eq_13_and_14_as_printed_hold_for_labels_that_are_fitted():
    weights = sampled(jax.random.key(0), (5, 4, 6, 3), np.array([0.9, 0.5, 0.2]))
    x = white(12, 5, SIGMA, 0)
    y = apply(weights, x)
    for fitted in (True, False):
        values = balanced.layer_singular_values(x, y, 3, SIGMA, fitted=fitted)
        assert_allclose(values, [0.9, 0.5, 0.2], rtol=1e-12)
    n, top = len(x), np.linalg.norm(y, 2)
    second_form = 3 * SIGMA ** (2 / 3) / n ** (2 / 3) * top ** (4 / 3)
    for predicted in (balanced.printed_sharpness, balanced.least_sharpness):
        assert predicted(x, y, 3, SIGMA) == pytest.approx(second_form, rel=1e-12)
    assert balanced.eigenvalues([0.9, 0.5, 0.2], 3, SIGMA, 5, 3)[0] == pytest.approx(second_form)


@settings(max_examples=25)
@given(st.integers(2, 4), st.floats(0.0, 0.7), st.integers(0, 999))
def test_no_global_minimum_is_flatter_than_the_balanced_one(depth, strength, seed):
    x, y = one_hot([0.6, 0.3, 0.1], 30, 4, SIGMA, seed)
    weights = balanced_factors(balanced.minimiser(x, y, SIGMA), (4, *[5] * (depth - 1), 3))
    moved = gauge(weights, seed, strength)
    sharpness = SIGMA**2 * largest_first(references.linear_gauss_newton(moved))[0]
    least = balanced.least_sharpness(x, y, depth, SIGMA)
    assert sharpness >= least * (1 - 1e-10)
    if strength > 0.1:
        assert sharpness > least * (1 + 1e-6)


@given(st.integers(1, 5), st.integers(0, 99))
def test_the_printed_prediction_is_above_the_projected_one(depth, seed):
    x, y = one_hot([0.6, 0.3, 0.1], 30, 4, SIGMA, seed)
    printed = balanced.printed_sharpness(x, y, depth, SIGMA)
    least = balanced.least_sharpness(x, y, depth, SIGMA)
    assert printed >= least if depth == 1 else printed > least * (1 + 1e-6)
    share = y.mean(axis=0).max()
    expected = depth * SIGMA**2 * (share / SIGMA**2) ** (1 - 1 / depth)
    assert printed == pytest.approx(expected, rel=1e-12)


def test_sharpness_is_not_independent_of_n_on_real_data():
    """Eq 14 as printed is; the projected form falls with n at one share of the largest class."""
    whole = gnjax.data.load("fashion_mnist_5000")
    found = {}
    for samples in (300, 600, 1500):
        part = gnjax.data.class_imbalance(whole, samples, 0.3, seed=0).dataset
        x = gnjax.data.orthogonalise(gnjax.data.downsample(part.inputs, part.shape, (14, 14)))
        y = gnjax.data.one_hot(part.labels, 10)
        found[samples] = (
            balanced.least_sharpness(x, y, 4),
            balanced.printed_sharpness(x, y, 4),
        )
    (a, printed), (b, _), (c, last) = found.values()
    assert a > 1.05 * b > 1.05**2 * c
    assert last == pytest.approx(printed, rel=0.02)  # the realised share differs by rounding


@given(st.floats(0.05, 1.4), st.floats(1.0, 12.0))
def test_sharpness_grows_with_depth_only_above_the_line(norm, depth):
    """Eq 14 grows with L where L > -2 log(norm), by the sign of its derivative."""
    line = -2 * np.log(norm)
    slope = balanced.sharpness(norm, depth + 1e-4) - balanced.sharpness(norm, depth)
    if abs(depth - line) > 1e-2:
        assert (slope > 0) == (depth > line)


def test_sharpness_takes_the_grid_of_a_contour():
    norms, depths = np.linspace(0, 1.5, 4)[None, :], np.arange(1, 4)[:, None]
    grid = balanced.sharpness(norms, depths, SIGMA)
    for row, depth in zip(grid, (1, 2, 3), strict=True):
        each = [balanced.eigenvalues([n ** (1 / depth)], depth, SIGMA)[0] for n in norms[0]]
        assert_allclose(row, each, rtol=1e-13)


# Mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: balanced.eigenvalues([-1.0], 2), "non-negative"),
        (lambda: balanced.eigenvalues([], 2), "list of finite"),
        (lambda: balanced.eigenvalues([1.0], 0), "at least 1"),
        (lambda: balanced.eigenvalues([1.0], 2.5), "integer"),
        (lambda: balanced.eigenvalues([1.0], 2, 0.0), "must be positive"),
        (lambda: balanced.eigenvalues([1.0, 0.5], 2, 1.0, 1, 3), "more than inputs=1"),
        (lambda: balanced.trace([np.eye(2)], 2.0, covariance=np.eye(2)), "the covariance alone"),
        (lambda: balanced.trace([np.eye(2), np.eye(3)]), "W2 has 3 columns"),
        (lambda: balanced.least_sharpness(np.ones((3, 2)), np.ones((3, 1)), 2), "orthogonalise"),
        (lambda: balanced.minimiser(np.eye(2) * 2**0.5, np.ones((3, 1))), "y has 3 rows"),
        (lambda: balanced.sharpness(-1.0, 2), "must not be negative"),
        (lambda: balanced.shallow_gap(np.eye(2), np.eye(2), np.eye(2), np.ones((1, 2))), "x / n"),
    ],
)
def test_mistakes_say_what_came(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_singular_values_that_are_zero_do_not_count_against_the_width():
    found = balanced.eigenvalues([0.0, 0.5, 0.0], 2, 1.0, 1, 2)
    assert_allclose(found, [0.5, 0.25])
