"""Rank bounds that zeros and widths prove, and the staircase that they lead to."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnjax import papers
from gnjax.operators.facts import rank_of
from gnjax.papers.closed_form import patterns
from gnjax.papers.closed_form.from_weights import linear_factors
from gnjax.papers.closed_form.staircase import adapt

_PRIME = 2**31 - 1


def _pruned(rng, widths, density):
    return [
        rng.standard_normal((b, a)) * (rng.random((b, a)) < density) for a, b in pairwise(widths)
    ]


def _generic_rank(product):
    """Over a large prime field: the rank for almost all values, but for a chance of 1e-8."""
    rows = [[int(x) % _PRIME for x in row] for row in product]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][column], -1, _PRIME)
        for i in range(rank + 1, len(rows)):
            share = rows[i][column] * inverse % _PRIME
            rows[i] = [(x - share * y) % _PRIME for x, y in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


def _times(a, b):
    return [
        [sum(x * y for x, y in zip(row, c, strict=True)) % _PRIME for c in zip(*b, strict=True)]
        for row in a
    ]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    widths=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    density=st.sampled_from([0.15, 0.3, 0.5, 0.8, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_counts_of_disjoint_paths_are_the_generic_ranks(widths, density, seed):
    """Another road: the rank of the product with random entries modulo a prime."""
    rng = np.random.default_rng(seed)
    masks = [w != 0 for w in _pruned(rng, widths, density)]
    starts = rng.random(widths[0]) < 0.8
    counts = patterns.path_counts([patterns.pattern(m) for m in masks], starts)
    product = np.diag(starts).astype(object).tolist()
    assert counts[0] == starts.sum()
    for mask, count in zip(masks, counts[1:], strict=True):
        entries = rng.integers(1, _PRIME, mask.shape).astype(object) * mask
        product = _times(entries.tolist(), product)
        assert count == _generic_rank(product)


def test_greedy_matchings_are_not_enough_and_a_flow_decides():
    """Three units, of which only the last leads on, and a maximum matching may end elsewhere."""
    first = np.ones((3, 1), bool)
    first[1, 0] = False
    second = np.array([[False, False, True]])
    chain = [patterns.pattern(m) for m in (first, second)]
    assert patterns.path_counts(chain, np.ones(1, bool)) == (1, 1, 1)


def test_a_graph_too_large_for_a_flow_gives_an_upper_bound(monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(100):
        widths = rng.integers(1, 8, 5)
        chain = [patterns.pattern(w) for w in _pruned(rng, widths, 0.4)]
        starts = np.ones(widths[0], bool)
        exact = patterns.path_counts(chain, starts)
        with monkeypatch.context() as limited:
            limited.setattr(patterns, "_LARGEST_FLOW", 0)
            above = patterns.path_counts(chain, starts)
        assert all(a >= e for a, e in zip(above, exact, strict=True))
        assert list(above) == sorted(above, reverse=True)


def test_a_skip_connection_is_part_of_the_pattern():
    """-beta on the diagonal cancels, and a zero there is filled."""
    w = np.diag([-0.5, 0.0, 1.0])
    np.testing.assert_array_equal(patterns.pattern(w, 0.5), np.diag([False, True, True]))
    assert patterns.pattern(np.ones((2, 3))) == (2, 3)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    widths=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    density=st.sampled_from([0.2, 0.4, 0.7, 1.0]),
    dead=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_rank_bound_is_the_rank_of_small_integer_networks(widths, density, dead, seed):
    """Never below the rank of the matrix of fractions, and equal to it for entries at random."""
    rng = np.random.default_rng(seed)
    weights = [
        (rng.integers(1, 2**20, (b, a)) * (rng.random((b, a)) < density)).astype(float)
        for a, b in pairwise(widths)
    ]
    sigma = np.diag(rng.integers(1, 5, widths[0]) * (rng.random(widths[0]) < 0.6)) if dead else None
    op = papers.linear_gauss_newton(weights, sigma)
    factors = op.factors
    assert list(factors.left_ranks) == sorted(factors.left_ranks)
    assert list(factors.right_ranks) == sorted(factors.right_ranks, reverse=True)
    assert not factors.assumed
    assert rank_of(op).value == _exact_rank(weights, sigma) <= op.shape[0]


def _exact_rank(weights, sigma):
    """The rank of [S_1 (x) T_1, .., S_L (x) T_L] modulo a prime."""
    layers = [[[int(x) for x in row] for row in w.tolist()] for w in weights]
    inputs, outputs = weights[0].shape[1], weights[-1].shape[0]
    data = np.eye(inputs) if sigma is None else sigma  # it has the range of its root
    t = [[int(x) for x in row] for row in data.tolist()]
    columns = []
    for layer in range(len(layers)):
        s = np.eye(outputs, dtype=int).tolist()
        for w in layers[:layer:-1]:
            s = _times(s, w)
        block = np.kron(np.array(s, object), np.array(t, object))
        columns.append(block)
        t = _times(t, np.array(layers[layer], object).T.tolist())
    return _generic_rank(np.concatenate(columns, axis=1).tolist())


def test_graded_layers_have_the_rank_of_their_product():
    """Each layer has numerical rank 1, and the product is the identity."""
    weights = [np.diag([1e8, 1e-8]), np.diag([1e-8, 1e8])]
    op = papers.linear_gauss_newton(weights)
    assert rank_of(op).value == 4
    assert op.factors.left_ranks == op.factors.right_ranks == (2, 2)


def test_a_pruned_chain_has_the_rank_that_its_zeros_leave():
    """W_1 and W_2 have rank 3 both, and one path runs through both of them."""
    first = np.zeros((6, 3))
    first[[0, 1, 2], [0, 1, 2]] = [2.0, 3.0, 5.0]
    second = np.zeros((3, 6))
    second[[0, 1, 2], [2, 3, 4]] = [7.0, 11.0, 13.0]
    op = papers.linear_gauss_newton([first, second, np.eye(3)])
    assert op.factors.right_ranks == (3, 3, 1)
    values = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    assert rank_of(op).value == (values > 0).sum()


@pytest.mark.parametrize("seed", range(30))
def test_directions_that_zeros_cut_off_are_left_out_exactly(seed):
    """Outputs and inputs that are dead from some layer on: nothing is rotated, nothing is lost."""
    rng = np.random.default_rng(seed)
    k, d, m, depth = 4, 5, 12, 4
    weights = [rng.standard_normal((b, a)) for a, b in pairwise((d, *[m] * (depth - 1), k))]
    weights[-1][rng.random(k) < 0.5] = 0
    weights[0][:, rng.random(d) < 0.5] = 0
    op = papers.linear_gauss_newton(weights)
    stairs = adapt(op.factors)
    assert stairs.left_rounding == stairs.right_rounding == 0
    assert not stairs.left_distances.any()
    assert not stairs.right_distances.any()
    small = op.on_range()
    assert small.shape[0] == rank_of(op).value
    if not small.shape[0]:
        return
    packed = np.linalg.eigvalsh(np.asarray(small.as_matrix()))
    full = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[-len(packed) :]
    np.testing.assert_allclose(packed, full, rtol=1e-12, atol=1e-13 * full[-1])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    widths=st.lists(st.integers(1, 6), min_size=3, max_size=6),
    density=st.sampled_from([0.3, 0.6, 1.0]),
    decades=st.sampled_from([0, 4, 12]),
    deficient=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_staircase_keeps_the_spectrum_within_its_error(
    widths, density, decades, deficient, seed
):
    """Graded, pruned and numerically deficient chains: the range never leaves the staircase."""
    rng = np.random.default_rng(seed)
    weights = [
        (10.0 ** rng.uniform(-decades, decades, (b, 1)))
        * rng.standard_normal((b, a))
        * (10.0 ** rng.uniform(-decades, decades, a))
        * (rng.random((b, a)) < density)
        for a, b in pairwise(widths)
    ]
    if deficient:
        weights[1] = np.outer(weights[1][:, 0] + 1, weights[1][0] + 1)
    factors = linear_factors(weights)
    stairs = adapt(factors)
    for rows, bound in zip(stairs.lefts, factors.left_ranks, strict=True):
        assert len(rows) == bound
    for kept, given_, moved in (
        (stairs.lefts, factors.lefts, stairs.left_distances),
        (stairs.rights, factors.rights, stairs.right_distances),
    ):
        for rows, whole, lost in zip(kept, given_, moved, strict=True):
            size = np.linalg.norm(whole)
            assert lost <= 1e-14 * max(size, 1e-300) * 10
            ours, theirs = (np.linalg.svd(m, compute_uv=False) for m in (rows, np.asarray(whole)))
            shared = min(len(ours), len(theirs))
            np.testing.assert_allclose(ours[:shared], theirs[:shared], atol=1e-13 * size)
    op = papers.linear_gauss_newton(weights)
    small = op.on_range()
    if not small.shape[0]:
        return
    packed = np.linalg.eigvalsh(np.asarray(small.as_matrix()))
    full = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[-len(packed) :]
    error = small.error(0.0).value - float(op.stored_error)
    lapack = 1e-14 * full[-1]
    assert (np.abs(packed - full) <= error + lapack).all()


def test_a_nearly_dependent_layer_needs_the_shares_of_all_factors():
    """W_3 = [a, a + 2^-33 b] has b to 6 digits only, and S_1 = W_3 W_2 = b has all of them."""
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, -1.0, 5.0])
    last = np.stack([a, a + 2.0**-33 * b], axis=1)
    factors = linear_factors([np.ones((1, 2)), 2.0**33 * np.array([[-1.0], [1.0]]), last])
    np.testing.assert_array_equal(factors.lefts[0][:, 0], b)
    stairs = adapt(factors)
    assert factors.left_ranks == (1, 2, 3)
    assert stairs.left_distances[0] <= 1e-14 * np.linalg.norm(b)


@pytest.mark.parametrize("inputs", [4, 12])
def test_a_rank_of_sigma_that_is_read_off_is_recorded(inputs):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((inputs - 2, inputs))
    weights = [rng.standard_normal((inputs + 3, inputs)), rng.standard_normal((2, inputs + 3))]
    deficient = linear_factors(weights, x.T @ x)
    assert deficient.assumed
    assert deficient.right_ranks == (inputs - 2, inputs - 2)
    x = rng.standard_normal((3 * inputs, inputs))
    assert not linear_factors(weights, x.T @ x).assumed
    x[:, [0, 2]] = 0  # two inputs that are never on are no assumption
    dead = linear_factors(weights, x.T @ x)
    assert not dead.assumed
    assert dead.right_ranks == (inputs - 2, inputs - 2)
    assert not np.asarray(dead.rights[0])[[0, 2]].any()


def test_small_variances_in_principal_axes_are_kept():
    """A diagonal Sigma has its eigenvalues given: 1e-30 is not rounding."""
    factors = linear_factors([np.ones((1, 3))], np.diag([1.0, 1e-30, 0.0]))
    assert factors.right_ranks == (2,)
    assert not factors.assumed
    np.testing.assert_allclose(np.diagonal(factors.rights[0]), [1.0, 1e-15, 0.0], rtol=1e-15)
    assert linear_factors([np.ones((1, 2))], np.diag([1.0, -1e-12])).assumed


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("skip", [0.1, 0.25])
def test_a_zero_of_a_layer_with_its_skip_is_an_exact_one(dtype, skip):
    """-0.1 in float32 is not -0.1, and -0.25 is: the rank is that of the numbers as they are."""
    weights = [np.diag([-skip, 1.0, 2.0]).astype(dtype)] * 3
    wide = [w.astype(np.float64) for w in weights]
    facts = [papers.linear_gauss_newton(w, skip=skip).facts().rank() for w in (weights, wide)]
    zero = float(weights[0][0, 0]) == -skip
    assert facts[0].value == facts[1].value == (8 if zero else 9)
