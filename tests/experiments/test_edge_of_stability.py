"""The edge of stability: rows by hand-made steps and dense matrices, claims, and the figure."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from pandas import DataFrame

import gnjax
from experiments import edge_of_stability as experiment
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from tests.experiments.configs import records


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


_STEPS, _LENGTH = (1, 25, 100, 150, 200), 200
_RUNS = {  # sharpness or preconditioned sharpness over the final threshold, sharpness, loss
    ("mlp", "gradient descent", 0): ((0.5, 0.7, 1.0, 1.02, 1.02), None, (5, 4, 3, 2, 1)),
    ("mlp", "Adam", 0): ((0.2, 0.5, 1.0, 1.01, 1.01), (1, 2, 3, 6, 9), (5, 4, 3, 2, 1)),
    ("gpt", "Adam", 0): ((20, 1.5, 1.2, 1.01, 1.01), (1, 1, 1, 1, 1), (5, 4, 3, 3, 3)),
    ("gpt", "Adam", 100): ((5, 1.5, 1.0, 1.01, 1.01), (1, 1, 1, 1, 1), (5, 4, 3, 2, 1)),
}
_OPPOSITE = {
    ("mlp", "gradient descent", 0): ((0.9, 0.96, 1.9, 0.5, 0.5), None, (1, 2, 3, 4, 5)),
    ("mlp", "Adam", 0): ((0.2, 1.0, 0.5, 0.5, 0.5), (1, 9, 3, 2, 1), (5, 4, 3, 2, 1)),
    ("gpt", "Adam", 0): ((0.5, 2, 100, 3, 3), (1, 1, 1, 1, 1), (5, 4, 3, 2, 1)),
    ("gpt", "Adam", 100): ((200, 2, 300, 3, 3), (1, 1, 1, 1, 1), (5, 4, 3, 3, 3)),
}


def _rows_of(runs):
    for (network, optimizer, warmup), (ratios, sharpness, losses) in runs.items():
        for rate in (0.01, 0.1):
            limit = experiment.STABLE[optimizer] / rate
            for step, place in zip(_STEPS, range(5), strict=True):
                for seed in (0, 1, 2):
                    noise = 1 + 0.002 * seed
                    same = network == "gpt" and rate == 0.01
                    scaled = ratios[place] * limit * noise
                    yield {
                        "network": network, "optimizer": optimizer, "data": network,
                        "samples": 20, "inputs": 4, "outputs": 6, "width": 4, "depth": 1,
                        "parameters": 99, "rate": rate, "warmup": warmup, "steps": _LENGTH,
                        "seed": seed, "step": step, "final_threshold": limit,
                        "threshold": limit / min(1.0, step / max(warmup, 1)),
                        "loss": noise * (1.0 if same else losses[place]),
                        "sharpness": scaled if sharpness is None else sharpness[place] * noise,
                        "preconditioned": scaled,
                        "sharpness_error": 1e-3, "preconditioned_error": 1e-3,
                    }  # fmt: skip


def _table(runs):
    return DataFrame(_rows_of(runs))


def test_claims_can_hold_fail_and_be_out_of_reach():
    def statuses(table):
        return [claim.check(table).status for claim in experiment.CLAIMS]

    assert statuses(_table(_RUNS)) == [HOLDS] * len(experiment.CLAIMS)
    assert statuses(_table(_OPPOSITE)) == [FAILS] * len(experiment.CLAIMS)
    table = _table(_RUNS)
    first = (table["step"] == 1) & (table["warmup"] == 0)
    alone = table[first]
    assert statuses(alone) == [NOT_TESTABLE] * len(experiment.CLAIMS)


def test_unknown_values_are_no_evidence():
    table = _table(_RUNS)
    late = (table["step"] > 150) & (table["network"] == "mlp")
    table["preconditioned"] = np.where(late, np.nan, table["preconditioned"])
    found = {c.statement: c.check(table).status for c in experiment.CLAIMS}
    unknown = [status for statement, status in found.items() if "within a tenth" in statement]
    assert sorted(unknown) == [HOLDS, NOT_TESTABLE, NOT_TESTABLE]
