"""Products from one linearisation are those of the operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
import gnjax.linearisation as module
from gnjax.linearisation import Linearised, linearised
from tests.networks import CASES

_MAKERS = {
    "parameters": lambda *a: gnjax.gauss_newton(*a, loss="cross_entropy", side="parameters"),
    "outputs": lambda *a: gnjax.gauss_newton(*a, loss="cross_entropy", side="outputs"),
    "ntk": gnjax.ntk,
    "hessian": lambda model, x: gnjax.hessian(
        model, x, np.zeros(len(x), int), loss="cross_entropy"
    ),
    "functional": lambda model, x: gnjax.functional_hessian(model, x, np.ones((len(x), 3))),
}


def _agree(op, columns):
    """With the operator's own products, which test_curvature compares with dense matrices."""
    kept = linearised(op)
    assert isinstance(kept, Linearised)
    assert (kept.shape, kept.dtype) == (op.shape, op.dtype)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((op.shape[0], columns)))
    expected = np.asarray(op.mv(v))
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(kept.mv(v), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(kept.mv(v[:, 0]), expected[:, 0], rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("cnn with stride", "parameters"),
        ("cnn with stride", "outputs"),
        ("batch norm of the batch", "parameters"),
        ("linen, tied", "ntk"),
        ("mlp relu", "hessian"),
        ("mlp relu", "functional"),
    ],
)
def test_products_are_those_of_the_operator(case, kind):
    _agree(_MAKERS[kind](*CASES[case]()), columns=2)


@pytest.mark.parametrize("side", ["parameters", "outputs"])
def test_batches_masks_and_filters(side):
    model, x = CASES["mlp relu"]()
    _, params = gnjax.functional(model)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 3 > 0, params)
    options = {"mask": mask, "only": "dense[12]/*", "batch_size": 3}
    _agree(gnjax.gauss_newton(model, x, side=side, **options), columns=2)


def test_what_does_not_fit_is_left_as_it_is(monkeypatch):
    model, x = CASES["mlp relu"]()
    op = gnjax.ntk(model, x)
    monkeypatch.setattr(module, "_KEPT_BYTES", 100.0)
    assert linearised(op) is op


def test_other_operators_are_left_as_they_are():
    op = gnjax.dense(np.eye(3))
    assert linearised(op) is op
