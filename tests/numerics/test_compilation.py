"""Programs that are compiled sooner compute the same, also where XLA knows no such option."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.numerics import compilation

X = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)))


@pytest.fixture
def forgotten(monkeypatch):
    """Leaves nothing behind that was compiled with other options."""
    yield
    monkeypatch.undo()
    compilation._options.cache_clear()
    compilation._jitted.cache_clear()


@pytest.mark.parametrize("known", [True, False])
def test_the_same_is_computed(known, forgotten, monkeypatch):
    if not known:
        monkeypatch.setattr(compilation, "_SOONER", {"xla_no_such_option": False})
    compilation._options.cache_clear()
    compilation._jitted.cache_clear()
    traced = []

    def function(x, y):
        traced.append(1)
        return jnp.tanh(x @ y.T).sum(axis=0), x.shape

    found = compilation.compiled_soon(function)
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(found(X, scale * X)[0], function(X, scale * X)[0], rtol=1e-6)
    assert len(traced) == 3  # two by hand, and one for both calls
    assert (compilation._options() is None) != known


def test_an_option_that_is_taken_reaches_the_compiler(forgotten, monkeypatch):
    compilation._jitted.cache_clear()
    monkeypatch.setattr(compilation, "_options", lambda: {"xla_no_such_option": False})
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        compilation.compiled_soon(lambda x: x + 1)(X)
