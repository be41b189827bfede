"""Metrics of optimisers: kappa and steps by dense matrices, claims, and the figure."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax.flatten_util import ravel_pytree
from pandas import DataFrame

import gnjax
from experiments import optimizer_metrics as experiment
from experiments.claims import optimizer_metrics as claims
from experiments.shared import metric_steps
from figures import t3
from sweeps.claims import FAILS, HOLDS, UNDECIDED
from tests.experiments.configs import records

MOMENTUM = 0.9


@pytest.fixture(scope="module")
def smoke():
    """The first cell of an MLP, and its rows by panel."""
    race = {"rates": (1.0, 0.1), "dampings": (0.1,), "limit": 3}
    path = {"dampings": (0.1,)}
    cells = records(experiment.EXPERIMENT, "smoke", seeds=1, race=race, path=path)
    cell = next(cell for cell in cells if cell.network == "mlp")
    rows = experiment.measure(cell)
    return cell, {p: [row for row in rows if row["panel"] == p] for p in ("kappa", "race")}


def _operator(cell):
    model, x, y = experiment.made(cell)
    return gnjax.gauss_newton(gnjax.functional(model), x, y=y, loss="cross_entropy"), y


@jax.jit
def _logits(w, op):
    _, back = ravel_pytree(op.net.leaves)
    return op.net.outputs(back(w), op.net.x)


@jax.jit
@jax.value_and_grad
def _loss_and_slope(w, op, y):
    """The mean cross-entropy as a function of the vector of parameters, from logits."""
    logits = _logits(w, op)
    chosen = jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - chosen).mean()


_jacobian = jax.jit(jax.jacobian(_logits))


def _curvature(op, w):
    """G by automatic differentiation of the logits: mean of J^T (diag(s) - s s^T) J."""
    jacobian, f = np.asarray(_jacobian(w, op)), np.asarray(_logits(w, op))
    share = scipy.special.softmax(f, axis=1)
    inner = share[:, :, None] * (np.eye(share.shape[1]) - share[:, None, :])
    return np.einsum("nkp,nkl,nlq->pq", jacobian, inner, jacobian, optimize=True) / len(share)


def _root_of_inverse(matrix, added):
    values, vectors = np.linalg.eigh(matrix + added * np.eye(len(matrix)))
    return vectors / np.sqrt(values) @ vectors.T


def _blocks_of(matrix, parts):
    found = np.zeros_like(matrix)
    for part in parts:
        found[np.ix_(part, part)] = matrix[np.ix_(part, part)]
    return found


def _by_hand(name, curvature, gradients, layers):
    """P without damping, where a few lines of NumPy give it."""
    size = len(curvature)
    if name == "Adam":
        mean = sum(0.001 * 0.999**age * g**2 for age, g in enumerate(reversed(gradients)))
        return np.diag(np.sqrt(mean / (1 - 0.999 ** len(gradients))))
    parts = {"diagonal": np.arange(size)[:, None], "layers": layers, "full": [np.arange(size)]}
    return np.eye(size) if name == "SGD" else _blocks_of(curvature, parts[name])


@pytest.mark.parametrize("name", ["SGD", "Adam", "diagonal", "layers", "full"])
def test_kappa_is_that_of_dense_matrices(smoke, name):
    cell, found = smoke
    op, y = _operator(cell)
    w = metric_steps.start(op).w
    curvature = _curvature(op, w)
    slope = np.asarray(_loss_and_slope(w, op, y)[1])
    metric = _by_hand(name, curvature, [slope], list(op.places("layer").values()))
    added = 0.0 if name == "SGD" else 0.1 * np.trace(metric) / len(metric)
    root = _root_of_inverse(metric, added)
    values = np.linalg.eigvalsh(root @ curvature @ root)[::-1]
    (row,) = [r for r in found["kappa"] if (r["metric"], r["step"]) == (name, 0)]
    kappa = values[0] / values[row["rank"] - 1]
    assert values[row["rank"]] < 1e-12 * values[0]
    assert row["kappa_low"] * (1 - 1e-6) <= kappa <= row["kappa_high"] * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "gpt"])
@pytest.mark.parametrize("name", metric_steps.METRICS)
def test_a_step_solves_with_the_matrix_of_the_metric(network, name):
    """The compiled blocks beside the library's matrices, after two steps with momentum."""
    cells = records(experiment.EXPERIMENT, "smoke")
    op, y = _operator(next(cell for cell in cells if cell.network == network))
    rate, damping = 0.05, 0.03
    state = metric_steps.start(op)
    w, memory, gradients = np.asarray(state.w), state.memory, []
    for _ in range(2):
        _, gradient = _loss_and_slope(w, op, y)
        gradients.append(np.asarray(gradient))
        memory = metric_steps.remembered(op, memory, gradient, MOMENTUM)
        metric = experiment.matrix_of(metric_steps.at(op, w), memory, name)
        added = damping * np.trace(metric) / len(metric)
        mean = sum(0.1 * 0.9**age * g for age, g in enumerate(reversed(gradients)))
        mean = mean / (1 - 0.9 ** len(gradients))
        w = w - rate * np.linalg.solve(metric + added * np.eye(len(metric)), mean)
    found, after = metric_steps.steps(op, y, state, rate, damping, MOMENTUM, 2, -1.0, metric=name)
    np.testing.assert_allclose(found.w, w, atol=1e-8 * np.abs(w).max())
    np.testing.assert_allclose(after, _loss_and_slope(w, op, y)[0], rtol=1e-8)


def test_the_best_rate_takes_the_fewest_steps(smoke):
    """One search against runs of every rate, and a loss that none reaches."""
    cell, _ = smoke
    op, y = _operator(cell)
    race = dataclasses.replace(cell.race, rates=(1.0, 0.3, 0.1), limit=40)
    target = 0.7 * np.log(cell.outputs)
    best = experiment.best_rate(op, y, race, target, "SGD", 0.0, 0.0)
    counts = {}
    for rate in race.rates:
        state, loss = metric_steps.steps(
            op, y, metric_steps.start(op), rate, 0.0, 0.0, race.limit, target, metric="SGD"
        )
        if float(loss) <= target:
            counts[rate] = int(state.memory.steps)
    assert best["steps"] == min(counts.values())
    assert best["rate"] == max(rate for rate, count in counts.items() if count == best["steps"])
    short = dataclasses.replace(race, limit=1)
    none = experiment.best_rate(op, y, short, 0.01 * target, "SGD", 0.0, 0.0)
    assert (none["reached"], none["steps"]) == (False, 1)
    assert np.isnan(none["rate"])


STEPS = {"SGD": 90, "Adam": 60, "Shampoo": 50, "diagonal": 40, "K-FAC": 30, "layers": 9, "full": 8}


def _table(steps, power):
    """Four seeds: a metric's kappa is its steps to a power, and less damping lowers that of G."""
    rows = []
    for network in claims.TITLES:
        for seed in range(4):
            for metric, count in steps.items():
                dampings = (0.0,) if metric == "SGD" else (0.1, 0.001)
                for damping in dampings:
                    little = damping == 0.001
                    taken = count * (1 + seed / 100) * (10 if little and metric == "full" else 1)
                    shared = {"network": network, "seed": seed, "metric": metric}
                    shared |= {"damping": damping}
                    for step in (0, 100):
                        kappa = count**power * (0.01 if little else 1.0) * (1 + seed / 50)
                        ends = {"kappa": kappa, "kappa_low": kappa, "kappa_high": kappa}
                        rows.append({"panel": "kappa", "step": step} | ends | shared)
                    rows.append({"panel": "race", "steps": round(taken)} | shared)
    sizes = {"data": "", "samples": 9, "inputs": 2, "outputs": 3, "width": 4, "depth": 2}
    sizes |= {"parameters": 50, "share": 1.8, "target": 0.1}
    others = experiment.OF_KAPPA | experiment.OF_RACE | {"momentum": 0.0}
    empty = dict.fromkeys(experiment.EXPERIMENT.columns, np.nan) | others | sizes
    return DataFrame(
        {name: np.nan if value is None else value for name, value in (empty | row).items()}
        for row in rows
    )


def _verdicts(table):
    return {claim.statement: claim.check(table).status for claim in claims.CLAIMS}


def test_claims_hold_where_they_are_true():
    found = _verdicts(_table(STEPS, 2.0))
    assert {verdict for name, verdict in found.items() if "0.001 metrics" not in name} == {HOLDS}


def test_claims_fail_where_the_opposite_is_true():
    turned = dict(zip(STEPS, reversed(STEPS.values()), strict=True))
    found = _verdicts(_table(turned, -2.0))
    assert FAILS in found.values()
    assert all(
        verdict in (FAILS, UNDECIDED)
        for name, verdict in found.items()
        if "fewer steps than" in name or "need fewer" in name or "need more" in name
    )


def test_the_figure_shows_every_metric_of_every_network():
    figure = t3.draw(_table(STEPS, 2.0))
    assert len(figure.axes) == 6
    for axes in figure.axes[:3]:
        assert len(axes.lines) == len(STEPS)
        assert axes.lines[0].get_ydata()[0] == pytest.approx(90**2 * 1.03, rel=1e-2)
