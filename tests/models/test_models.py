"""LinearNet: its Gauss-Newton matrix by automatic differentiation is the closed form."""

import jax
import jax.flatten_util
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from gnjax import papers
from gnjax.models import CNN, MLP
from gnjax.models.linear import LinearNet, weights
from tests import references


def _split(model):
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    return lambda p, x: nnx.merge(graph, p, rest)(x), params


@settings(max_examples=12)
@given(
    depth=st.integers(1, 4),
    hidden=st.lists(st.sampled_from([1, 3, 6]), min_size=4, max_size=4),
    skip=st.sampled_from([0.0, 1.0, 0.4, -0.5]),
    initializer=st.sampled_from(["kaiming_normal", "xavier_uniform", "orthogonal"]),
    seed=st.integers(0, 2**31 - 1),
)
def test_three_roads_to_the_gauss_newton_matrix(depth, hidden, skip, initializer, seed):
    """Autodiff on the parameter side, Eqs 4-7 written out, and the operator: to 1e-10."""
    d, k, n = 5, 3, 9
    model = LinearNet(
        d,
        k,
        depth=depth,
        width=hidden[: depth - 1],
        skip=skip,
        initializer=initializer,
        key=jax.random.key(seed),
    )
    x = np.random.default_rng(seed).standard_normal((n, d))
    sigma = x.T @ x / n
    apply, params = _split(model)
    auto = np.linalg.eigvalsh(references.gauss_newton(apply, params, x))[::-1]
    op = papers.linear_gauss_newton(weights(model), sigma, skip)
    written = references.linear_gauss_newton(weights(model), sigma, skip)
    np.testing.assert_allclose(op.as_matrix(), written, atol=1e-10 * auto[0])
    closed = np.linalg.eigvalsh(written)[::-1]
    common = min(len(auto), len(closed))
    np.testing.assert_allclose(closed[:common], auto[:common], atol=1e-10 * auto[0])
    assert np.abs(auto[common:]).max(initial=0) <= 1e-10 * auto[0]
    assert np.abs(closed[common:]).max(initial=0) <= 1e-10 * auto[0]


def test_forward_is_the_product_of_shifted_weights():
    model = LinearNet(4, 2, depth=3, width=(5, 3), skip=0.7, key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((6, 4))
    product = np.eye(4)
    for w in weights(model):
        product = (np.asarray(w) + 0.7 * np.eye(*w.shape)) @ product
    np.testing.assert_allclose(model(x), x @ product.T, rtol=1e-12)
    np.testing.assert_allclose(nnx.jit(model)(x), x @ product.T, rtol=1e-12)


def test_balanced_network_keeps_its_singular_values():
    model = LinearNet(
        6,
        4,
        depth=3,
        width=5,
        initializer="balanced",
        key=jax.random.key(1),
        singular_values=[0.9, 0.5],
    )
    w1, w2, w3 = (np.asarray(w) for w in weights(model))
    np.testing.assert_allclose(w2.T @ w2, w1 @ w1.T, atol=1e-14)
    np.testing.assert_allclose(
        np.linalg.svd(w3 @ w2 @ w1, compute_uv=False)[:2], [0.9**3, 0.5**3], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"depth": 0, "width": 3}, "depth 0"),
        ({"depth": 2, "width": 0}, "at least 1"),
        ({"depth": 3, "width": (4,)}, "2 hidden layers, but 1"),
        ({"depth": 2, "width": 3, "skip": np.nan}, "skip"),
        ({"depth": 2, "width": 3, "initializer": "kaimng_normal"}, "did you mean 'kaiming_normal'"),
    ],
)
def test_bad_models_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        LinearNet(4, 2, key=jax.random.key(0), **arguments)


def test_inputs_of_the_wrong_width_are_refused():
    model = LinearNet(4, 2, depth=2, width=3, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"\(n, 4\)"):
        model(np.ones((3, 5)))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((784, 10), {"filters": (8,)}, r"shape=784 is not .*CNN\(\(28, 28, 1\), 10"),
        (((8, 8), 10), {"filters": (8,)}, r"shape=\(8, 8\) is not \(height, width, channels\)"),
        (((8, 8, 1), 10), {"filters": 8}, r"filters=8 is not a list"),
        (((8, 8, 1), 10), {"filters": (8,), "kernel_size": 3}, "did you mean kernel=?"),
        (((8, 8, 1), 10), {"filters": (8,), "channels": (8,)}, "it takes shape, outputs, filters"),
    ],
)
def test_guessed_arguments_of_a_cnn_are_refused_with_the_right_ones(arguments, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        CNN(*arguments, key=jax.random.key(0), **options)
    with pytest.raises(TypeError, match="no argument activatoin=; did you mean activation="):
        MLP((3, 2), activatoin="tanh", key=jax.random.key(0))
    CNN((4, 4, 1), 2, filters=(3,), gain=1.0, key=jax.random.key(0))  # of the initialiser
    MLP((4, 4), initializer="balanced", singular_values=[0.9, 0.5, 1, 1], key=jax.random.key(0))
