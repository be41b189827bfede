"""Figure 8's experiment: its networks by another road, and its claims on made-up tables."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame, concat

import gnjax
from experiments import cnn_sweep
from experiments.claims.cnn_sweep import CLAIMS, EXACT, HALF, WHITENED
from experiments.shared import line_cnn, linear_cnn
from gnjax import papers
from sweeps import command_line
from sweeps.claims import (
    AS_COMPUTED,
    AS_PRINTED,
    CERTIFIED,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    UNDECIDED,
)
from sweeps.config import ConfigError
from tests.references import pseudo_condition


def _config(*overrides):
    return command_line.load("configs/cnn_sweep.py:smoke", overrides)[0]


# One dimension ----------------------------------------------------------------------------------


def _line(seed, length, size, filters, samples):
    first, second = line_cnn.matrices(length, size, filters, 1.0, seed)
    x = np.random.default_rng(seed).standard_normal((samples, length)) * np.geomspace(1, 9, length)
    x[:, 0] = 0  # a black pixel
    return first, second, x


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    size=st.sampled_from([2, 3]),
    filters=st.sampled_from([1, 2, 3]),
    half=st.booleans(),
)
def test_the_blocks_of_sigma_have_the_ends_of_the_whole_matrix(seed, size, filters, half):
    """kappa of the whole Kronecker formula, (Q F d)^2, with either root, at its rank."""
    first, second, x = _line(seed, 7, size, filters, 12)
    sigma = x.T @ x / len(x)
    values, axes = np.linalg.eigh(sigma)
    root = sigma / 2 if half else axes * np.sqrt(np.maximum(values, 0)) @ axes.T
    whole = np.kron(second @ second.T, sigma)
    whole += np.kron(np.eye(len(second)), root @ first.T @ first @ root)
    found = line_cnn.conditioning(first, second, line_cnn.covariance_of(x), half=half)
    expected = pseudo_condition(whole, rtol=1e-13)
    assert found["kappa"] == pytest.approx(expected, rel=1e-7)
    assert found["kappa_low"] <= expected * (1 + 1e-7)
    assert expected <= found["kappa_high"] * (1 + 1e-7)
    assert found["rank"] == np.linalg.matrix_rank(whole, tol=1e-13 * np.linalg.norm(whole, 2))
    if not half:
        # With F = 1 they are one number: T_1 has fewer rows than columns then.
        assert found["kappa_low"] <= found["bound"] <= found["bound_published"] * (1 + 1e-9)


def test_with_the_right_root_it_is_the_gauss_newton_matrix_of_two_linear_layers():
    first, second, x = _line(0, 7, 3, 2, 12)
    found = line_cnn.conditioning(first, second, line_cnn.covariance_of(x), half=False)
    op = papers.linear_gauss_newton([first, second], x.T @ x / len(x))
    kappa = gnjax.condition_number(op, rtol=1e-6)
    assert found["kappa"] == pytest.approx(kappa.value, rel=1e-5)
    assert found["rank"] == kappa.rank


def test_matrices_are_the_convolutions_of_jax():
    """T_1 and T_2 of kernels (F, 1, K) and (F, F, K), stride 1 and no padding."""
    first, second = line_cnn.matrices(9, 3, 2, 1.0, 0)
    assert (first.shape, second.shape) == ((2 * 7, 9), (2 * 5, 2 * 7))
    for matrix, length in ((first, 9), (second, 7)):
        rows = matrix.reshape(2, -1, matrix.shape[1] // length, length)
        for filt in rows:
            for place, row in enumerate(filt):
                np.testing.assert_array_equal(row[:, place : place + 3], filt[0][:, :3])
                assert not np.delete(row, slice(place, place + 3), axis=1).any()
    many = np.concatenate([line_cnn.matrices(9, 3, 2, 1.0, s)[1].ravel() for s in range(300)])
    assert np.var(many[many != 0]) * 2 * 3 == pytest.approx(1.0, rel=0.1)  # 1 / (F K)


def test_a_cell_on_a_line_has_three_rows_of_one_network():
    rows = cnn_sweep.measure(
        **{"data": "fashion_mnist_5000", "samples": 200, "data_seed": 0, "kind": "line", "side": 6},
        **{"kernel": 7, "filters": 2, "seed": 3, "gain": 1.0, "outputs": 4, "rtol": 1e-3},
    )
    assert [row["protocol"] for row in rows] == [EXACT, HALF, WHITENED]
    images = gnjax.data.load("fashion_mnist_5000").inputs[:200].reshape(200, 28, 28)
    x = images[:, ::5, ::5].reshape(200, 36)
    values = np.linalg.eigvalsh(x.T @ x / 200)
    rank = np.linalg.matrix_rank(x)
    assert [row["data_rank"] for row in rows] == [rank, rank, 36]
    assert rows[0]["covariance_condition"] == pytest.approx(values[-1] / values[-rank], rel=1e-6)
    assert rows[2]["covariance_condition"] == pytest.approx(1, rel=1e-9)
    assert {row["outputs"] for row in rows} == {2 * (38 - 14)}


# Two dimensions ---------------------------------------------------------------------------------

SMALL = {"data": "fashion_mnist_5000", "samples": 60, "data_seed": 0, "outputs": 2, "gain": 1.0}
SMALL |= {"rtol": 1e-3, "seed": 1}


def test_rows_are_what_the_matrices_say():
    sizes = {"side": 8, "kernel": 2, "frame": 0}
    (row,) = cnn_sweep.measure(**SMALL, **sizes, kind="convolutions", filters=1, channels=1)
    assert (row["inputs"], row["data_rank"], row["parameters"]) == (64, 60, 4 + 4)
    (row,) = cnn_sweep.measure(**SMALL, **sizes, kind="convolutions", filters=2, channels=2)
    assert row["parameters"] == 2 * 4 + 2 * 2 * 4
    framed = {**sizes, "frame": 1}
    (row,) = cnn_sweep.measure(**SMALL, **framed, kind="dense", filters=1, channels=1)
    assert (row["parameters"], row["data_rank"]) == (4 + 2 * 49, 36)
    small = {"side": 5, "kernel": 2, "frame": 0}
    (row,) = cnn_sweep.measure(**SMALL, **small, kind="shared", filters=4, channels=1)
    assert (row["size"], row["rank"]) == (2 * 25, 2 * 25)
    kernels = linear_cnn.first_kernels(2, 4, 1.0, 1)
    head = linear_cnn.dense_head(4 * 16, 2, 1.0, 1)
    op = linear_cnn.shared_gauss_newton(kernels, head, 5, None)
    values = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    np.testing.assert_allclose(row["kappa"], values[-1] / values[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("panels.dense.kernels=(0,)", "at least 1"),
        ("panels.dense.filters=(0,)", "at least 1"),
        ("panels.dense.kind=densely", "line, convolutions, dense, shared"),
        ("panels.shared.kernels=(6,)", "nothing of a length of 5 in shared"),
        ("panels.convolutions.kernels=(5,)", "2 kernels of 5"),
        ("panels.line.kernels=(19,)", "nothing of a length of 36 in line"),
        ("panels.dense.frame=4", "a frame of 4"),
    ],
)
def test_impossible_panels_are_refused(override, words):
    with pytest.raises(ConfigError, match=words):
        cnn_sweep.EXPERIMENT.cells(_config(override))


# Claims -----------------------------------------------------------------------------------------


def _table(kappa, figure="8-dense", kernels=(3, 5, 7, 9, 11), filters=(1, 2, 4, 8), side=14):
    rng = np.random.default_rng(0)
    points = [(k, f, s) for k in kernels for f in filters for s in range(4)]
    return DataFrame(
        {
            "figure": figure,
            "kernel": np.array([k for k, _, _ in points]),
            "filters": np.array([f for _, f, _ in points]),
            "seed": np.array([s for _, _, s in points]),
            "kappa": np.array([kappa(k, f) * (1 + 0.05 * rng.random()) for k, f, _ in points]),
            "resolved": np.ones(len(points), bool),
            "side": np.full(len(points), side),
            "size": np.full(len(points), 90),
            "rank": np.array([90 if f * (14 - k) > 20 else 50 for k, f, _ in points]),
        }
    )


def _joined(*tables):
    return concat(tables, ignore_index=True)


def _verdict(statement, table):
    (claim,) = (c for c in CLAIMS if c.statement.startswith(statement))
    return claim.check(table)


def test_printed_trends_can_hold_fail_and_be_undecided():
    both = "Toeplitz entries, dense last layer: kappa increases"
    paper = _table(lambda kernel, filters: filters**2 / kernel)
    found = _verdict(both, paper)
    assert found.status == HOLDS
    for trend in (r"filters F to the power (2 |2.0|1.9)", r"size K to the power -(1 |1.0|0.9)"):
        assert re.search(trend, found.text)
    for reverse in (
        lambda kernel, filters: 1 / (filters**2 * kernel),
        lambda kernel, filters: filters**2 * kernel,
    ):
        assert _verdict(both, _table(reverse)).status == FAILS  # one trend of the two is too few
    assert _verdict(both, _table(lambda *_: 10.0)).status == UNDECIDED
    assert _verdict("shared weights, dense last layer: kappa inc", paper).status == NOT_TESTABLE


def test_a_trend_names_the_curves_on_which_it_is_certain():
    table = _table(lambda kernel, filters: filters if kernel < 6 else 1 / filters**3)
    found = _verdict("Toeplitz entries, dense last layer: kappa increases", table)
    assert found.status == FAILS
    assert "rises at K=3, K=5, falls at K=7, K=9, K=11, for sure" in found.text
    unresolved = table.assign(resolved=(table["kernel"] < 6) | (table["seed"] != 1))
    found = _verdict("Toeplitz entries, dense last layer: kappa increases", unresolved)
    assert found.status == FAILS  # by the three other seeds
    nothing = table.assign(resolved=False)
    found = _verdict("Toeplitz entries, dense last layer: kappa increases", nothing)
    assert found.status == NOT_TESTABLE


@pytest.mark.parametrize(("sign", "status"), [(1, HOLDS), (-1, FAILS)])
def test_regimes_can_hold_and_fail(sign, status):
    def by_rank(kernel, filters):  # falls and rises the other way round beyond full rank
        power = filters / kernel
        return (1e4 / power if filters * (14 - kernel) > 20 else power) ** float(sign)

    def by_side(kernel, filters):
        trend = filters if kernel <= 7 else 30 * filters / kernel**2
        return float(trend) ** sign

    shared = _table(by_rank, "8-shared")
    dense = _table(by_side, "8-dense")
    power = _table(lambda k, f: (f / k) ** float(sign), "8-convolutions")
    half = power.assign(figure="8-convolutions_half")
    framed = [
        _table(lambda k, f: (1 / f) ** float(sign), f"8-framed_{name}")
        for name in ("convolutions", "dense")
    ]
    for statement, table in (
        ("shared weights: both trends hold", shared),
        ("shared weights: both trends reverse", shared),
        ("Toeplitz entries, dense: kappa increases", dense),
        ("Toeplitz entries, dense: kappa decreases", dense),
        ("Toeplitz entries, convolution: kappa increases", _joined(power, half)),
        ("Toeplitz entries, convolution: kappa decreases", _joined(power, half)),
        ("Toeplitz entries: with a frame", _joined(*framed)),
    ):
        assert _verdict(statement, table).status == status, statement
    assert _verdict("shared weights: both trends reverse", dense).status == NOT_TESTABLE
    nothing = shared.assign(resolved=False)
    assert _verdict("shared weights: both trends hold", nothing).status == NOT_TESTABLE


def test_the_opposite_of_an_exponent_keeps_what_is_known_of_it():
    """Two exponents over four seeds, one of them with the opposite sign."""
    power = _table(lambda kernel, filters: filters / kernel, "8-shared")
    assert _verdict("shared weights: both trends hold", power).seeds == 4


def test_one_sentence_is_read_in_one_dimension_and_shown_in_two():
    """The readings that decide are in one dimension; the slip says what mends it."""
    printed = [claim for claim in CLAIMS if claim.source.kind == "printed"]
    assert len({claim.source for claim in printed}) == 1
    columns = [*np.repeat([CERTIFIED, AS_COMPUTED, AS_PRINTED], 2), *[OTHER] * 4]
    assert [claim.column for claim in printed] == columns
    assert {claim.figure for claim in printed if claim.column != OTHER} == {"8"}
    assert all(claim.panel for claim in printed)
    told = [
        c for c in printed if c.column != AS_COMPUTED and "decreases with the" not in c.statement
    ]
    assert all(claim.mechanism for claim in told)


def test_the_readings_on_a_line_look_at_their_own_protocol():
    rises = _table(lambda kernel, filters: filters**2 / kernel, "8-line", filters=(2, 3, 4, 5))
    falls = _table(lambda kernel, filters: kernel / filters, "8-line", filters=(2, 3, 4, 5))
    frame = _joined(
        rises.assign(protocol=HALF), falls.assign(protocol=EXACT), rises.assign(protocol=WHITENED)
    )
    found = {
        claim.column: claim.check(frame).status
        for claim in CLAIMS
        if claim.figure == "8" and claim.source.kind == "printed"
    }
    assert found == {CERTIFIED: FAILS, AS_COMPUTED: HOLDS, AS_PRINTED: HOLDS}
    (bound,) = [c for c in CLAIMS if c.statement.startswith("kappa <= bound")]
    low = frame["kappa"] * 0.999
    held = frame.assign(kappa_low=low, bound=np.where(frame["protocol"] == HALF, 0.0, low))
    assert bound.check(held).status == HOLDS
    assert bound.check(held.assign(bound=0.9 * low)).status == FAILS
