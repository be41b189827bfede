"""A gap inside the non-zero spectrum, and the epsilon of a normalisation as its cause."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gnjax
from gnjax.models import LinearNet


@pytest.mark.parametrize("method", ["dense", "factored"])
def test_kappa_without_the_eigenvalues_below_the_widest_gap(method: str) -> None:
    sigma = np.array([2.0, 1.5, 1.0, 0.9, 1e-2, 9e-3, 1e-6])
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((7, 7)))[0]
    kappa = gnjax.condition_number(gnjax.factored(rotation * sigma), method=method)
    assert kappa.below_gap == 1
    assert kappa.above_gap is not None
    assert kappa.above_gap[0] <= (2.0 / 9e-3) ** 2 <= kappa.above_gap[1]
    assert "without the smallest eigenvalue, below a gap, 4.94e+04" in str(kappa)


@given(st.lists(st.floats(-8, 0), min_size=2, max_size=9))
def test_property_the_gap_is_one_of_the_spectrum(exponents: list[float]) -> None:
    eigenvalues = np.sort(10.0 ** np.array(exponents))[::-1]
    kappa = gnjax.condition_number(gnjax.diagonal(eigenvalues))
    quotients = eigenvalues[:-1] / eigenvalues[1:]
    in_lower_half = quotients[len(eigenvalues) // 2 :]
    if kappa.below_gap:
        assert kappa.above_gap is not None
        place = len(eigenvalues) - kappa.below_gap - 1
        assert quotients[place] == in_lower_half.max() >= 1000
        low, high = kappa.above_gap
        assert low <= eigenvalues[0] / eigenvalues[place] <= high
    else:
        assert in_lower_half.max(initial=1.0) <= 1000 * (1 + 1e-9)


def test_an_iteration_does_not_know_of_gaps() -> None:
    matrix = np.diag(np.linspace(1, 2, 400))
    assert gnjax.condition_number(matrix, method="krylov").below_gap is None
    assert gnjax.condition_number(matrix, method="dense").below_gap == 0


def _normalised(epsilon: float):
    """Outputs W LayerNorm(V x) as a function of their parameters, and the parameters.

    With a shift b beside V other directions would make up for the size of V, exactly.
    """
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "V": 2 * jax.random.normal(keys[0], (3, 6)),
        "W": jax.random.normal(keys[1], (6, 2)),
    }

    def apply(params, x):
        hidden = x @ params["V"]
        centred = hidden - hidden.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred / jnp.sqrt(variance + epsilon) @ params["W"]

    return apply, params


def test_the_epsilon_of_a_normalisation_is_named_as_the_cause() -> None:
    """The smallest eigenvalue goes with epsilon^2, and scaling V is the cause.

    The second way is the dense matrix: the curvature of that one direction by a forward product.
    """
    x = jax.random.normal(jax.random.key(4), (40, 3))
    found = {}
    for epsilon in (1e-4, 1e-5):
        model = _normalised(epsilon)
        diagnosis = gnjax.diagnose(model, x)
        condition = diagnosis.condition
        assert condition.below_gap == 1
        apply, params = model
        direction = {"V": params["V"], "W": jnp.zeros_like(params["W"])}
        image = jax.jvp(partial(apply, x=x), (params,), (direction,))[1]
        assert diagnosis.rescaling is not None
        assert condition.lambda_min <= diagnosis.rescaling * (1 + 1e-6)
        length = sum(float(jnp.sum(leaf**2)) for leaf in direction.values())
        # v . w = 1 asks for more than |w| = 1, and less than the angle of w and v allows.
        by_hand = float(jnp.sum(image**2)) / len(x) / length
        assert diagnosis.rescaling < 100 * by_hand
        assert "then kappa depends on that epsilon" in " ".join(str(diagnosis).split())
        found[epsilon] = condition
    small, large = found[1e-5], found[1e-4]
    assert math.isclose(small.value / large.value, 100, rel_tol=0.01)
    assert small.above_gap is not None
    assert large.above_gap is not None
    assert math.isclose(small.above_gap[0], large.above_gap[0], rel_tol=1e-3)


def test_a_gap_of_another_cause_is_told_without_it() -> None:
    """An input that is nearly constant makes a small eigenvalue, which no rescaling explains."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 4)) * [1, 1, 1, 1e-4]
    model = LinearNet(4, 1, depth=1, width=4, key=jax.random.key(0))
    diagnosis = gnjax.diagnose(model, x)
    assert diagnosis.condition.below_gap == 1
    text = " ".join(str(diagnosis).split())
    assert "below a gap, kappa is" in text
    assert "epsilon" not in text
