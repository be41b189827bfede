"""Figure 10's experiment: its numbers by another road, its claims on made-up tables."""

from functools import cache

import jax
import numpy as np
import pytest
from pandas import DataFrame

import gnjax
from experiments import training_path
from experiments.claims.training_path import CLAIMS, RATIOS, TITLES
from experiments.shared import published_data
from experiments.training_path import READINGS
from gnjax import papers
from gnjax.models import LinearNet, linear
from gnjax.papers.training import minibatch
from gnjax.papers.training.recipe import Recipe
from sweeps import command_line
from sweeps.claims import (
    AS_PRINTED,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    UNDECIDED,
    Sentence,
    judge,
)
from sweeps.config import ConfigError
from sweeps.storage.checkpoint import Checkpoint
from tests.references import pseudo_condition

_PATHS = DataFrame(
    {
        "reading": "published",
        "data": "cifar10_part, whitened",
        "seed": seed,
        "epoch": epoch,
        "measured": True,
        "resolved": True,
        "kappa": 7.0 + 0.1 * seed + (epoch > 0),
        "kappa_low": 7.0 + 0.1 * seed + (epoch > 0),
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
RECIPE = Recipe("sgd", 0.2, 32, "mse", scale=0.2)
SIZES = {"data": "fashion_mnist_5000", "samples": 100, "step": 7, "depth": 3, "width": 30}
SIZES |= {"stops": (0, 1, 3), "rtol": 1e-3, "dtype": "float32", "recipe": RECIPE}


def _config(profile="smoke", *overrides):
    path = f"configs/training_path.py:{profile}"
    return command_line.load(path, overrides)[0]


@cache
def _measured(name, seed=0):
    """The rows where kappa was measured, of all others the losses."""
    return training_path.measure(**SIZES, reading=READINGS[name], seed=seed)


def _inputs(reading):
    return training_path.whitened(*("fashion_mnist_5000", 100, 7), reading.centred, reading.unit)


def test_the_loss_is_a_mean_over_the_outputs():
    """PyTorch's MSELoss: 2 / k of half the squared error."""
    for profile in ("smoke", "laptop", "paper"):
        assert _config(profile).recipe.scale == 2 / training_path.OUTPUTS
    assert set(TITLES) == set(READINGS)


def test_an_unknown_reading_is_refused():
    config = _config().to_dict() | {"readings": {"orthogonal": 1}}
    changed = command_line.FrozenConfigDict(config)
    with pytest.raises(ConfigError, match="published, published_raw, sigma_xavier"):
        training_path.EXPERIMENT.cells(changed)


@pytest.mark.parametrize(("epochs", "count"), [(3, 3), (1000, 18), (5000, 40)])
def test_stops_begin_at_0_and_end_at_the_last_epoch(epochs, count):
    found = training_path.stops(epochs, count)
    assert found[:2] == [0, 1]
    assert found[-1] == epochs
    assert found == sorted(set(found))
    assert len(found) <= count + 1


def test_inputs_are_whitened_to_u_v_t(monkeypatch):
    """X^T X = I, or n I; grey images have no colours to subtract the mean of."""
    unit, _, source = _inputs(READINGS["published_raw"])
    np.testing.assert_allclose(unit.T @ unit, np.eye(16), atol=1e-12)
    large, _, _ = _inputs(READINGS["sigma_xavier"])
    np.testing.assert_allclose(large, 10 * unit, rtol=1e-12)
    assert "every 7th pixel" in source
    with pytest.raises(ValueError, match="no three channels"):
        _inputs(READINGS["published"])
    colour = gnjax.data.load("photo_patches", samples=60, seed=0)
    monkeypatch.setattr(published_data.datasets, "load", lambda *_, **__: colour)
    training_path.whitened.cache_clear()
    white, labels, _ = training_path.whitened("cifar10_part", 60, 8, True, True)
    images = colour.inputs.reshape(60, 32, 32, 3)[:, ::8, ::8]
    centred = (images - [0.4914, 0.4822, 0.4465]).reshape(60, 48)
    u, _, vt = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(white, u @ vt, atol=1e-12)
    np.testing.assert_array_equal(labels, colour.labels)
    training_path.whitened.cache_clear()


@pytest.mark.parametrize("name", ["published_raw", "sigma_xavier"])
def test_kappa_of_the_start_is_that_of_the_jacobian_on_the_samples(name):
    """The closed form, on which the scale of the inputs does not count, against autodiff."""
    inputs, _, _ = _inputs(READINGS[name])
    start = _measured(name)[0]
    net = LinearNet(16, 10, depth=3, width=30, initializer="xavier_normal", key=jax.random.key(0))
    kernel = np.asarray(gnjax.ntk(net, inputs).as_matrix())
    # The network trains in float32, which moves its weights by 6e-8 before the first step.
    assert start["kappa"] == pytest.approx(pseudo_condition(kernel), rel=2e-3)
    bound = papers.bounds.linear(linear.weights(net))
    assert start["bound_convex"] == pytest.approx(bound.convex, rel=1e-4)
    assert start["bound_maximum"] == pytest.approx(bound.maximum, rel=1e-4)


@pytest.mark.parametrize("name", ["published_raw", "sigma_xavier"])
def test_training_by_the_product_is_training_one_layer_after_the_other(name):
    """The same steps, of samples as they stand or drawn, layer by layer and in float64."""
    reading = READINGS[name]
    inputs, labels, _ = _inputs(reading)
    net = LinearNet(16, 10, depth=3, width=30, initializer="xavier_normal", key=jax.random.key(0))
    order = None if reading.ordered else jax.random.key(0)
    problem, state = minibatch.begin(net, inputs, labels, RECIPE, order, dtype="float64")
    state, losses = minibatch.train(problem, state, 3)
    op = papers.linear_gauss_newton(linear.weights(minibatch.trained(net, state)))
    rows = _measured(name)
    np.testing.assert_allclose([row["loss"] for row in rows[1:]], losses, rtol=1e-5)
    kappa = gnjax.condition_number(op, method="dense").value
    assert rows[-1]["kappa"] == pytest.approx(kappa, rel=2e-3)


def test_starts_have_the_variances_that_they_name():
    def scale(name):
        weights = training_path.initial_weights(READINGS[name], (100, 200, 200, 10), 0)
        return float(np.var(weights[1])) * 200

    expected = {name: 2.0 if "kaiming" in name else 1.0 for name in READINGS}
    found = {name: scale(name) for name in READINGS}
    # 40,000 normal entries: the standard error of a variance is sqrt(2 / 40,000), 0.7%.
    assert found == {name: pytest.approx(value, rel=0.04) for name, value in expected.items()}


def test_a_killed_measurement_ends_in_the_same_rows(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    kappa, calls = training_path.kappa_and_bound, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # at the third stop
            raise KeyboardInterrupt
        return kappa(*arguments)

    monkeypatch.setattr(training_path, "kappa_and_bound", killed)
    setting = {**SIZES, "reading": READINGS["published_raw"], "seed": 0}
    with pytest.raises(KeyboardInterrupt):
        training_path.measure(**setting, checkpoint=checkpoint)
    resumed = training_path.measure(**setting, checkpoint=checkpoint)
    assert len(calls) == 3 + 1
    assert resumed == _measured("published_raw")


def test_rows_are_the_kept_epochs_and_kappa_where_it_was_measured():
    rows = _measured("published_raw")
    assert [(row["epoch"], row["measured"]) for row in rows] == [
        *((0, True), (1, True), (2, False), (3, True)),
    ]
    assert [row["kappa"] is None for row in rows] == [False, False, True, False]
    assert [row["resolved"] for row in rows] == [True, True, False, True]
    assert rows[0]["loss"] is None
    assert _measured("published_raw", 1)[0]["kappa"] != rows[0]["kappa"]


def _verdicts(frame, reading="published"):
    claims = [claim for claim in CLAIMS if claim.panel == (("reading", reading),)]
    printed = [claim for claim in claims if isinstance(claim.source, Sentence)]
    assert len(claims) == len(printed) + 1  # and the bound, which is judged on the same rows
    return [claim.check(frame) for claim in printed]


def test_claims_hold_where_the_table_says_so():
    inside, change, near, tight = _verdicts(_PATHS)
    assert [v.status for v in (inside, near, tight)] == [HOLDS] * 3
    assert change.status == FAILS  # a seventh is not around a half
    assert near.number == pytest.approx(8.1 / 7.1, rel=1e-3)
    assert tight.number == pytest.approx(1.2)
    assert change.number == pytest.approx(np.mean([1 / 7, 1 / 7.1, 1 / 7.2]))
    assert "at epochs 10, 10, 10" in change.text
    assert "above 12 in 0 of 3; single starts go" in inside.text
    columns = {c.panel[0][1]: c.column for c in CLAIMS if isinstance(c.source, Sentence)}
    assert columns == {
        "published": AS_PRINTED,
        "published_raw": AS_PRINTED,
        "sigma_xavier": OTHER,
        "sigma_kaiming": OTHER,
    }


def test_the_range_is_that_of_one_number_a_start_to_the_printed_unit():
    """Class: an interval is printed that is not the one that decides, as one of many epochs'."""
    peak = _PATHS["kappa"].where(_PATHS["epoch"] != 10, 11.6 + 0.1 * (_PATHS["seed"] - 1))
    found = _verdicts(_PATHS.assign(kappa=peak))[0]
    assert "11.6 (" in found.text
    for shift, status in ((-0.4, HOLDS), (0.9, UNDECIDED), (4.0, FAILS)):
        moved = peak.where(_PATHS["epoch"] != 10, peak + shift)
        assert _verdicts(_PATHS.assign(kappa=moved))[0].status == status, shift


def test_a_start_that_leaves_the_range_counts_at_whatever_epoch_it_does():
    """Class: an epoch whose mean is not extreme varies most, and nothing is said of it."""
    spread = 4.0 * (_PATHS["seed"] - 1)
    middle = np.sort(_PATHS["epoch"].unique())[1]
    steady = 9 + 0.01 * (_PATHS["seed"] - 1) + (_PATHS["epoch"] - middle) / 1e4
    wide = steady.where(_PATHS["epoch"] != middle, steady + spread)
    assert _verdicts(_PATHS.assign(kappa=steady))[0].status == HOLDS
    assert _verdicts(_PATHS.assign(kappa=wide))[0].status == UNDECIDED


def test_the_bound_can_hold_and_fail_at_every_epoch():
    below = next(c for c in CLAIMS if c.statement.endswith("at every epoch"))
    assert below.check(_PATHS).status == HOLDS
    low = _PATHS.assign(
        bound_convex=[*_PATHS["bound_convex"][:-1], 0.99 * _PATHS["kappa"].iloc[-1]]
    )
    found = below.check(low)
    assert (found.status, found.number) == (FAILS, pytest.approx(0.99))
    assert below.check(_PATHS.assign(bound_convex=np.nan)).status == NOT_TESTABLE


@pytest.mark.parametrize(
    ("which", "column", "factor", "status", "text"),
    [
        (0, "kappa", 2.0, FAILS, "33% of all stops between"),
        (0, "kappa", 0.5, FAILS, "single starts go from 4"),
        (1, "kappa", 1.2, HOLDS, "largest change"),
        (1, "kappa", 1.6, FAILS, "largest change over kappa at the start: 0.825"),
        (1, "kappa", 1.535, UNDECIDED, "at epochs"),
        (2, "kappa", 2.5, FAILS, "kappa 7.1 at the start"),
        (2, "kappa", 1.756, UNDECIDED, "at the end"),
        (3, "bound_convex", 1.8, FAILS, "2.16"),
    ],
)
def test_claims_fail_and_say_where(which, column, factor, status, text):
    later = np.where(_PATHS["epoch"] > 0, factor, 1.0)
    found = _verdicts(_PATHS.assign(**{column: _PATHS[column] * later}))[which]
    assert found.status == status
    assert text in found.text


def test_claims_need_the_papers_ratios_data_and_a_resolved_kappa():
    assert _verdicts(_PATHS.assign(bound_convex=np.nan))[-1].status == NOT_TESTABLE
    unresolved = _PATHS.assign(resolved=_PATHS["epoch"] != 10)
    assert {v.status for v in _verdicts(unresolved)} == {NOT_TESTABLE}
    assert {v.status for v in _verdicts(_PATHS, "sigma_xavier")} == {NOT_TESTABLE}
    paper = _config("laptop").paper_ratios
    assert {row[1] for row in paper} == set(RATIOS)
    inside = next(claim for claim in CLAIMS if claim.panel == (("reading", "published"),))
    assert judge(inside, _PATHS, paper).status == HOLDS
    found = judge(inside, _PATHS.assign(epoch=_PATHS["epoch"] // 10), paper)
    assert found.status == NOT_TESTABLE
    assert "epochs x rate is 100 where the paper has 1e+03" in found.text
    found = judge(inside, _PATHS.assign(data="fashion_mnist_5000, whitened"), paper)
    assert found.status == NOT_TESTABLE
    assert "the data are fashion_mnist_5000" in found.text
