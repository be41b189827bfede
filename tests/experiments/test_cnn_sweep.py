"""Figure 8's experiment: its cells and rows, and its claims on made-up tables."""

import dataclasses
import re

import numpy as np
import pytest

from experiments import cnn_sweep
from experiments.claims.cnn_sweep import CLAIMS
from experiments.shared import linear_cnn
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED

_SMALL = cnn_sweep.Panel("dense", 5, (2, 3), (1, 2), 2)


def _config(profile="smoke", **changes):
    edge, _ = config.load(f"configs/cnn_sweep.py:{profile}")
    return dataclasses.replace(config.freeze(cnn_sweep.Config, edge), **changes)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(profile):
    cells = cnn_sweep.cells(_config(profile))
    assert len(set(cells)) == len(cells) > 0
    assert sorted(map(cnn_sweep.cost, cells), reverse=True) == list(map(cnn_sweep.cost, cells))


def test_another_first_seed_draws_other_networks():
    seeds = {cell.seed for cell in cnn_sweep.cells(_config(first_seed=100))}
    assert seeds == {100, 101}


def test_rows_are_the_uses_of_cells_and_what_the_matrices_say():
    found = _config(samples=60, outputs=2)
    rows = cnn_sweep.rows(found, {cell: cnn_sweep.measure(cell) for cell in cnn_sweep.cells(found)})
    assert len(rows) == sum(
        len(p.kernels) * len(p.filters) * p.seeds for p in found.panels().values()
    )
    by_figure = {}
    for row in rows:
        by_figure.setdefault(row.figure, row)
    row = by_figure["8-convolutions"]
    assert (row.inputs, row.data_rank, row.kernel, row.filters) == (64, 60, 2, 1)
    assert row.parameters == 4 + 4
    assert by_figure["8-dense"].parameters == 4 + 2 * 49
    assert by_figure["8-framed_dense"].data_rank == 36
    wide = next(r for r in rows if r.figure == "8-channels" and r.filters == 2)
    assert (wide.channels, wide.parameters) == (2, 2 * 4 + 2 * 2 * 4)
    shared = next(r for r in rows if r.figure == "8-shared" and r.filters == 4 and r.kernel == 2)
    assert (shared.size, shared.rank) == (2 * 25, 2 * 25)
    kernels = linear_cnn.first_kernels(2, 4, 2.0, shared.seed)
    head = linear_cnn.dense_head(4 * 16, 2, 2.0, shared.seed)
    op = linear_cnn.shared_gauss_newton(kernels, head, 5, None)
    values = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    np.testing.assert_allclose(shared.kappa, values[-1] / values[0], rtol=1e-3)
    assert any("rank 36" in source for source in cnn_sweep.sources(found))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernels": ()}, "at least 1"),
        ({"filters": (0,)}, "at least 1"),
        ({"reading": "densely"}, "convolutions, dense, shared"),
        ({"kernels": (6,)}, "nothing of an image of side 5"),
        ({"reading": "convolutions", "kernels": (4,)}, "2 kernels of 4"),
        ({"frame": 3}, "a frame of 3"),
    ],
)
def test_impossible_panels_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(_SMALL, **change)


def _table(kappa, figure="8-dense", kernels=(3, 5, 7, 9, 11), filters=(1, 2, 4, 8), side=14):
    rng = np.random.default_rng(0)
    points = [(k, f, s) for k in kernels for f in filters for s in range(4)]
    return {
        "figure": np.full(len(points), figure),
        "kernel": np.array([k for k, _, _ in points]),
        "filters": np.array([f for _, f, _ in points]),
        "seed": np.array([s for _, _, s in points]),
        "kappa": np.array([kappa(k, f) * (1 + 0.05 * rng.random()) for k, f, _ in points]),
        "resolved": np.ones(len(points), bool),
        "side": np.full(len(points), side),
        "size": np.full(len(points), 90),
        "rank": np.array([90 if f * (14 - k) > 20 else 50 for k, f, _ in points]),
    }


def _joined(*tables):
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _verdict(statement, table):
    (claim,) = (c for c in CLAIMS if c.statement.startswith(statement))
    return claim.check(table)


def test_printed_trends_can_hold_fail_and_be_undecided():
    both = "Toeplitz entries, dense last layer: kappa increases"
    paper = _table(lambda kernel, filters: filters**2 / kernel)
    found = _verdict(both, paper)
    assert found.status == HOLDS
    for trend in (r"like F to the power (2 |2.0|1.9)", r"like K to the power -(1 |1.0|0.9)"):
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
    unresolved = {**table, "resolved": (table["kernel"] < 6) | (table["seed"] != 1)}
    found = _verdict("Toeplitz entries, dense last layer: kappa increases", unresolved)
    assert found.status == FAILS  # by the three other seeds
    nothing = {**table, "resolved": np.zeros(len(table["seed"]), bool)}
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
    half = {**power, "figure": np.full(len(power["seed"]), "8-convolutions_half")}
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
    nothing = {**shared, "resolved": np.zeros(len(shared["seed"]), bool)}
    assert _verdict("shared weights: both trends hold", nothing).status == NOT_TESTABLE


def test_every_printed_claim_has_a_mechanism_for_where_it_fails():
    printed = [claim for claim in CLAIMS if claim.source.kind == "printed"]
    assert len(printed) == 4
    assert len({claim.source for claim in printed}) == 1  # one sentence, read in four ways
    assert all(claim.mechanism and claim.panel for claim in printed)
