"""Figure 10's experiment: its numbers by another road, its claims on made-up tables."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import gnjax
from experiments import training_path
from experiments.training_path import KAIMING, XAVIER
from gnjax.models import linear
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from sweeps.storage.checkpoint import Checkpoint
from tests.drawn import as_columns
from tests.references import pseudo_condition

_PATHS = tuple(
    {
        "initializer": XAVIER,
        "seed": seed,
        "epoch": epoch,
        "measured": True,
        "resolved": True,
        "kappa": 7.0 + seed + (epoch > 0),
        "bound_convex": 1.2 * (7.0 + seed + (epoch > 0)),
    }
    for seed in range(2)
    for epoch in (0, 10, 200)
)


def _config(profile="smoke", **changes):
    edge, _ = config.load(f"configs/training_path.py:{profile}")
    return replace(config.freeze(training_path.Config, edge), **changes)


@pytest.fixture(name="short", scope="module")
def _short():
    found = _config(epochs=3, stops=3, initializers=(XAVIER,), width=30)
    (cell,) = training_path.cells(found)
    return found, cell, training_path.measure(cell)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(profile):
    cells = training_path.cells(_config(profile))
    assert [cell.initializer for cell in cells] == [KAIMING, XAVIER]
    assert all(training_path.cost(cell) > 0 for cell in cells)
    # PyTorch's MSELoss is a mean over the outputs: 2 / k of half the squared error.
    assert cells[0].recipe.scale == 2 / training_path.OUTPUTS


@pytest.mark.parametrize(("epochs", "count"), [(3, 3), (1000, 18), (5000, 40)])
def test_stops_begin_at_0_and_end_at_the_last_epoch(epochs, count):
    found = training_path.stops(epochs, count)
    assert found[:2] == [0, 1]
    assert found[-1] == epochs
    assert found == sorted(set(found))
    assert len(found) <= count + 1


def test_kappa_of_the_start_is_that_of_the_jacobian_on_the_samples(short):
    """The closed form with Sigma = I against autodiff on the whitened samples."""
    _, cell, measured = short
    inputs, _ = training_path._whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    np.testing.assert_allclose(inputs.T @ inputs / len(inputs), np.eye(12), atol=1e-12)
    for seed, found in enumerate(measured["records"][0]["seeds"]):
        net = training_path._model(cell, inputs.shape[1], seed)
        kernel = np.asarray(gnjax.ntk(net, inputs).as_matrix())
        # The network trains in float32, which moves its weights by 6e-8 before the first step.
        assert found["kappa"] == pytest.approx(pseudo_condition(kernel), rel=2e-3)
        bound = gnjax.bounds.linear(linear.weights(net))
        assert found["bound_convex"] == pytest.approx(bound.convex, rel=1e-4)


def test_a_killed_measurement_ends_in_the_same_rows(short, tmp_path, monkeypatch):
    found, cell, measured = short
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    kappa, calls = training_path._kappa_and_bound, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # of two seeds, at the second stop
            raise KeyboardInterrupt
        return kappa(*arguments)

    monkeypatch.setattr(training_path, "_kappa_and_bound", killed)
    with pytest.raises(KeyboardInterrupt):
        training_path.measure(cell, checkpoint)
    resumed = training_path.measure(cell, checkpoint)
    assert len(calls) == 4 + 2 * 3
    assert training_path.rows(found, {cell: resumed}) == training_path.rows(found, {cell: measured})


def test_rows_are_every_epoch_and_kappa_where_it_was_measured(short):
    found, cell, measured = short
    sparse = {**measured, "records": [measured["records"][0]]}
    last = {"epoch": 3, "losses": [[3.0, 6.0], [2.0, 5.0], [1.0, 4.0]]}
    sparse["records"].append({**last, "seeds": measured["records"][1]["seeds"]})
    rows = [row for row in training_path.rows(found, {cell: sparse}) if row.seed == 1]
    assert [(row.epoch, row.loss, row.measured) for row in rows] == [
        (0, None, True),
        (1, 6.0, False),
        (2, 5.0, False),
        (3, 4.0, True),
    ]
    assert [row.kappa is None for row in rows] == [False, True, True, False]
    assert [row.resolved for row in rows] == [True, False, False, True]
    assert training_path.rows(found, {}) == ()


def _verdicts(table):
    xavier = [claim for claim in training_path.CLAIMS if "Xavier" in claim.statement]
    return [claim.check(table) for claim in xavier]


def test_claims_hold_where_the_table_says_so():
    near, tight, inside = _verdicts(as_columns(_PATHS))
    assert [v.status for v in (near, tight, inside)] == [HOLDS] * 3
    assert near.number == pytest.approx(8 / 7)
    assert tight.number == pytest.approx(1.2)
    assert inside.number == 9.0


@pytest.mark.parametrize(
    ("which", "column", "factor", "text"),
    [
        (0, "kappa", 2.0, "2.29 over 200 epochs"),
        (0, "kappa", 2.0, "holds up to epoch 0"),
        (1, "bound_convex", 1.4, "to 1.680"),
        (1, "bound_convex", 0.8, "from 0.960"),
        (2, "kappa", 2.0, "first outside at epoch 200"),
    ],
)
def test_claims_fail_and_say_where(which, column, factor, text):
    rows = [{**row, column: row[column] * (factor if row["epoch"] else 1)} for row in _PATHS]
    if which == 2:
        rows = [{**row, "kappa": 13.0 if row["epoch"] == 200 else row["kappa"]} for row in _PATHS]
    found = _verdicts(as_columns(rows))[which]
    assert found.status == FAILS
    assert text in found.text


def test_claims_need_enough_epochs_and_rows():
    short = [{**row, "epoch": row["epoch"] // 10} for row in _PATHS]
    none = [{**row, "bound_convex": np.nan} for row in _PATHS]
    assert {v.status for v in _verdicts(as_columns(short))} == {NOT_TESTABLE}
    assert _verdicts(as_columns(none))[1].status == NOT_TESTABLE
    kaiming = training_path.CLAIMS[0].check(as_columns(_PATHS))
    assert kaiming.status == NOT_TESTABLE


def test_seeds_differ_in_weights_and_in_batches(short):
    _, cell, measured = short
    assert jax.tree.leaves(training_path._model(cell, 12, 0).w1)[0].shape == (30, 12)
    first, second = measured["records"][0]["seeds"]
    assert first["kappa"] != second["kappa"]
