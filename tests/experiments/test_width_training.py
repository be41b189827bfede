"""The experiment of figures 9 and 18: its numbers by another road, its claims on made-up tables."""

from dataclasses import replace

import numpy as np
import pytest

from experiments import width_training
from gnjax.networks.model import functional
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED
from sweeps.storage.checkpoint import Checkpoint
from tests import references
from tests.drawn import as_columns


def _config(profile="smoke", **changes):
    edge, _ = config.load(f"configs/width_training.py:{profile}")
    return replace(config.freeze(width_training.Config, edge), **changes)


@pytest.fixture(name="short", scope="module")
def _short():
    found = _config(samples=6, widths=(20,), epochs=2, every=1)
    (cell,) = width_training.cells(found)
    return found, cell, width_training.measure(cell)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(profile):
    found = _config(profile)
    cells = width_training.cells(found)
    assert sorted(cell.width for cell in cells) == list(found.widths)
    assert [cell.width for cell in cells if cell.spectrum] == [20]
    assert {cell.width: cell.recipe.rate for cell in cells} == {
        width: 0.3 if width <= 20 else 0.5 for width in found.widths
    }
    assert all(width_training.cost(cell) > 0 for cell in cells)


def test_stops_are_every_so_many_epochs_and_the_last():
    assert width_training.stops(10, 5) == [0, 5, 10]
    assert width_training.stops(7, 5) == [0, 5, 7]


def test_the_start_is_measured_as_autodiff_would(short):
    """kappa and the spectrum against the eigenvalues of J^T J / n from jacrev."""
    _, cell, measured = short
    data = width_training._data(cell.data, cell.samples, cell.data_seed)
    for seed, found in enumerate(measured["records"][0]["seeds"]):
        net = width_training._model(cell, data, seed)
        apply, params = functional(net)
        dense = references.gauss_newton(apply, params, data.inputs)
        values = np.linalg.eigvalsh(dense)[::-1]
        rank = int((values > 1e-12 * values[0]).sum())
        assert found["rank"] == rank
        # Weights start in float32.
        assert found["kappa"] == pytest.approx(values[0] / values[rank - 1], rel=1e-2)
        spectrum = measured["records"][0]["spectra"][seed]
        assert spectrum["rank"] == rank
        np.testing.assert_allclose(
            spectrum["eigenvalue"][:rank], values[:rank], rtol=1e-2, atol=1e-6 * values[0]
        )


def test_a_killed_measurement_ends_in_the_same_rows(short, tmp_path, monkeypatch):
    found, cell, measured = short
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    kappa, calls = width_training._kappa, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # of two seeds, at the second stop
            raise KeyboardInterrupt
        return kappa(*arguments)

    monkeypatch.setattr(width_training, "_kappa", killed)
    with pytest.raises(KeyboardInterrupt):
        width_training.measure(cell, checkpoint)
    resumed = width_training.measure(cell, checkpoint)
    assert width_training.rows(found, {cell: resumed}) == width_training.rows(
        found, {cell: measured}
    )


def test_rows_of_both_figures(short):
    found, cell, measured = short
    rows = width_training.rows(found, {cell: measured})
    paths = [row for row in rows if row.figure == 18]
    assert [(row.seed, row.epoch) for row in paths] == [(s, e) for s in (0, 1) for e in (0, 1, 2)]
    assert [row.loss is None for row in paths] == [True, False, False] * 2
    assert all(row.measured and row.assumed_rank is None for row in paths)
    eigenvalues = [row for row in rows if row.figure == 9]
    assert {row.epoch for row in eigenvalues} == {0, 2}
    assert {row.seed for row in eigenvalues} == {0, 1}
    last = [row for row in eigenvalues if row.epoch == 2 and row.seed == 1]
    assert [row.assumed_rank for row in last] == list(range(1, 61))  # n k of them
    assert [row.resolved for row in last] == [row.assumed_rank <= row.rank for row in last]
    least = 1 / (60 * 2.0**-23)  # as matrix_rank has it in single precision
    assert [row.counted for row in last] == [row.kappa < least for row in last]
    for row in last[: last[0].rank]:
        assert row.kappa == pytest.approx(last[0].eigenvalue / row.eigenvalue)


def _path(width, epoch, **values):
    shared = {"figure": 18, "width": width, "seed": 0, "epoch": epoch, "measured": True}
    empty = {"assumed_rank": np.nan, "rank": 10, "eigenvalue": np.nan, "resolved": True}
    empty["counted"] = False
    loss = {"loss": np.nan if epoch == 0 else 1.0 / width}
    return shared | empty | loss | {"kappa_low": values.get("kappa", np.nan)} | values


def _spectrum(epoch, ratio, seeds=(0, 1, 2)):
    """20 eigenvalues a seed, each ``ratio`` times the one before it, or nearly."""
    found = []
    for seed in seeds:
        for r in range(20):
            kappa = (ratio * (1 + 1e-3 * seed)) ** -r
            counted = kappa < 1 / (20 * 2.0**-23)
            values = {"assumed_rank": r + 1, "kappa": kappa, "counted": counted, "rank": 20}
            found.append({**_path(20, epoch, seed=seed), "figure": 9, **values})
    return found


_PATHS = tuple(
    _path(width, epoch, seed=seed, kappa=1e4 / width * np.exp(epoch / width))
    for width in (20, 50, 100)
    for seed in (0, 1)
    for epoch in (0, 50, 100)
)


def _verdicts(rows):
    return [claim.check(as_columns(rows)) for claim in width_training.CLAIMS]


def test_claims_hold_where_the_table_says_so():
    found = _verdicts([*_PATHS, *_spectrum(0, 0.9), *_spectrum(100, 0.5)])
    assert [v.status for v in found] == [HOLDS] * 5
    # kappa at rank 20 over kappa at rank 18
    assert found[0].number == pytest.approx(0.9**-2, rel=1e-2)
    # later 19 eigenvalues lie above 20 eps of float32 times the largest, and a tenth less is 17
    assert found[1].number == pytest.approx((0.9 / 0.5) ** 2, rel=1e-2)
    assert f"{1e4 / 20 * np.exp(2.5):.3g} at m=20" in found[2].text
    assert found[3].number == pytest.approx(-1)  # the loss is 1 / m
    assert found[4].number == pytest.approx(-1)  # the spread is 50 / m


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (2, lambda row: {"kappa": 1e-4 / row["kappa"]}),
        (3, lambda row: {"loss": row["width"]}),
        (4, lambda row: {"kappa": np.exp(row["epoch"] * row["width"] / 1e3)}),
    ],
)
def test_claims_fail_where_the_table_says_so(which, change):
    worse = [{**row, **change(row)} for row in _PATHS]
    worse = [{**row, "loss": np.nan} if row["epoch"] == 0 else row for row in worse]
    verdict = _verdicts([*worse, *_spectrum(0, 0.05), *_spectrum(100, 0.05)])
    assert verdict[which].status == FAILS
    assert [v.status for v in verdict[:2]] == [FAILS, FAILS]
    assert verdict[1].number == pytest.approx(1)


def test_one_network_does_not_decide_what_the_rank_does():
    found = _verdicts([*_PATHS, *_spectrum(0, 0.9, [0]), *_spectrum(100, 0.5, [0])])
    assert [v.status for v in found[:2]] == [UNDECIDED] * 2


def test_a_network_without_a_resolved_kappa_is_left_out_and_counted():
    missing = []
    for row in _PATHS:
        kappa = 1e4 / row["width"] * np.exp(1e-3 * row["epoch"] / row["width"])
        known = (row["width"], row["seed"]) != (20, 1)
        missing.append({**row, "kappa": kappa, "kappa_low": kappa, "resolved": known})
    found = _verdicts(missing)
    assert [v.status for v in found[2:]] == [HOLDS] * 3
    assert "1 of 6 networks have no resolved kappa" in found[4].text
    assert "networks" not in found[3].text  # about the loss


def _unresolved(which, **change):
    """The claims on Figure 18 where kappa of one width is known by lower bounds alone."""
    bound = {"resolved": False, "kappa": np.nan}
    rows = [{**row, **{name: of(row) for name, of in change.items()}} for row in _PATHS]
    return _verdicts([row | bound if row["width"] == which else row for row in rows])[2:]


def test_lower_bounds_of_narrow_networks_show_that_kappa_falls():
    found = _unresolved(20)
    assert [v.status for v in found] == [HOLDS, HOLDS, NOT_TESTABLE]  # not how much it varies
    assert found[0].number == pytest.approx(_verdicts(_PATHS)[2].number)
    assert "lower bounds among kappa at m=20" in found[0].text


def test_lower_bounds_do_not_show_that_kappa_rises_or_falls_for_other_networks():
    assert _unresolved(100)[0].status == NOT_TESTABLE
    assert _unresolved(20, kappa_low=lambda row: 1e-9)[0].status == NOT_TESTABLE


def test_claims_need_widths_and_epochs():
    one = [row for row in _PATHS if row["width"] == 20]
    short = [{**row, "epoch": row["epoch"] // 10} for row in _PATHS]
    for rows in (one, short):
        assert {v.status for v in _verdicts(rows)} == {NOT_TESTABLE}
