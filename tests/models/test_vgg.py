"""VGG: the forward pass is PyTorch's, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.models import VGG
from gnjax.models.parts import max_pool
from tests.models import outputs
from tests.torch_fixtures import assert_outputs_are_torchs

_KEY = jax.random.key(0)


def test_outputs_are_torchs():
    assert_outputs_are_torchs(VGG(16, 10, key=_KEY), "VGG5")


def test_max_pool_is_a_maximum_over_squares():
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 3))
    corners = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    np.testing.assert_array_equal(max_pool(jnp.asarray(x)), np.max(corners, axis=0))


def test_max_pool_has_the_derivative_of_the_first_maximum():
    x = jnp.asarray([[3.0, 1.0, 3.0, 2.0]]).reshape(1, 2, 2, 1)
    found = jax.grad(lambda x: max_pool(x).sum())(x)
    np.testing.assert_array_equal(found.ravel(), [1.0, 0.0, 0.0, 0.0])


def test_the_compiled_derivative_through_max_pool_is_that_of_single_operations():
    """With ``jnp.max`` it was 0 / 0: XLA computed the entries twice with different rounding."""
    model = VGG(8, 3, filters=(32, 64), channels=1, key=_KEY)
    x = jax.random.normal(jax.random.key(1), (6, 8, 8, 1))
    apply, params = gnjax.functional(model)
    moved = jax.tree.map(lambda leaf: 0.1 * jnp.ones_like(leaf), params)

    def derivative(params):
        return jax.jvp(lambda params: apply(params, x), (params,), (moved,))[1]

    with jax.disable_jit():
        expected = derivative(params)
    np.testing.assert_allclose(jax.jit(derivative)(params), expected, rtol=1e-9, atol=1e-9)


def test_outputs_follow_from_the_filters_asked_for():
    model = VGG(4, 3, filters=(5, 6), channels=1, key=_KEY)
    assert model.head.kernel.shape == (6, 3)
    assert outputs(model, np.ones((2, 4, 4, 1))).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: VGG(8, 10, key=_KEY), "multiple of 16"),
        (lambda: VGG(24, 10, key=_KEY), "multiple of 16"),
        (lambda: VGG(4, 3, filters=(5, 6), key=_KEY)(np.ones((2, 8, 8, 3))), "n, 4, 4, 3"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
