"""Gauss-Newton matrices, kernels and Hessians of models as users write them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from tests.zoo import images, language, others

CASES = {
    "gpt, float32 layers, dropout off": language.gpt,
    "bert, padding mask": language.bert,
    "scanned and rematerialised": language.scanned,
    "gru": language.gru,
    "lstm": language.lstm,
    "vit, float32 layers": images.vit,
    "u-net with group norm": images.unet,
    "batch norm, evaluated": images.batch_norm_evaluated,
    "batch norm and dropout in training": images.batch_norm_training,
    "train state": images.train_state,
    "equinox autoencoder": images.equinox_autoencoder,
    "equinox logistic regression": images.equinox_logistic,
    "haiku resnet": images.haiku_resnet,
    "haiku mlp, huber loss": images.haiku_mlp,
    "graphs": others.graphs,
    "one graph": others.one_graph,
    "mixture of experts": others.experts,
    "deep equilibrium": others.deq,
    "lora": others.lora,
    "two heads": others.two_heads,
    "spectrum inside": others.spectrum_inside,
}


@pytest.fixture(autouse=True)
def _users_rely_on_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def _close(actual, expected, size):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * float(size))


def _flat(outputs):
    leaves = jax.tree.leaves(outputs)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _references(case):
    """J (n k, p), G and H, by dense differentiation of the plain network."""
    chosen = jax.tree.map(jnp.asarray, case.x)
    y = case.options.get("y")
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), gnjax.functional(case.model)[1])
    theta, unravel = ravel_pytree(params)

    def outputs(v):
        return case.reference(unravel(v), chosen)

    def loss(f):
        return case.mean_loss(f, y)

    def compute(v):
        f = outputs(v)
        flat, back = ravel_pytree(f)
        jacobian = jax.jacrev(lambda v: _flat(outputs(v)).reshape(-1))(v)
        rows = jax.jacrev(lambda v: ravel_pytree(outputs(v))[0])(v)
        curvature = jax.hessian(lambda flat: loss(back(flat)))(flat)
        return jacobian, rows.T @ curvature @ rows, jax.hessian(lambda v: loss(outputs(v)))(v)

    sizes = [(str(path), leaf.size) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]
    kept = np.concatenate([np.full(size, case.kept in path) for path, size in sizes])
    j, g, h = (np.asarray(found) for found in jax.jit(compute)(theta))
    return j[:, kept], g[kept][:, kept], h[kept][:, kept]


@pytest.mark.parametrize("name", CASES)
def test_model_equals_dense_differentiation(name):
    """Products with G and H and the whole kernel, to 1e-12 of the largest eigenvalue."""
    case = CASES[name]()
    j, g, h = _references(case)
    v = np.random.default_rng(0).standard_normal((len(g), 2))
    other = {key: value for key, value in case.options.items() if key in ("has_aux", "only")}
    kernel = gnjax.ntk(case.model, case.x, **other)
    assert kernel.net.coupled == case.coupled
    found = [np.asarray(kernel.as_matrix())]
    _close(found[0], j @ j.T, np.linalg.norm(j, 2) ** 2)
    for call, expected in ((gnjax.gauss_newton, g), (gnjax.hessian, h)):
        op = call(case.model, case.x, **case.options)
        size = np.abs(np.linalg.eigvalsh(expected)).max() * np.linalg.norm(v)
        _close(op.mv(jnp.asarray(v)), expected @ v, size)
