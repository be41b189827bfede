"""Figure 8's experiment: the linear CNN's Gauss-Newton matrix, its rank, rows and claims."""

import dataclasses

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import gnjax
from experiments import cnn_sweep
from experiments.shared import linear_cnn
from gnjax.models.cnn import LinearCNN
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from tests import references

_SMALL = cnn_sweep.Panel(2, (2, 3), (1, 2), 1, side=3)


def _root(length, rank, seed=0):
    return np.random.default_rng(seed).standard_normal((length, rank)) / rank**0.5


@jax.jit
def _jacobian(kernels, head, root):
    """(k r, p): reverse mode through XLA's convolutions on the columns of R."""

    def apply(params, rows):
        hidden = rows[:, None]
        for weights in params["kernels"]:
            hidden = lax.conv_general_dilated(hidden, weights, (1,), "VALID")
        return hidden.reshape(len(rows), -1) @ params["head"].T

    by_sample = references.jacobian(apply, {"kernels": kernels, "head": head}, root.T)
    shape = root.shape[1], head.shape[0], -1  # samples first
    return by_sample.reshape(shape).swapaxes(0, 1).reshape(shape[0] * shape[1], -1)


@settings(max_examples=6)
@given(
    sizes=st.sampled_from(  # length, rank, outputs, kernel, filters
        [(6, 4, 3, 2, (1,)), (7, 5, 2, 3, (2, 3)), (9, 9, 1, 2, (1, 1, 2))]
    ),
    seed=st.integers(0, 2**31 - 1),
)
def test_gauss_newton_is_the_jacobian_of_the_network(sizes, seed):
    """Any depth, Sigma of any rank; the distance is within the operator's error."""
    length, rank, outputs, kernel, filters = sizes
    root = _root(length, rank, seed)
    kernels, head = linear_cnn.initial_weights(
        length, outputs, kernel, filters, "kaiming_normal", seed, gain=1.0
    )
    op = linear_cnn.gauss_newton(kernels, head, root)
    jacobian = _jacobian(kernels, head, root)
    assert op.shape == (outputs * rank, outputs * rank)
    exact = np.linalg.svd(jacobian, compute_uv=False)
    values = gnjax.eigenvalues(op).values
    np.testing.assert_allclose(op.as_matrix(), jacobian @ jacobian.T, atol=1e-13 * exact[0] ** 2)
    np.testing.assert_allclose(values[: len(exact)], exact**2, atol=1e-13 * exact[0] ** 2)
    assert 0 < float(op.stored_error) < 1e-11 * exact[0]


def test_two_layers_are_the_librarys_linear_cnn():
    """The same weights as LinearCNN's, and the matrix of ``linear_cnn_gauss_newton``."""
    model = LinearCNN(12, 3, filters=4, kernel=5, key=jax.random.key(7), gain=2.0)
    kernels, head = linear_cnn.initial_weights(12, 3, 5, [4], "kaiming_normal", 7, gain=2.0)
    np.testing.assert_array_equal(kernels[0][:, 0], model.kernels[...])
    np.testing.assert_array_equal(head, model.head[...])
    expected = gnjax.linear_cnn_gauss_newton(model.kernels[...], model.head[...], 12)
    found = linear_cnn.gauss_newton(kernels, head, np.eye(12))
    np.testing.assert_allclose(found.as_matrix(), expected.as_matrix(), atol=1e-12)


@pytest.mark.parametrize(
    ("depth", "kernel", "filters"), [(2, 3, 1), (2, 3, 2), (3, 3, 1), (3, 2, 2), (4, 2, 1)]
)
def test_the_generic_rank_in_many_digits(depth, kernel, filters):
    """The exact Jacobian's singular values in 60 digits: those beyond the rank vanish."""
    length, outputs = 8, 2
    kernels, head = linear_cnn.initial_weights(
        length, outputs, kernel, [filters] * (depth - 1), "kaiming_normal", 1, gain=2.0
    )
    rank = cnn_sweep.generic_rank(depth, kernel, filters, length, outputs)
    with mpmath.workdps(60):
        jacobian = _exact_jacobian(kernels, head, length)
        gram = jacobian * jacobian.T
        values = sorted(mpmath.eigsy(gram, eigvals_only=True), reverse=True)
        assert values[rank - 1] > mpmath.mpf(10) ** -12 * values[0]
        assert all(abs(value) < mpmath.mpf(10) ** -50 * values[0] for value in values[rank:])
        exact = float(values[0] / values[rank - 1])
    found = gnjax.condition_number(linear_cnn.gauss_newton(kernels, head, np.eye(length)))
    assert found.rank == rank
    assert found.interval[0] <= exact * (1 + 1e-12)
    assert exact <= found.interval[1] * (1 + 1e-12)
    np.testing.assert_allclose(found.value, exact, rtol=1e-9)


def _exact_jacobian(kernels, head, length):
    """C = H T_{L-1} .. T_1 is linear in every weight: a column is C with a unit in its place."""
    weights = [np.asarray(w) for w in kernels], np.asarray(head)
    columns = []
    for layer, own in enumerate((*weights[0], weights[1])):
        for place in np.ndindex(own.shape):
            unit = np.zeros_like(own)
            unit[place] = 1.0
            chosen = [*weights[0], weights[1]]
            chosen[layer] = unit
            columns.append(_exact_map(chosen[:-1], chosen[-1], length))
    return mpmath.matrix(columns).T


def _exact_map(kernels, head, length):
    """The entries of C, in the working precision of mpmath."""
    product = mpmath.eye(length)
    for weights in kernels:
        filters, channels, size = weights.shape
        positions = length - size + 1
        matrix = mpmath.zeros(filters * positions, channels * length)
        for f, p, c, t in np.ndindex(filters, positions, channels, size):
            matrix[f * positions + p, c * length + p + t] = mpmath.mpf(float(weights[f, c, t]))
        product, length = matrix * product, positions
    return list(mpmath.matrix(head.tolist()) * product)


@pytest.mark.parametrize("method", ["zca", "pca"])
@pytest.mark.parametrize("on", ["drawn", "all"])
def test_images_are_the_covariance_of_whitened_samples(method, on):
    """R R^T is X^T X / n; whitened on the samples drawn, it is the identity on the data's range."""
    found = linear_cnn.images("digits", 200, 1, 0, method, on)
    load = gnjax.data.load("digits", samples=200 if on == "drawn" else None, seed=1)
    white = gnjax.data.whiten(load.inputs, method=method)
    drawn = dataclasses.replace(load, inputs=white.inputs)
    if on == "all":
        drawn = gnjax.data.subsample(drawn, 200, 1)
    sigma = gnjax.data.covariance(drawn.inputs)
    np.testing.assert_allclose(found.root @ found.root.T, sigma, atol=1e-10)
    assert found.root.shape[0] == (64 if method == "zca" else white.rank)
    assert f"rank {found.root.shape[1]}" in found.source
    if on == "drawn":
        eye = np.eye(found.root.shape[1])
        np.testing.assert_allclose(found.root.T @ found.root, eye, atol=1e-10)
    else:
        assert np.abs(found.root.T @ found.root - np.eye(found.root.shape[1])).max() > 0.1


def test_where_sigma_is_the_identity_the_images_do_not_matter():
    """Gaussian data of full rank in place of the images: the same kappa to 1e-8."""
    seen = linear_cnn.images("fashion_mnist_5000", 200, 0, 4, "zca", "drawn")
    noise = gnjax.data.whiten(np.random.default_rng(0).standard_normal((200, 16)), method="zca")
    roots = seen.root, np.linalg.svd(noise.inputs / 200**0.5)[2].T
    kernels, head = linear_cnn.initial_weights(16, 3, 5, [4], "kaiming_normal", 0, gain=2.0)
    kappas = [
        gnjax.condition_number(linear_cnn.gauss_newton(kernels, head, root)).value for root in roots
    ]
    np.testing.assert_allclose(kappas[0], kappas[1], rtol=1e-8)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(profile):
    edge, _ = config.load(f"configs/cnn_sweep.py:{profile}")
    frozen = config.freeze(cnn_sweep.Config, edge)
    cells = cnn_sweep.cells(frozen)
    assert len(set(cells)) == len(cells) > 0
    assert sorted(map(cnn_sweep.cost, cells), reverse=True) == list(map(cnn_sweep.cost, cells))


def _config():
    edge, _ = config.load("configs/cnn_sweep.py:smoke")
    smoke = config.freeze(cnn_sweep.Config, edge)
    return dataclasses.replace(
        smoke,
        samples=40,
        outputs=2,
        two_layers=_SMALL,
        three_layers=dataclasses.replace(_SMALL, depth=3, filters=(2,)),
        pca=dataclasses.replace(_SMALL, whitening="pca", kernels=(2,)),
        all_whitened=dataclasses.replace(_SMALL, whitened_on="all", kernels=(2,)),
    )


def test_rows_are_the_uses_of_cells_and_what_the_engine_says():
    small = _config()
    rows = cnn_sweep.rows(small)
    assert [(row.figure, row.kernel, row.filters) for row in rows] == [
        *[("8", kernel, filters) for kernel in (2, 3) for filters in (1, 2)],
        *[("8-depth-3", kernel, 2) for kernel in (2, 3)],
        *[(figure, 2, filters) for figure in ("8-pca", "8-all") for filters in (1, 2)],
    ]
    row = rows[3]
    assert (row.size, row.data_rank, row.inputs, row.rank) == (18, 9, 9, 18)
    assert row.parameters == 2 * 3 + 2 * 2 * 7
    kernels, head = linear_cnn.initial_weights(9, 2, 3, [2], "kaiming_normal", 0, gain=2.0)
    values = np.linalg.svd(_jacobian(kernels, head, np.eye(9)), compute_uv=False) ** 2
    np.testing.assert_allclose(row.kappa, values[0] / values[-1], rtol=1e-9)
    assert rows[0].rank == cnn_sweep.generic_rank(2, 2, 1, 9, 2)
    assert rows[6].kappa == pytest.approx(rows[0].kappa, rel=1e-9)  # PCA of data of full rank
    assert all("Fashion-MNIST" in source for source in cnn_sweep.sources(small))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernels": ()}, "at least 1"),
        ({"filters": (0,)}, "at least 1"),
        ({"depth": 1}, "at least 2"),
        ({"whitening": "zac"}, "zca, pca"),
        ({"whitened_on": "some"}, "drawn, all"),
    ],
)
def test_impossible_panels_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(_SMALL, **change)


def _table(kappa, figure="8", kernels=(3, 5, 7), filters=(1, 2, 4)):
    points = [(k, f, s) for k in kernels for f in filters for s in (0, 1)]
    columns = {
        "figure": np.full(len(points), figure),
        "kernel": np.array([k for k, _, _ in points]),
        "filters": np.array([f for _, f, _ in points]),
        "seed": np.array([s for _, _, s in points]),
        "kappa": np.array([kappa(k, f) * (1 + s) for k, f, s in points], float),
        "resolved": np.ones(len(points), bool),
        "depth": np.full(len(points), 2),
        "inputs": np.full(len(points), 9),
        "data_rank": np.full(len(points), 9),
        "outputs": np.full(len(points), 2),
    }
    columns["rank"] = np.array([18 if f > 1 else 2 * (10 - k) + k - 1 for k, f, _ in points])
    return columns


def _joined(*tables):
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _verdict(statement, table, figure="8"):
    claim = next(c for c in cnn_sweep.CLAIMS if c.statement.startswith(statement))
    return claim.check(table)


def test_trends_can_hold_and_fail():
    paper = _table(lambda kernel, filters: filters**2 / kernel)
    reverse = _table(lambda kernel, filters: kernel / filters**2)
    rises = _verdict("kappa increases", paper)
    assert (rises.status, rises.number) == (HOLDS, pytest.approx(2))
    falls = _verdict("kappa decreases", paper)
    assert (falls.status, falls.number) == (HOLDS, pytest.approx(-1))
    rises = _verdict("kappa increases", reverse)
    assert (rises.status, rises.number) == (FAILS, pytest.approx(-2))
    assert "it does rise nowhere" in rises.text
    falls = _verdict("kappa decreases", reverse)
    assert falls.status == FAILS
    assert "it does fall nowhere" in falls.text
    assert _verdict("beyond the paper", paper).status == NOT_TESTABLE
    deep = {**paper, "figure": np.full(len(paper["kappa"]), "8-depth-3")}
    assert _verdict("beyond the paper", deep).status == HOLDS


def test_a_trend_that_fails_says_where_it_does_hold():
    kappa = {1: 4.0, 2: 9.0, 4: 1.0}
    table = _table(lambda kernel, filters: kappa[filters] if kernel > 3 else 1 / filters)
    found = _verdict("kappa increases", table)
    assert found.status == FAILS
    assert found.text.endswith("it does rise from 1 to 2 at kernel 5, 7")
    unresolved = {**table, "resolved": table["filters"] != 2}
    assert _verdict("kappa increases", unresolved).status == NOT_TESTABLE


def test_the_ways_to_whiten_can_agree_and_disagree():
    def kappa(kernel, filters):
        return kernel / filters

    main = _table(kappa)
    same = _table(lambda k, f: 3 * kappa(k, f), "8-all")
    found = _verdict("the same trends", _joined(main, _table(kappa, "8-pca"), same))
    assert found.status == HOLDS
    assert "1 to 1 by PCA, 3 to 3 whitened on all" in found.text
    other = _table(lambda k, f: k * f, "8-all")
    found = _verdict("the same trends", _joined(main, _table(kappa, "8-pca"), other))
    assert (found.status, found.number) == (FAILS, 3)
    assert "8-all over filters at kernel 3" in found.text
    assert _verdict("the same trends", main).status == NOT_TESTABLE


def test_the_claim_of_the_rank_can_hold_and_fail():
    table = _table(lambda kernel, filters: kernel)
    assert _verdict("rank k d", table).status == HOLDS
    found = _verdict("rank k d", {**table, "rank": table["rank"] - (table["filters"] == 4)})
    assert (found.status, found.number) == (FAILS, 6)
    assert _verdict("rank k d", {**table, "data_rank": table["inputs"] - 1}).status == NOT_TESTABLE
