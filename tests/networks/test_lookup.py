"""An embedding enters kernels and products by the places that it looks up, never as a Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks import jacobians
from gnjax.networks.kernels import sample_blocks
from tests.references import jacobian

_WORDS, _WIDTH, _TOKENS, _SAMPLES = 30, 3, 4, 5


def _apply(params, x, mode=None):
    rows = jnp.take(params["table"], x.astype(int), axis=0, mode=mode)  # (n, t, q)
    return jnp.tanh(rows).mean(axis=1) @ params["last"]


@pytest.fixture(scope="module")
def problem():
    """Tokens that repeat within samples and between them."""
    rng = np.random.default_rng(0)
    params = {
        "last": rng.standard_normal((_WIDTH, 2)),
        "table": rng.standard_normal((_WORDS, _WIDTH)),
    }
    x = rng.integers(0, 6, (_SAMPLES, _TOKENS)).astype(float)
    assert any(len(set(row)) < _TOKENS for row in x)
    return params, x


def _jacobian(apply, params, x):
    return np.asarray(jacobian(apply, params, x))


def _forms(op):
    items = jacobians.items_of(op.net, jacobians.sample_trace(op.net))
    return [item.form for item in items]


@pytest.mark.parametrize("mode", [None, "clip"])
def test_the_kernel_is_that_of_the_jacobian(problem, mode):
    params, x = problem

    def apply(params, x):
        return _apply(params, x, mode)

    op = gnjax.ntk((apply, params), x)
    assert _forms(op) == ["vectors", "places"]
    j = _jacobian(apply, params, x)
    exact = j @ j.T
    np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_blocks_of_different_samples_are_added_up(problem, monkeypatch):
    monkeypatch.setattr(sample_blocks, "_BLOCK", 2)  # of 5 samples: the last block is smaller
    params, x = problem
    j = _jacobian(_apply, params, x)
    exact = j @ j.T
    kernel = gnjax.ntk((_apply, params), x).as_matrix()
    np.testing.assert_allclose(kernel, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_places_beyond_the_table_are_clipped_as_jax_clips_them(problem):
    params, x = problem
    x = x.copy()
    x[0, 0], x[1, 1] = _WORDS + 7, _WORDS - 1  # the same row

    def apply(params, x):
        return _apply(params, x, "clip")

    j = _jacobian(apply, params, x)
    exact = j @ j.T
    kernel = gnjax.ntk((apply, params), x).as_matrix()
    np.testing.assert_allclose(kernel, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_masked_tables_and_stored_jacobians(problem):
    """The other roads: rows for masked entries, places and sensitivities for products."""
    params, x = problem
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 2 == 0, params)
    kept = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(mask)])
    j = _jacobian(_apply, params, x)
    masked = gnjax.gauss_newton((_apply, params), x, mask=mask).as_matrix()
    exact = j[:, kept].T @ j[:, kept] / _SAMPLES
    np.testing.assert_allclose(masked, exact, rtol=0, atol=1e-13 * np.abs(exact).max())
    op = gnjax.gauss_newton((_apply, params), x)
    fast = gnjax.with_jacobian(op)
    assert [item.form for item in fast.items][1] == "pair"
    v = np.random.default_rng(1).standard_normal(op.shape[0])
    exact = j.T @ (j @ v) / _SAMPLES
    np.testing.assert_allclose(fast.mv(v), exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_columns_that_are_taken_are_left_to_differentiation(problem):
    params, x = problem

    def apply(params, x):
        columns = jnp.take(params["table"], x.astype(int) % _WIDTH, axis=1)  # (V, n, t)
        return jnp.tanh(columns).mean(axis=2).T[:, :_WIDTH] @ params["last"]

    op = gnjax.ntk((apply, params), x)
    assert _forms(op) == ["vectors", "columns"]
    j = _jacobian(apply, params, x)
    exact = j @ j.T
    np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=1e-13 * np.abs(exact).max())
