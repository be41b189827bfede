"""Numbers that stand in the equations: Python's, NumPy's and JAX's own, against dense Jacobians.

Class of faults: a number of one of these types has no shape, or no dtype, and an answer ends with
an exception. Found where integers that hold a zero are multiplied with a decimal: 0.1 * i may have
underflowed, so that its operands are looked at.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import jet

import gnjax
from gnjax.networks.jaxprs import ALL_CALLS, evaluate
from tests.references import jacobian

RNG = np.random.default_rng(0)
TOKENS = RNG.standard_normal((3, 4, 5))
PARAMS = {"in": RNG.standard_normal((5, 5)) / 2, "out": RNG.standard_normal((5, 2))}


def _sinusoids(p: Any, x: jax.Array) -> jax.Array:
    angles = (jnp.arange(4) * 0.1)[None, :, None] * 10.0 ** -jnp.arange(5)[None, None]
    return jnp.tanh((x + jnp.sin(angles)) @ p["in"]).mean(axis=1) @ p["out"]


def _slopes(p: Any, x: jax.Array) -> jax.Array:
    """Attention that falls off with the distance, as ALiBi does."""
    far = jnp.abs(jnp.arange(4)[:, None] - jnp.arange(4)[None]) * -0.25
    scores = jnp.einsum("ntd,de,nse->nts", x, p["in"], x) + far[None]
    return (jax.nn.softmax(scores) @ x).mean(axis=1) @ p["out"]


def _flow(p: Any, x: jax.Array) -> jax.Array:
    """Euler's method, where the field depends on the time t = 0.1 i."""

    def step(i: Any, h: jax.Array) -> jax.Array:
        return h + 0.1 * jnp.tanh(h @ p["in"] + i * 0.1)

    return jax.lax.fori_loop(0, 3, step, x.mean(axis=1)) @ p["out"]


def _scanned(p: Any, x: jax.Array) -> jax.Array:
    def step(h: jax.Array, i: Any) -> tuple[jax.Array, None]:
        return jnp.tanh(h @ p["in"] + i * 0.5), None

    return jax.lax.scan(step, x.mean(axis=1), jnp.arange(3))[0] @ p["out"]


def _taylor(p: Any, x: jax.Array) -> jax.Array:
    """The second derivative along one input, in Taylor arithmetic."""

    def second(row: jax.Array) -> jax.Array:
        series = ([jnp.eye(5)[0], jnp.zeros(5)],)
        return jet.jet(lambda z: jnp.tanh(z @ p["in"]) @ p["out"], (row,), series)[1][1]

    return jax.vmap(second)(x[:, 0])


MODELS = {f.__name__: f for f in (_sinusoids, _slopes, _flow, _scanned, _taylor)}


@pytest.mark.parametrize("name", MODELS)
def test_integers_times_decimals(name: str) -> None:
    found = gnjax.eigenvalues(gnjax.ntk((MODELS[name], PARAMS), TOKENS))
    truth = np.linalg.svd(jacobian(MODELS[name], PARAMS, TOKENS), compute_uv=False) ** 2
    assert (np.abs(found.values[: len(truth)] - truth) <= found.errors + 1e-13 * truth[0]).all()
    assert found.errors.max() < 1e-10 * truth[0]


def test_every_number_in_an_equation_is_an_array_of_its_type() -> None:
    def function(x: jax.Array) -> jax.Array:
        y = jnp.where(x > 0, x * 2.5 + np.float64(1.5), jnp.asarray(0.5)) ** 2.7
        return y + jnp.float32(2.0) * jnp.arange(3) + jax.lax.select(True, x, x) + 3 * x

    closed = jax.make_jaxpr(function)(jnp.ones(3))
    met = []

    def bind(eqn: Any, operands: Any) -> Any:
        met.extend(zip(operands, eqn.invars, strict=True))
        return [np.ones(v.aval.shape, v.aval.dtype) for v in eqn.outvars][
            slice(None) if eqn.primitive.multiple_results else 0
        ]

    evaluate(closed.jaxpr, closed.consts, [np.ones(3)], bind, ALL_CALLS)
    assert len(met) > 12
    for operand, v in met:
        assert (operand.shape, operand.dtype) == (v.aval.shape, v.aval.dtype)
