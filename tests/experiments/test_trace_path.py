"""Experiment B3: its rows are traces of dense matrices, and its claims can fail."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from pandas import DataFrame, concat

from experiments import trace_path
from experiments.shared import linear_training
from experiments.trace_path import EXPERIMENT
from sweeps import command_line
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from sweeps.table import read
from tests.experiments.configs import changed

_TINY = [
    "--config=configs/trace_path.py:smoke",
    *[f"--config.{panel}.name=digits" for panel in "abc"],
    *[f"--config.{panel}.side=4" for panel in "abc"],
    "--config.training.width=6",
    "--config.training.epochs=(0, 200)",
    "--config.narrow=3",
    "--config.probes=20",
]


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_panels_that_share_their_data_share_their_cells(profile):
    """As where a data set is not at hand."""
    found = changed(EXPERIMENT, profile)
    panels = len({tuple(found[panel].items()) for panel in "abc"})
    cells = EXPERIMENT.cells(found)
    assert len(cells) == 2 * panels * found.seeds
    assert sum(cell.keywords["exact"] for cell in cells) == panels * found.seeds


def test_a_tiny_run_end_to_end(tmp_path, capsys):
    """All panels are the same two cells, a wide network and a narrow one with the exact trace."""
    assert command_line.main(EXPERIMENT, [*_TINY, f"--results={tmp_path}"]) == 0
    assert "2 cells, 0 stored" in capsys.readouterr().out
    table = read(next((tmp_path / "trace_path").glob("smoke-*")) / "table.csv")
    assert len(table) == 3 * 2 * 2
    assert np.isfinite(table["exact"]).tolist() == (table["width"] == 3).tolist()
    found = linear_training.orthogonal(linear_training.Data("digits", 500, 0.1, 0, 4), 1.0)
    for width in (6, 3):
        training = linear_training.Training(4, width, "pytorch_default", 0.003, (0, 200))
        for point in linear_training.train(found, training, 0):
            (line,) = np.flatnonzero(
                (table["panel"] == "b")
                & (table["epoch"] == point.epoch)
                & (table["width"] == width)
            )
            op = linear_training.hessian(point.weights, found.moments)
            trace = float(np.trace(np.asarray(op.as_matrix())))
            assert table["predicted"][line] == pytest.approx(trace, rel=1e-10)
            assert width == 6 or table["exact"][line] == pytest.approx(trace, rel=1e-10)
            apart = abs(table["estimate"][line] - trace)
            assert 0 < apart < 5 * table["standard_error"][line]


def test_points_of_a_path_have_random_vectors_of_their_own(tmp_path):
    """Otherwise one lucky draw would carry the whole curve."""
    small = {"name": "digits", "side": 4}
    training = {"width": 6, "epochs": (0, 200)}
    own = {**dict.fromkeys("abc", small), "narrow": 3, "probes": 20}
    still = changed(EXPERIMENT, "smoke", **own, training={**training, "rate": 1e-30})
    first, second = trace_path.measure(**EXPERIMENT.cells(still)[0].keywords)
    assert first["predicted"] == pytest.approx(second["predicted"], rel=1e-12)
    assert first["estimate"] != pytest.approx(second["estimate"], rel=1e-6)
    cell = EXPERIMENT.cells(changed(EXPERIMENT, "smoke", **own, training=training))[0].keywords
    assert trace_path.measure(**cell) == trace_path.measure(**cell)


def _table(z, exact):
    count = len(z)
    return DataFrame(
        {
            "panel": np.full(count, "a"),
            "seed": np.zeros(count, int),
            "width": np.full(count, 6),
            "epoch": np.arange(count),
            "excess": np.linspace(1, 0.1, count),
            "predicted": np.full(count, 50.0),
            "standard_error": np.full(count, 0.5),
            "estimate": 50.0 + 0.5 * np.array(z),
            "exact": 50.0 * np.array(exact),
        }
    )


def test_claims_can_hold_fail_and_be_not_testable():
    held = _table([0.5, -3.9, 1.0], [np.nan, 1.0, 1 + 1e-12])
    within, _, falls, exact = trace_path.CLAIMS
    assert [claim.check(held).status for claim in (within, exact)] == [HOLDS, HOLDS]
    failed = _table([0.5, -4.1, 1.0], [np.nan, 1.0, 1 + 1e-9])
    assert [claim.check(failed).status for claim in (within, exact)] == [FAILS, FAILS]
    assert_allclose([claim.check(failed).number for claim in (within, exact)], [4.1, 1e-9], 1e-5)
    assert falls.check(held).status == HOLDS
    assert falls.check(held.assign(excess=held["excess"].to_numpy()[::-1])).status == FAILS
    assert falls.check(_table([0.5], [1.0])).status == NOT_TESTABLE
    unknown = _table([0.5], [np.nan])
    assert exact.check(unknown).status == NOT_TESTABLE


def test_the_claim_that_the_trace_flattens_early_can_hold_and_fail():
    """By the last stop of the first tenth; what happens later does not count."""
    early = trace_path.CLAIMS[1]
    for seventh, status in ((0.9, HOLDS), (1.1, FAILS)):
        tables = [_table(np.zeros(21), np.ones(21)) for _ in range(3)]
        for seed, table in enumerate(tables):
            table["seed"] = table["seed"] + seed
            table["predicted"] = table["predicted"] * (1 + 1e-3 * seed * (table["epoch"] > 0))
            table.loc[2, "predicted"] *= seventh
        table = concat(tables, ignore_index=True)
        assert early.check(table).status == status
    assert early.check(_table([0.5], [1.0])).status == NOT_TESTABLE
