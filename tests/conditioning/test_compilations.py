"""Asking again, with other weights or a function written down again, compiles nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax

_COMPILED = "/jax/core/compile/backend_compile_duration"
X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.arange(30) % 3
FEW = gnjax.Limits(whole_rows=5)


_SEEN: list[float] = []


def _note(event, seconds, **rest):
    if event == _COMPILED:
        _SEEN.append(seconds)


jax.monitoring.register_event_duration_secs_listener(_note)


def compiled(ask, model):
    """How many programs are compiled on the way to an answer."""
    before = len(_SEEN)
    ask(model)
    return len(_SEEN) - before


def network(p, x):
    return jnp.tanh(x @ p["w"] + p["b"][None]) @ p["v"]


def plain(seed):
    """A fresh lambda around the same function."""
    shapes = {"w": (4, 6), "b": (6,), "v": (6, 3)}
    rng = np.random.default_rng(seed)
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return (lambda p, x: network(p, x)), params


def module(seed):
    return gnjax.models.MLP((4, 6, 3), activation="tanh", key=jax.random.key(seed))


ROADS = {
    "kappa": lambda m: gnjax.condition_number(gnjax.gauss_newton(m, X, loss="cross_entropy")),
    "spectrum": lambda m: gnjax.eigenvalues(gnjax.ntk(m, X)),
    "few": lambda m: gnjax.eigenvalues(
        gnjax.hessian(m, X, Y, loss="cross_entropy"), k=2, which="largest", limits=FEW
    ),
    "trace": lambda m: gnjax.trace(gnjax.gauss_newton(m, X), probes=3),
}


@pytest.mark.parametrize("model", [plain, module])
@pytest.mark.parametrize("road", ROADS)
def test_new_weights_compile_nothing(road, model):
    ask = ROADS[road]
    ask(model(0))
    assert not compiled(ask, model(1))


def test_a_new_function_compiles():
    """As the counter must be able to see."""
    assert compiled(lambda model: jax.jit(lambda v: v + 1)(np.zeros(7)), None) == 1
    made, params = plain(0)
    ROADS["trace"]((made, params))
    assert compiled(ROADS["trace"], (lambda p, x: 2 * network(p, x), params)) > 0


def test_a_first_answer_takes_few_programs():
    """Every one costs 10 ms to 1 s. Conversions of dtypes are among them."""
    jax.clear_caches()
    assert compiled(ROADS["kappa"], module(0)) <= 30
