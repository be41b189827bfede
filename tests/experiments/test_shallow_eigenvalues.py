"""Experiment B4: its rows are what dense linear algebra says, and its claims can fail."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from pandas import DataFrame

from experiments import shallow_eigenvalues
from experiments.claims.shallow_eigenvalues import percentage
from experiments.shallow_eigenvalues import EXPERIMENT
from experiments.shared import linear_training
from sweeps import command_line
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from sweeps.table import read
from tests import references
from tests.experiments.configs import changed

_TINY = [
    "--config=configs/shallow_eigenvalues.py:smoke",
    *[f"--config.{panel}.name=digits" for panel in "abc"],
    *[f"--config.{panel}.side={side}" for panel, side in zip("abc", (3, 4, 4), strict=True)],
    "--config.training.width=5",
    "--config.training.epochs=(0, 200)",
    "--config.count=4",
]


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_panels_that_share_their_data_share_their_cells(profile):
    """As where a data set is not at hand."""
    found = changed(EXPERIMENT, profile)
    distinct = {tuple(found[panel].items()) for panel in "abc"}
    assert len(EXPERIMENT.cells(found)) == len(distinct) * found.seeds


def test_a_tiny_run_end_to_end(tmp_path, capsys):
    """Panels b and c are one cell, and its rows the top of the spectra of dense H and G."""
    assert command_line.main(EXPERIMENT, [*_TINY, f"--results={tmp_path}"]) == 0
    assert "2 cells, 0 stored" in capsys.readouterr().out
    table = read(next((tmp_path / "shallow_eigenvalues").glob("smoke-*")) / "table.csv")
    assert len(table) == 3 * 2 * 4
    data = linear_training.Data("digits", 500, 0.1, 0, 4)
    found = linear_training.orthogonal(data, 1.0)
    training = linear_training.Training(2, 5, "pytorch_default", 0.001, (0, 200))
    for point in linear_training.train(found, training, 0):
        chosen = (table["panel"] == "c") & (table["epoch"] == point.epoch)
        assert table["index"][chosen].tolist() == [1, 2, 3, 4]
        h = np.asarray(linear_training.hessian(point.weights, found.moments).as_matrix())
        g = references.linear_gauss_newton(point.weights)
        top_h, top_g = (np.linalg.eigvalsh(matrix)[::-1][:4] for matrix in (h, g))
        assert_allclose(table["measured"][chosen], top_h, rtol=1e-10)
        assert_allclose(table["predicted"][chosen], top_g, rtol=1e-10)
        assert_allclose(table["excess"][chosen], point.loss - found.floor, rtol=1e-12)


def test_only_two_layers_are_allowed(tmp_path, capsys):
    arguments = [*_TINY, "--config.training.depth=3", f"--results={tmp_path}"]
    assert command_line.main(EXPERIMENT, arguments) == 2
    assert "2 layers" in capsys.readouterr().err


def _table(errors, epochs=(0, 1000, 10_000), residual=1e-10, bound=0.5, later=1.9):
    """Two panels, two seeds, two eigenvalues near 2 that Eq 15 misses by ``errors`` per cent."""
    lines = [
        (panel, epoch, seed, index, top, top * (1 + (-1) ** seed * error / 100))
        for panel in "ab"
        for seed in (0, 1)
        for epoch, error in zip(epochs, errors, strict=True)
        for index in (1, 2)
        for top in [(later if epoch else 2.0) * (1 + 1e-3 * seed)]
    ]
    names = ("panel", "epoch", "seed", "index", "measured", "predicted")
    table = DataFrame(lines, columns=list(names))
    share = np.where(table["epoch"] == max(epochs), 0.1, 1.0) * (1 + 0.01 * table["seed"])
    return table.assign(error=residual, bound=bound * share)


def _status(start, table):
    claim = next(c for c in shallow_eigenvalues.CLAIMS if c.statement.startswith(start))
    return claim.check(table).status


def test_claims_can_hold_and_fail():
    falling = _table((10.0, 1.0, 0.05), bound=0.3, later=0.5)  # the norms fall for sure, too
    assert [claim.check(falling).status for claim in shallow_eigenvalues.CLAIMS] == [HOLDS] * 6
    assert _status("Eq 15 becomes", _table((1.0, 0.01, 1.5))) == FAILS
    assert _status("final", _table((10.0, 1.0, 0.2))) == FAILS
    assert _status("final", _table((10.0, 1.0, 0.01), epochs=(0, 10, 100))) == NOT_TESTABLE
    assert _status("Eq 15 becomes", _table((10.0,), epochs=(0,))) == NOT_TESTABLE
    assert _status("the Hessian's", _table((10.0, 1.0, 0.05), residual=1e-5)) == FAILS
    assert _status("the Hessian's", _table((10.0, 1.0, 1e-7), residual=1e-9)) == FAILS
    assert _status("no eigenvalue", _table((10.0, 1.0, 0.05), bound=0.19)) == FAILS


def test_the_sharpness_and_the_functional_part_can_fall_and_not():
    steady = _table((10.0, 1.0, 0.05), later=2.1)
    assert _status("after a tenth", steady) == FAILS
    assert _status("after a tenth", _table((10.0, 1.0), epochs=(0, 10_000))) == NOT_TESTABLE
    large = _table((10.0, 1.0, 0.05), bound=5.0)  # at the end still a quarter of the eigenvalue
    assert _status("after training", large) == FAILS
    start = large["epoch"] == 0  # from which the seeds fall, or rise, so that this is undecided
    apart = large.assign(bound=large["bound"] * np.where(start, 0.01 ** large["seed"], 1.0))
    assert _status("after training", apart) == FAILS
    grows = steady.assign(bound=np.where(steady["epoch"] > 0, 0.1, 0.01) * (1 + steady["seed"]))
    assert _status("after training", grows) == FAILS
    assert _status("after training", _table((10.0, 1.0), epochs=(0, 10))) == NOT_TESTABLE


def test_the_functional_part_fails_by_the_intervals_of_both_statements_at_once():
    """Two panels with two statements are four intervals: Student's t at 1 - 0.05 / 8."""
    table = _table((10.0, 1.0, 0.05), bound=5.0)
    claim = next(c for c in shallow_eigenvalues.CLAIMS if c.statement.startswith("after training"))
    found = claim.check(table)
    last = table[(table["epoch"] == 10_000) & (table["index"] == 1) & (table["panel"] == "a")]
    logs = np.log(last["bound"] / last["measured"])
    half = scipy.stats.t.ppf(1 - 0.05 / 8, 1) * logs.std(ddof=1) / np.sqrt(2)
    ends = np.exp(logs.mean() + np.array([-half, half]))
    assert f"({ends[0]:.3g}, {ends[1]:.3g}) (a)" in found.text


def test_the_error_is_relative_to_the_eigenvalue_of_the_hessian():
    table = DataFrame({"measured": [2.0, 4.0], "predicted": [2.2, 3.0]})
    assert_allclose(percentage(table), [10.0, 25.0])
