"""Asking again, with other weights or a function written down again, compiles nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from tests.compiled import compiled

X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.arange(30) % 3


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


def kappa(model):
    return gnjax.condition_number(gnjax.gauss_newton(model, X, loss="cross_entropy"))


def few(model):
    """Of a Hessian, which has no smaller twin."""
    op = gnjax.hessian(model, X, Y, loss="cross_entropy")
    return gnjax.eigenvalues(op, k=2, which="largest", limits=gnjax.Limits(whole_rows=5))


def spectrum(model):
    """Of a kernel, which is formed."""
    return gnjax.eigenvalues(gnjax.ntk(model, X))


@pytest.mark.parametrize("model", [plain, module])
@pytest.mark.parametrize("ask", [few, spectrum])
def test_new_weights_compile_nothing(ask, model):
    """Of other matrices than a Gauss-Newton one, for which every question is asked in contracts."""
    ask(model(0))
    assert not compiled(ask, model(1))


def test_a_new_function_compiles():
    """As the counter must be able to see."""
    assert compiled(lambda model: jax.jit(lambda v: v + 1)(np.zeros(7)), None) == 1
    made, params = plain(0)
    kappa((made, params))
    assert compiled(kappa, (lambda p, x: 2 * network(p, x), params)) > 0


def test_a_first_answer_takes_few_programs():
    """Every one costs 10 ms to 1 s. Conversions of dtypes are among them."""
    jax.clear_caches()
    assert compiled(kappa, module(0)) <= 30
