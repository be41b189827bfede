"""The edge of stability: rows by hand-made steps and dense matrices, and two of its claims."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from experiments import edge_of_stability as experiment
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from tests.experiments.configs import records
from tests.figures.drawing import published


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_the_last_stop_is_the_last_step(profile):
    cells = records(experiment.EXPERIMENT, profile)
    assert all(experiment.stops(cell)[-1] == cell.steps for cell in cells)


def _by_hand(loss, w, cell):
    """After every step: w, Adam's P (1 for gradient descent) and the rate of that step."""
    slope = jax.jit(jax.grad(loss))
    w, first, second = np.asarray(w), np.zeros(w.size), np.zeros(w.size)
    for step in range(1, cell.steps + 1):
        g, rate = np.asarray(slope(w)), cell.rate * min(1.0, step / cell.warmup)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        if cell.optimizer == "Adam":
            metric = np.sqrt(second / (1 - 0.999**step)) + 1e-8
            w = w - rate * first / (1 - 0.9**step) / metric
        else:
            metric, w = np.ones_like(w), w - rate * g
        yield step, w, metric, rate


@pytest.mark.parametrize("optimizer", ["gradient descent", "Adam"])
def test_rows_are_those_of_steps_by_hand_and_dense_hessians(optimizer):
    cell = next(c for c in records(experiment.EXPERIMENT, "smoke") if c.network == "mlp")
    rate = 0.1 if optimizer == "Adam" else 0.2
    cell = dataclasses.replace(
        cell, optimizer=optimizer, rate=rate, warmup=2, width=3, samples=7, steps=3, every=1
    )
    rows = [SimpleNamespace(**row) for row in experiment.measure(cell)]
    model, x, y = experiment.made(cell)
    apply, params = gnjax.functional(model)
    start, back = ravel_pytree(params)

    @jax.jit
    def loss(w):
        return ((apply(back(w), x) - y) ** 2).sum() / (2 * len(x))

    second = jax.jit(jax.hessian(loss))
    for row, (step, w, metric, now) in zip(rows, _by_hand(loss, start, cell), strict=True):
        assert (row.step, row.rate_now, row.parameters) == (step, now, w.size)
        np.testing.assert_allclose(row.loss, loss(w), rtol=1e-10)
        dense = np.asarray(second(w))
        scaled = dense / np.sqrt(np.outer(metric, metric))
        limit = 38.0 if optimizer == "Adam" else 2.0
        np.testing.assert_allclose(row.threshold, limit / now, rtol=1e-12)
        np.testing.assert_allclose(row.final_threshold, limit / rate, rtol=1e-12)
        for matrix, value, error in (
            (dense, row.sharpness, row.sharpness_error),
            (scaled, row.preconditioned, row.preconditioned_error),
        ):
            top = np.linalg.eigvalsh(matrix)[-1]
            assert abs(value - top) <= error + 1e-12 * top
            assert error < 0.02 * top


def test_values_within_their_errors_and_runs_that_overflow_are_left_out():
    assert experiment._known(5.0, 0.1) == (5.0, 0.1)
    assert experiment._known(5.0, 0.6) == (None, 0.6)
    assert experiment._known(-3.0, 0.1) == (None, 0.1)
    cell = next(c for c in records(experiment.EXPERIMENT, "smoke") if c.network == "mlp")
    wild = dataclasses.replace(
        cell, optimizer="gradient descent", rate=1e200, width=3, samples=7, steps=2, every=1
    )
    assert experiment.measure(wild) == []


def test_unknown_values_are_no_evidence():
    table = published("t5")
    unknown = table.assign(preconditioned=table["preconditioned"].mask(table["network"] == "mlp"))
    (claim,) = [c for c in experiment.CLAIMS if c.statement.startswith("MLP, Adam: the precond")]
    assert [claim.check(rows).status for rows in (table, unknown)] == [HOLDS, NOT_TESTABLE]


def test_a_warm_up_lowers_the_preconditioned_sharpness_where_every_rate_has_both_runs():
    """In the published table no run without warm-up has a value there at the larger rates."""
    (claim,) = [c for c in experiment.CLAIMS if "as many steps without" in c.statement]
    table = published("t5")
    both = table[table["rate"] < 0.1]
    for factor, status in ((0.1, HOLDS), (10.0, FAILS)):
        warm = both["preconditioned"] * np.where(both["warmup"] > 0, factor, 1.0)
        assert claim.check(both.assign(preconditioned=warm)).status == status
