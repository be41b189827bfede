"""Figure 10's experiment: its numbers by another road, its claims on made-up tables."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import gnjax
from experiments import training_path
from experiments.claims.training_path import CLAIMS, RATIOS, TITLES
from experiments.training_path import STARTS
from gnjax import papers
from gnjax.models import LinearNet, linear
from gnjax.papers.training import minibatch
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, judge
from sweeps.storage.checkpoint import Checkpoint
from tests.drawn import as_columns
from tests.references import pseudo_condition

_PATHS = tuple(
    {
        "start": "xavier",
        "seed": seed,
        "epoch": epoch,
        "measured": True,
        "resolved": True,
        "kappa": 7.0 + 0.1 * seed + (epoch > 0),
        "bound_convex": 1.2 * (7.0 + 0.1 * seed + (epoch > 0)),
        "lambda_max": 8.0,
        "lambda_min": 1.0,
        "inputs": 192,
        "outputs": 10,
        "width": 500,
        "samples": 1000,
        "batch": 256,
        "rate": 0.2,
    }
    for seed in range(3)
    for epoch in (0, 10, 5000)
)


def _config(profile="smoke", **changes):
    edge, _ = config.load(f"configs/training_path.py:{profile}")
    return replace(config.freeze(training_path.Config, edge), **changes)


@pytest.fixture(name="short", scope="module")
def _short():
    found = _config(epochs=3, stops=3, starts=("xavier",), width=30)
    cells = training_path.cells(found)
    return found, cells, {cell: training_path.measure(cell) for cell in cells}


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_every_profile_is_a_config_with_cells(profile):
    cells = training_path.cells(_config(profile))
    assert list(dict.fromkeys(cell.start for cell in cells)) == list(STARTS) == list(TITLES)
    assert all(training_path.cost(cell) > 0 for cell in cells)
    # PyTorch's MSELoss is a mean over the outputs: 2 / k of half the squared error.
    assert cells[0].recipe.scale == 2 / training_path.OUTPUTS
    again = training_path.cells(_config(profile, first_seed=50))
    assert not {cell.seed for cell in cells} & {cell.seed for cell in again}


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match="kaiming_2, kaiming_1, pytorch, xavier, got orthogonal"):
        _config(starts=("orthogonal",))


@pytest.mark.parametrize(("epochs", "count"), [(3, 3), (1000, 18), (5000, 40)])
def test_stops_begin_at_0_and_end_at_the_last_epoch(epochs, count):
    found = training_path.stops(epochs, count)
    assert found[:2] == [0, 1]
    assert found[-1] == epochs
    assert found == sorted(set(found))
    assert len(found) <= count + 1


def test_kappa_of_the_start_is_that_of_the_jacobian_on_the_samples(short):
    """The closed form with Sigma = I against autodiff on the whitened samples."""
    _, cells, measured = short
    cell = cells[0]
    inputs, _, source = training_path._whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    assert "rank 16" in source
    np.testing.assert_allclose(inputs.T @ inputs / len(inputs), np.eye(16), atol=1e-12)
    for cell in cells:
        found = measured[cell]["records"][0]
        net = LinearNet(
            16, 10, depth=3, width=30, initializer="xavier_normal", key=jax.random.key(cell.seed)
        )
        kernel = np.asarray(gnjax.ntk(net, inputs).as_matrix())
        # The network trains in float32, which moves its weights by 6e-8 before the first step.
        assert found["kappa"] == pytest.approx(pseudo_condition(kernel), rel=2e-3)
        bound = papers.bounds.linear(linear.weights(net))
        assert found["bound_convex"] == pytest.approx(bound.convex, rel=1e-4)


def test_training_by_the_product_is_training_one_layer_after_the_other(short):
    """The same steps as the network that multiplies its inputs by one layer at a time."""
    _, (cell, *_), measured = short
    inputs, labels, _ = training_path._whitened(cell.data, cell.samples, cell.data_seed, cell.side)
    net = LinearNet(
        16, 10, depth=3, width=30, initializer="xavier_normal", key=jax.random.key(cell.seed)
    )
    problem, state = minibatch.begin(
        net, inputs, labels, cell.recipe, jax.random.key(cell.seed), dtype="float64"
    )
    state, losses = minibatch.train(problem, state, 3)
    op = papers.linear_gauss_newton(linear.weights(minibatch.trained(net, state)))
    last = measured[cell]["records"][-1]
    found = [loss for record in measured[cell]["records"] for _, loss in record["losses"]]
    np.testing.assert_allclose(found, losses, rtol=1e-5)  # float32 beside float64
    kappa = gnjax.condition_number(op, method="dense").value
    assert last["kappa"] == pytest.approx(kappa, rel=2e-3)


def test_starts_have_the_variances_that_they_name():
    def scale(start):
        weights = training_path.initial_weights(replace(cell, start=start, width=200), 100)
        return float(np.var(weights[1])) * 200

    cell = training_path.cells(_config())[0]
    expected = {"kaiming_2": 2.0, "kaiming_1": 1.0, "pytorch": 1 / 3, "xavier": 1.0}
    found = {start: scale(start) for start in STARTS}
    # 40,000 normal entries: the standard error of a variance is sqrt(2 / 40,000), 0.7%.
    assert found == {start: pytest.approx(value, rel=0.04) for start, value in expected.items()}


def test_a_killed_measurement_ends_in_the_same_rows(short, tmp_path, monkeypatch):
    found, (cell, *_), measured = short
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    kappa, calls = training_path._kappa_and_bound, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # at the third stop
            raise KeyboardInterrupt
        return kappa(*arguments)

    monkeypatch.setattr(training_path, "_kappa_and_bound", killed)
    with pytest.raises(KeyboardInterrupt):
        training_path.measure(cell, checkpoint)
    resumed = training_path.measure(cell, checkpoint)
    assert len(calls) == 3 + 2
    one = {cell: measured[cell]}
    assert training_path.rows(found, {cell: resumed}) == training_path.rows(found, one)


def test_rows_are_the_kept_epochs_and_kappa_where_it_was_measured(short):
    found, (cell, *_), measured = short
    records = measured[cell]["records"]
    last = {**records[1], "epoch": 3, "losses": [[1, 3.0], [3, 1.0]]}
    sparse = {**measured[cell], "records": [records[0], last]}
    rows = training_path.rows(found, {cell: sparse})
    assert [(row.epoch, row.loss, row.measured) for row in rows] == [
        (0, None, True),
        (1, 3.0, False),
        (3, 1.0, True),
    ]
    assert [row.kappa is None for row in rows] == [False, True, False]
    assert [row.resolved for row in rows] == [True, False, True]
    assert training_path.rows(found, {}) == ()


def test_losses_are_kept_at_a_few_epochs_and_at_every_stop(short):
    cell = replace(short[1][0], epochs=400, stops=4)
    kept = [e for record in training_path.measure(cell)["records"] for e, _ in record["losses"]]
    assert len(kept) < 160
    assert set(training_path.stops(400, 4)) - {0} <= set(kept)


def _verdicts(rows, start="xavier"):
    claims = [claim for claim in CLAIMS if claim.panel == (("start", start),)]
    return [claim.check(as_columns(rows)) for claim in claims]


def test_claims_hold_where_the_table_says_so():
    near, tight, inside = _verdicts(_PATHS)
    assert [v.status for v in (near, tight, inside)] == [HOLDS] * 3
    assert near.number == pytest.approx(8.1 / 7.1, rel=1e-3)
    assert tight.number == pytest.approx(1.2)
    assert "kappa from 7 to 8.2, 100% of it inside" in inside.text


def test_the_bound_can_hold_and_fail_at_every_epoch():
    below = [claim for claim in CLAIMS if claim.statement.endswith("at every epoch")][-1]
    rows = [{**row, "kappa_low": row["kappa"]} for row in _PATHS]
    assert below.check(as_columns(rows)).status == HOLDS
    rows[-1]["bound_convex"] = 0.99 * rows[-1]["kappa"]
    found = below.check(as_columns(rows))
    assert (found.status, found.number) == (FAILS, pytest.approx(0.99))
    none = [{**row, "bound_convex": np.nan} for row in rows]
    assert below.check(as_columns(none)).status == NOT_TESTABLE


@pytest.mark.parametrize(
    ("which", "column", "factor", "status", "text"),
    [
        (0, "kappa", 2.5, FAILS, "kappa 7.1 at the start"),
        (0, "kappa", 1.756, UNDECIDED, "at the end"),
        (1, "bound_convex", 1.4, FAILS, "1.68"),
        (2, "kappa", 2.0, FAILS, "33% of it inside"),
        (2, "kappa", 0.5, FAILS, "from 4"),
    ],
)
def test_claims_fail_and_say_where(which, column, factor, status, text):
    rows = [{**row, column: row[column] * (factor if row["epoch"] else 1)} for row in _PATHS]
    found = _verdicts(rows)[which]
    assert found.status == status
    assert text in found.text


def test_claims_need_the_papers_ratios_and_a_resolved_kappa():
    none = [{**row, "bound_convex": np.nan} for row in _PATHS]
    assert _verdicts(none)[1].status == NOT_TESTABLE
    unresolved = [{**row, "resolved": row["epoch"] != 10} for row in _PATHS]
    assert {v.status for v in _verdicts(unresolved)} == {NOT_TESTABLE}
    assert {v.status for v in _verdicts(_PATHS, "kaiming_1")} == {NOT_TESTABLE}
    paper = _config("laptop").paper_ratios
    assert {row[1] for row in paper} == set(RATIOS)
    near = next(claim for claim in CLAIMS if claim.panel == (("start", "xavier"),))
    assert judge(near, as_columns(_PATHS), paper).status == HOLDS
    short = as_columns([{**row, "epoch": row["epoch"] // 10} for row in _PATHS])
    found = judge(near, short, paper)
    assert found.status == NOT_TESTABLE
    assert "epochs x rate is 100 where the paper has 1e+03" in found.text


def test_seeds_differ_in_weights_and_in_batches(short):
    _, cells, measured = short
    first, second = (measured[cell]["records"] for cell in cells)
    assert first[0]["kappa"] != second[0]["kappa"]
    assert first[1]["losses"] != second[1]["losses"]
