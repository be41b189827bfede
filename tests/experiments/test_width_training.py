"""The experiment of figures 9 and 18: its numbers by another road, its claims on made-up tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame

import gnjax
from experiments import width_training as experiment
from experiments.claims.width_training import RULES as SAID
from experiments.shared import rank_rules
from experiments.shared.relu_networks import relu_network
from gnjax.networks.model import functional
from gnjax.papers.training.recipe import Recipe
from sweeps.claims import (
    AS_PRINTED,
    BEYOND,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    PARTLY,
    SOME,
    UNDECIDED,
    Claim,
)
from sweeps.config import load
from sweeps.storage.checkpoint import Checkpoint
from tests import references

SETTING = {
    "data": "digits",
    "samples": 6,
    "data_seed": -1,
    "width": 20,
    "initializer": "xavier_normal",
    "biases": "none",
    "seed": 1,
    "recipe": Recipe("sgd", 0.3, 4, "mse", scale=0.2),
    "shuffled": False,
    "dtype": "float64",
    "epochs": 2,
}


def _by_numpy(epochs):
    """The weights of the network and the mean losses of its epochs, trained in file order."""
    images = gnjax.data.load("digits", first=6)
    x, y = images.inputs, np.eye(10)[images.labels]
    net = relu_network((64, 20, 10), "xavier_normal", "none", 1)
    w, v = (np.array(layer.kernel[...]) for layer in (net.dense1, net.dense2))
    losses = []
    for _ in range(epochs):
        total = 0.0
        for start in (0, 4):
            a, target = x[start : start + 4], y[start : start + 4]
            h = np.maximum(a @ w, 0)
            e = h @ v - target
            total += (e**2).sum() / 10
            slope = 2 * e / e.size
            w, v = w - 0.3 * a.T @ ((slope @ v.T) * (h > 0)), v - 0.3 * h.T @ slope
        losses.append(total / 6)
    return x, w, v, losses


def _jacobian(x, w, v):
    """Rows (sample, output) of the derivatives by w and v, written out."""
    h = x @ w
    on = h > 0
    by_w = np.einsum("nd,nm,mk->nkdm", x, on, v).reshape(len(x) * 10, -1)
    by_v = np.einsum("nm,kj->nkmj", h * on, np.eye(10)).reshape(len(x) * 10, -1)
    return np.hstack([by_w, by_v])


def _by_rule(rows):
    """The rank of each rule."""
    return {rule: row["assumed_rank"] for row in rows for rule in (row["rule"] or "").split(", ")}


def test_losses_and_kappa_are_those_of_the_network_trained_by_hand():
    rows = experiment.measure(**SETTING, every=2)
    x, w, v, losses = _by_numpy(2)
    assert [(row["epoch"], row["measured"]) for row in rows] == [(0, True), (1, False), (2, True)]
    assert rows[0]["loss"] is None
    np.testing.assert_allclose([row["loss"] for row in rows[1:]], losses, rtol=1e-10)
    values = np.linalg.svd(_jacobian(x, w, v), compute_uv=False) ** 2
    rank = int((values > 1e-12 * values[0]).sum())
    assert rows[2]["rank"] == rank
    assert rows[2]["kappa"] == pytest.approx(values[0] / values[rank - 1], rel=1e-6)
    assert rows[2]["parameters"] == 64 * 20 + 200


def test_a_spectrum_is_that_of_the_jacobian_written_out():
    rows = experiment.measure(**SETTING, every=0)
    x, w, v, _ = _by_numpy(2)
    values = np.linalg.svd(_jacobian(x, w, v), compute_uv=False) ** 2 / 6
    last = [row for row in rows if row["epoch"] == 2]
    assert [row["assumed_rank"] for row in last] == list(range(1, 61))  # all: fewer than POINTS
    known = [row for row in last if row["resolved"]]
    np.testing.assert_allclose(
        [row["eigenvalue"] for row in known], values[: len(known)], rtol=1e-6
    )
    by_rule = {
        rule: row["assumed_rank"] for row in last for rule in (row["rule"] or "").split(", ")
    }
    for rule, tolerance in {
        "float64": 60 * 2.0**-52 * values[0],
        "float32": 60 * 2.0**-23 * values[0],
        "absolute": 1e-7,
        "absolute over rows": 1e-7 / 60,
    }.items():
        assert by_rule[rule] == (values > tolerance).sum()


def test_the_table_keeps_few_points_and_all_that_the_claims_need(monkeypatch):
    monkeypatch.setattr(experiment, "POINTS", 5)
    rows = [row for row in experiment.measure(**SETTING, every=0) if row["epoch"] == 2]
    kept = {row["assumed_rank"] for row in rows}
    assert len(kept) <= 5 + 2 * len(rank_rules.RULES)
    ranks = _by_rule(rows)
    assert set(rank_rules.RULES) <= set(ranks)
    assert {int(0.9 * ranks[rule]) for rule in rank_rules.RULES} <= kept


@given(st.lists(st.floats(1e-20, 1.0), min_size=1, max_size=50), st.floats(1e-3, 1e3))
def test_the_default_rules_are_those_of_matrix_rank(values, scale):
    values = scale * np.sort(values)[::-1]
    found = rank_rules.ranks(values)
    assert found["float64"] == np.linalg.matrix_rank(np.diag(values))
    single = len(values) * 2.0**-23
    assert found["float32"] == np.linalg.matrix_rank(np.diag(values), rtol=single)
    assert set(found) == set(SAID)


def test_kappa_at_a_rank_is_enclosed_and_open_where_the_error_hides_the_eigenvalue():
    spectrum = gnjax.eigenvalues(np.diag([8.0, 4.0, 2.0, 1e-18]))
    value, low, high = rank_rules.kappa_at(spectrum, 3)
    assert low <= value <= high
    assert value == pytest.approx(4)
    _, low, high = rank_rules.kappa_at(spectrum, 4)
    assert high == np.inf
    assert 1e10 < low < 1e19
    assert rank_rules.kappa_at(spectrum, 1) == (1, 1, 1)


def test_where_kappa_is_open_the_numerical_one_is_the_last_that_matrix_rank_counts():
    """Two equal samples: J J^T is singular, and the pseudo-kappa skips the zeros."""
    x = gnjax.data.load("digits", first=4).inputs
    x = np.vstack([x, x[:1]])
    net = relu_network((64, 20, 10), "xavier_normal", "none", 0)
    row = experiment._kappa(net, x, 0)
    apply, params = functional(net)
    values = np.linalg.svd(np.asarray(references.jacobian(apply, params, x)), compute_uv=False) ** 2
    assert row["rank_numerical"] == 40
    assert row["kappa_numerical"] == pytest.approx(values[0] / values[39], rel=1e-6)


def test_a_killed_measurement_ends_in_the_same_rows(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    kappa, calls = experiment._kappa, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return kappa(*arguments)

    monkeypatch.setattr(experiment, "_kappa", killed)
    with pytest.raises(KeyboardInterrupt):
        experiment.measure(**SETTING, every=1, checkpoint=checkpoint)
    resumed = experiment.measure(**SETTING, every=1, checkpoint=checkpoint)
    assert resumed == experiment.measure(**SETTING, every=1)


def test_stops_are_every_so_many_epochs_and_the_last():
    assert experiment.stops(10, 5) == [0, 5, 10]
    assert experiment.stops(7, 5) == [0, 5, 7]


def test_the_paper_profile_has_the_rates_and_readings():
    config, _ = load("configs/width_training.py:paper")
    cells = [cell.keywords for cell in experiment.EXPERIMENT.cells(config)]
    rates = {(cell["width"], cell["recipe"].rate) for cell in cells}
    assert rates == {(15, 0.3), (20, 0.3), (50, 0.5), (100, 0.5), (200, 0.5), (500, 0.5)}
    published = {"biases": "none", "shuffled": False, "data_seed": -1, "dtype": "float64"}
    first = [cell for cell in cells if cell["recipe"].loss == "mse" and cell["biases"] == "none"]
    assert all(cell | published == cell for cell in first)
    assert first[0]["recipe"].scale == 2 / 10


def _path(width, epoch, seed, **values):
    kappa = values.get("kappa", 1e4 / width * np.exp(epoch / width))
    return {
        "figure": "18", "reading": "published", "width": width, "seed": seed, "epoch": epoch,
        "measured": True, "resolved": True, "loss": np.nan if epoch == 0 else 1.0 / width,
        "kappa": kappa, "kappa_low": kappa, "kappa_numerical": kappa, "kappa_numerical_high": kappa,
    } | values  # fmt: skip


def _spectrum(epoch, ratio, seeds=(0, 1, 2)):
    """100 eigenvalues a seed, each ``ratio`` times the one before it, or nearly; rules at 20."""
    return [
        {"figure": "9", "reading": "published", "width": 20, "epoch": epoch, "seed": seed,
         "assumed_rank": r + 1, "kappa": (ratio * (1 + 1e-3 * seed)) ** -r,
         "rule": ", ".join(rank_rules.RULES) if r == 19 else np.nan}
        for seed in seeds
        for r in range(100)
    ]  # fmt: skip


_PATHS = [_path(w, e, s) for w in (20, 50, 100) for s in (0, 1) for e in (0, 50, 100)]


def _claims(figure, rule=SAID["float64"]) -> list[Claim]:
    wanted = (("figure", figure), ("reading", "published"))
    found = [c for c in experiment.CLAIMS if c.figure == figure and c.panel == wanted]
    named = (f"{rule} is", f"{rule} varies")
    return [c for c in found if figure == "18" or any(words in c.statement for words in named)]


def _verdicts(rows, figure, rule=SAID["float64"]):
    return [claim.check(DataFrame(rows)) for claim in _claims(figure, rule)]


@pytest.mark.parametrize("rule", SAID)
def test_claims_on_the_rank_hold_where_the_spectrum_says_so(rule):
    both, contrast = _verdicts([*_spectrum(0, 0.9), *_spectrum(100, 0.2)], "9", SAID[rule])
    assert (both.status, contrast.status) == (HOLDS, HOLDS)
    assert both.number == pytest.approx(0.9**-2, rel=1e-2)  # kappa at rank 20 over that at 18
    assert contrast.number == pytest.approx((0.9 / 0.2) ** 2, rel=1e-2)
    steep = [*_spectrum(0, 0.05), *_spectrum(100, 0.05)]
    assert [v.status for v in _verdicts(steep, "9", SAID[rule])] == [FAILS, FAILS]
    flat = [*_spectrum(0, 0.9), *_spectrum(100, 0.5)]  # robust before and after, though less so
    assert [v.status for v in _verdicts(flat, "9", SAID[rule])] == [PARTLY, HOLDS]
    rough = [
        *_spectrum(0, 0.2),
        *_spectrum(100, 0.05),
    ]  # sensitive after, not robust before
    assert [v.status for v in _verdicts(rough, "9", SAID[rule])] == [PARTLY, HOLDS]


def test_every_rule_of_the_rank_counts_alike_and_one_seed_is_said():
    """Neither text nor code tells the rule, so that none is certified and one that holds is enough.

    What robust means, a factor of ten here, no sentence says.
    """
    both, contrast = _claims("9")
    assert (both.source.rule, contrast.source) == (SOME, BEYOND)
    about = [claim for claim in experiment.CLAIMS if claim.source is both.source]
    assert {claim.column for claim in about} == {AS_PRINTED, OTHER}
    found = _verdicts([*_spectrum(0, 0.9, [0]), *_spectrum(100, 0.2, [0])], "9")
    assert [(v.status, v.seeds) for v in found] == [(HOLDS, 1)] * 2


def test_claims_on_the_width_hold_where_the_table_says_so():
    found = _verdicts(_PATHS, "18")
    assert [v.status for v in found] == [HOLDS] * 3
    assert f"{1e4 / 20 * np.exp(2.5):.3g} at m=20" in found[0].text
    assert found[1].number == pytest.approx(-1)  # the loss is 1 / m
    assert found[2].number == pytest.approx(-1)  # the spread is 50 / m


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (0, lambda row: {"kappa": 1e-4 / row["kappa"], "kappa_low": 1e-4 / row["kappa"]}),
        (1, lambda row: {"loss": row["width"]}),
        (2, lambda row: {"kappa_numerical": np.exp(row["epoch"] * row["width"] / 1e3)}),
    ],
)
def test_claims_on_the_width_fail_where_the_table_says_so(which, change):
    assert _verdicts([row | change(row) for row in _PATHS], "18")[which].status == FAILS


def _open(width, **changed):
    """The claims where kappa of one width is known by lower bounds alone."""
    bound = {"resolved": False, "kappa": np.nan, **changed}
    return _verdicts([row | bound if row["width"] == width else row for row in _PATHS], "18")


def test_lower_bounds_of_narrow_networks_show_that_kappa_falls():
    found = _open(20)
    assert [v.status for v in found] == [HOLDS] * 3  # the numerical kappa is known
    assert f"at least {1e4 / 20 * np.exp(2.5):.3g} at m=20" in found[0].text
    assert found[0].text.startswith("mean kappa goes like m to the power at most -")
    assert "at least" not in found[0].text.partition("at m=20")[2]
    assert np.isnan([found[0].low, found[0].high]).all()  # the spread of the seeds is not known
    unknown = _open(20, kappa_numerical=np.nan, kappa_numerical_high=np.nan)
    assert unknown[2].status == NOT_TESTABLE  # not how much it varies


def test_lower_bounds_do_not_show_that_kappa_rises_or_falls_for_other_networks():
    assert _open(100)[0].status == UNDECIDED
    assert _open(20, kappa_low=1e-9)[0].status == UNDECIDED


def test_lower_bounds_show_that_kappa_falls_only_where_it_falls_in_each_seed():
    bound = {"resolved": False, "kappa": np.nan}
    rows = [row | bound if row["width"] == 20 else row for row in _PATHS]
    ends = [
        row | {"kappa_low": 1e-9} if row["width"] == 20 and row["seed"] else row for row in rows
    ]
    large = [
        row | {"kappa_low": 1e40} if row["width"] == 20 and not row["seed"] else row for row in ends
    ]
    assert _verdicts(large, "18")[0].status == UNDECIDED


def test_the_spread_from_50_units_on_is_told_beside_narrower_networks_alone():
    assert "from m=50 on" in _verdicts(_PATHS, "18")[2].text
    wide = [row for row in _PATHS if row["width"] >= 50]
    assert "from m=50 on" not in _verdicts(wide, "18")[2].text


def test_drawn_images_and_batches_are_a_setting_that_the_published_code_contradicts():
    shuffled = [c for c in experiment.CLAIMS if dict(c.panel).get("reading") == "shuffled"]
    printed = [c for c in shuffled if c.source is not BEYOND]
    assert {claim.figure for claim in printed} == {"9", "18"}
    assert {claim.column for claim in printed} == {OTHER}


def test_claims_need_widths_epochs_and_spectra():
    one = [row for row in _PATHS if row["width"] == 20]
    short = [{**row, "epoch": row["epoch"] // 10} for row in _PATHS]
    for rows in (one, short):
        assert {v.status for v in _verdicts(rows, "18")} == {NOT_TESTABLE}
    assert {v.status for v in _verdicts(_PATHS, "9")} == {NOT_TESTABLE}


def test_training_shuffles_only_where_it_is_asked_to():
    changed = {**SETTING, "shuffled": True}
    losses = [experiment.measure(**s, every=2)[1]["loss"] for s in (SETTING, changed)]
    assert losses[0] != losses[1]
    other = {**SETTING, "recipe": replace(SETTING["recipe"], batch=6)}
    alone = [experiment.measure(**s, every=2)[1]["loss"] for s in (other, other | changed | other)]
    assert alone[0] == pytest.approx(alone[1], rel=1e-12)  # one batch has no order
