"""Promises of a diagnosis are tried on a network whose training is known in closed form."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from benchmarks import advice


def _quadratic() -> advice.Problem:
    """|W x - y|^2 / 2 for diagonal inputs: H = G = diag(4, 1), and the loss falls as a power."""
    x = np.diag([2.0**1.5, 2.0**0.5])  # x^T x / n = diag(4, 1)
    params, y = {"w": jnp.ones((2, 1))}, np.zeros((2, 1))
    return advice.Problem("q", lambda p, x: x @ p["w"], params, x, y, "squared_error")


def test_descent_is_that_of_the_quadratic_model() -> None:
    problem, steps = _quadratic(), 5
    losses = advice.descent(problem, 2 / 4, steps)
    rates = 0.5 * np.array(advice._GRID)[:, None]
    powers = 2 * np.arange(steps + 1)[None]
    expected = sum(h / 2 * np.abs(1 - rates * h) ** powers for h in (4.0, 1.0))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    assert advice.best(losses) == pytest.approx(expected[:, -1].min())
    below, above = advice._limit("q", "limit", "limit", losses)
    assert (below.happened, above.happened) == (True, True)
    flat = np.repeat(losses[:, :1], steps + 1, axis=1)
    assert [row.happened for row in advice._limit("q", "limit", "limit", flat)] == [True, False]


def test_newtons_metric_needs_one_step() -> None:
    problem = _quadratic()
    losses = advice.descent(problem, 1 / 0.9, 1, lambda g: g / jnp.array([4.0, 1.0]))
    assert losses[advice._BELOW, -1] == pytest.approx(0, abs=1e-28)


def test_remedies_of_a_diagnosis_are_applied_as_said() -> None:
    """kappa of what is trained with a remedy is that which the diagnosis told."""
    model = gnjax.models.MLP((4, 5, 5, 3), activation="tanh", key=advice.jax.random.key(1))
    x = np.random.default_rng(0).standard_normal((12, 4)) * np.geomspace(5, 0.2, 4)
    y = np.random.default_rng(1).integers(0, 3, 12)
    problem = advice.Problem("m", *gnjax.functional(model), x, y)
    found = gnjax.diagnose(model, x, y, loss="cross_entropy")
    tried = 0
    for suggestion in found.suggestions:
        made = advice._with(suggestion, problem)
        assert made is not None
        changed, _ = made
        if suggestion.name.startswith(("standardised", "whitened", "skip")):
            kappa = gnjax.condition_number(changed.gram()).value
            assert kappa == pytest.approx(suggestion.after.value, rel=1e-2), suggestion.name
            tried += 1
    assert tried == 3


def test_kinds_have_no_numbers() -> None:
    assert advice.kind_of("learning rate of dense1 x 0.25") == "learning rate of a layer"
    assert advice.kind_of("skip connections beta=1 (best of ..)") == "skip connections"
    assert advice.kind_of("the metric of K-FAC") == "the metric of K-FAC"
