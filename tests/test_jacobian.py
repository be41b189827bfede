"""Products from a stored Jacobian are those of the operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax import jacobian as module
from gnjax import spectrum
from tests.networks import CASES


def _made(model, x, kind, **options):
    if kind == "ntk":
        return gnjax.ntk(model, x, **options)
    return gnjax.gauss_newton(model, x, loss="cross_entropy", side=kind, **options)


def _agree(op):
    """With the operator's own products, which test_curvature compares with dense matrices."""
    kept = gnjax.with_jacobian(op)
    assert (kept.shape, kept.dtype) == (op.shape, op.dtype)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((op.shape[0], 3)))
    expected = np.asarray(op.mv(v))
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(kept.mv(v), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(kept.mv(v[:, 0]), expected[:, 0], rtol=0, atol=atol)
    return kept


@pytest.mark.parametrize("kind", ["parameters", "outputs", "ntk"])
@pytest.mark.parametrize("case", ["cnn with stride", "batch norm of the batch", "attention"])
def test_products_are_those_of_the_operator(case, kind):
    _agree(_made(*CASES[case](), kind))


@pytest.mark.parametrize("side", ["parameters", "outputs"])
def test_batches_masks_and_filters_in_several_blocks(side, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1e3)
    model, x = CASES["mlp relu"]()
    _, params = gnjax.functional(model)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 3 > 0, params)
    kept = _agree(_made(model, x, side, mask=mask, only="dense[12]/*", batch_size=3))
    assert len(kept.blocks) > 1


def test_eigenvalues_have_the_error_of_the_network():
    model, x = CASES["cnn with stride"]()
    op = gnjax.ntk(model, x)
    kept = gnjax.with_jacobian(op)
    error = spectrum.formation_error(op, 1.0)
    assert error > 0
    assert spectrum.formation_error(kept, 1.0) == error
    assert spectrum.formation_error(gnjax.linearised(op), 1.0) == error
    found = gnjax.eigenvalues(kept)
    np.testing.assert_allclose(found.values, gnjax.eigenvalues(op).values, rtol=1e-9, atol=1e-12)


def test_a_jacobian_larger_than_the_memory_given_is_refused():
    op = gnjax.ntk(*CASES["mlp relu"]())
    size = 8 * op.shape[0] * op.net.parameters
    assert gnjax.with_jacobian(op, memory=size).shape == op.shape
    with pytest.raises(ValueError, match=r"takes 0\.0 GB and memory=1 bytes; pass memory="):
        gnjax.with_jacobian(op, memory=1)
    with pytest.raises(ValueError, match="pass memory="):
        gnjax.with_jacobian(op, memory=float("nan"))


def test_what_has_no_jacobian_is_refused():
    model, x = CASES["mlp relu"]()
    hessian = gnjax.hessian(model, x, np.zeros((len(x), 3)))
    for op in (gnjax.dense(np.eye(3)), hessian, np.eye(3)):
        with pytest.raises(ValueError, match=f"have a Jacobian to store, got {type(op).__name__}"):
            gnjax.with_jacobian(op)
