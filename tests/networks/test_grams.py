"""J J^T in blocks of samples and groups of parameters, beside J by automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.kernels import cross_gram, masked, sample_blocks
from tests.references import jacobian


def _network(p, x):
    """A convolution, a dense layer on every position, and two on one position."""
    h = jax.lax.conv_general_dilated(
        x, p["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = jnp.tanh(jnp.tanh(h) @ p["each"])
    h = jnp.tanh(h.reshape(len(x), -1) @ p["hidden"] + p["bias"][None])
    return h @ p["head"]


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    shapes = {"conv": (3, 3, 1, 2), "each": (2, 3), "hidden": (27, 4), "bias": (4,), "head": (4, 2)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x = rng.standard_normal((7, 3, 3, 1))
    j = np.asarray(jacobian(_network, params, x))
    return params, x, j @ j.T


@pytest.mark.parametrize("block", [1, 3, 7, 128])
@pytest.mark.parametrize("held", [0.0, 1000.0, 4000.0, 3e9])
def test_blocks_and_groups(case, monkeypatch, block, held):
    """Blocks that reach back, and rows of several groups in the same memory or computed anew."""
    params, x, kernel = case
    monkeypatch.setattr(sample_blocks, "_BLOCK", block)
    monkeypatch.setattr(sample_blocks, "LIMITS", gnjax.Limits(kernel_bytes=held))
    found = gnjax.ntk((_network, params), x).as_matrix()
    np.testing.assert_allclose(found, kernel, atol=1e-13 * np.abs(kernel).max(), rtol=0)


def test_a_share_by_blas_and_by_xla():
    rng = np.random.default_rng(0)
    left, right = (
        (
            jax.device_put(rng.standard_normal((n, 6))),
            jax.device_put(rng.standard_normal((n, 3, 5))),
        )
        for n in (4, 2)
    )
    block = np.ones((4, 3, 2, 3))
    sample_blocks._add_structured(block, left, right, np.s_[0:, :, 0:])
    np.testing.assert_allclose(block - 1, sample_blocks._over_vectors(left, right), atol=1e-13)


@pytest.mark.parametrize("block", [1, 3, 7, 128])
@pytest.mark.parametrize("held", [0.0, 1000.0, 3e9])
def test_masked_dense_layers_need_no_rows(case, monkeypatch, block, held):
    """A unit without inputs, an input without units, and a layer that stays whole."""
    params, x, _ = case
    rng = np.random.default_rng(1)
    mask = {name: rng.random(value.shape) < 0.6 for name, value in params.items()}
    mask["head"] = np.ones_like(mask["head"])
    mask["hidden"][:, 1] = mask["hidden"][5] = False
    j = np.asarray(jacobian(_network, params, x))
    j = j[:, np.concatenate([mask[name].ravel() for name in sorted(mask)])]
    monkeypatch.setattr(masked, "_GAIN", 0)
    monkeypatch.setattr(sample_blocks, "_BLOCK", block)
    monkeypatch.setattr(sample_blocks, "LIMITS", gnjax.Limits(kernel_bytes=held))
    formed = []
    monkeypatch.setattr(masked, "add", lambda *a, add=masked.add: formed.append(a) or add(*a))
    found = gnjax.ntk((_network, params), x, mask=mask).as_matrix()
    np.testing.assert_allclose(found, j @ j.T, atol=1e-13 * np.abs(j @ j.T).max(), rtol=0)
    assert formed
    near, far = (gnjax.ntk((_network, params), some, mask=mask).net for some in (x[:5], x[5:]))
    crossed = cross_gram(near, far)
    np.testing.assert_allclose(crossed, found[:10, 10:], atol=1e-13 * np.abs(found).max(), rtol=0)
