"""MLP, CNN and LinearCNN: what they compute, against numpy and scipy, and BatchNorm's two modes."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.special
from flax import nnx

from gnjax.models import CNN, MLP, LinearCNN, freeze_statistics
from gnjax.models.mlp import mlp_weights
from gnjax.models.parts import normalisation
from gnjax.papers import toeplitz
from gnjax.papers.closed_form.normalised import layer_norm_gauss_newton
from tests.models import outputs

_PHI = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z >= 0, z, 0.2 * z),
    "tanh": np.tanh,
    "gelu": lambda z: z * scipy.special.ndtr(z),
    "linear": lambda z: z,
}


def _x(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def _shift(model, seed=1):
    """Every bias and scale away from where it starts."""
    rng = np.random.default_rng(seed)
    for _, node in nnx.iter_graph(model):
        for name in ("bias", "scale"):
            value = getattr(node, name, None)
            if isinstance(value, nnx.Param):
                value[...] = jax.device_put(np.asarray(value) + rng.standard_normal(value.shape))


def _normalise(z, norm, layer):
    """(z - mean) / sqrt(var + eps), over samples and positions or over features, and affine."""
    if norm is None:
        return z
    axes = tuple(range(z.ndim - 1)) if norm == "batch" else -1
    centred = z - z.mean(axes, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + layer.epsilon)
    return scaled * np.asarray(layer.scale[...]) + np.asarray(layer.bias[...])


@pytest.mark.parametrize(
    ("activation", "norm"),
    [*((name, None) for name in _PHI), ("linear", "batch"), ("tanh", "batch"), ("relu", "layer")],
)
def test_mlp_is_its_formula(activation, norm):
    model = MLP((5, 7, 6, 3), activation=activation, slope=0.2, norm=norm, key=jax.random.key(0))
    _shift(model)
    x = _x(9, 5)
    expected = x
    for layer, w in enumerate(mlp_weights(model), start=1):
        expected = expected @ np.asarray(w).T + np.asarray(getattr(model, f"dense{layer}").bias)
        if layer < 3:
            expected = _normalise(expected, norm, getattr(model, f"norm{layer}"))
            expected = _PHI[activation](expected)
    np.testing.assert_allclose(outputs(model, x), expected, rtol=1e-11, atol=1e-12)


def test_all_normalisations_have_the_epsilon_of_the_closed_form():
    closed = inspect.signature(layer_norm_gauss_newton).parameters["epsilon"].default
    layers = [normalisation(norm, 3, rngs=nnx.Rngs(0)) for norm in ("batch", "layer")]
    assert {layer.epsilon for layer in layers} == {closed}


@pytest.mark.parametrize(("stride", "norm"), [(1, None), (2, "batch"), (2, "layer")])
def test_cnn_is_its_formula(stride, norm):
    model = CNN(
        (7, 6, 2), 3, filters=(4, 5), stride=stride, padding=1, norm=norm, key=jax.random.key(0)
    )
    _shift(model)
    x = _x(4, 7, 6, 2)
    expected = x
    for layer in (1, 2):
        conv = getattr(model, f"conv{layer}")
        expected = _convolve(expected, np.asarray(conv.kernel[...]), stride)
        expected = expected + np.asarray(conv.bias[...])
        expected = np.maximum(_normalise(expected, norm, getattr(model, f"norm{layer}")), 0)
    expected = expected.reshape(4, -1) @ np.asarray(model.head.kernel[...])
    expected = expected + np.asarray(model.head.bias[...])
    np.testing.assert_allclose(outputs(model, x), expected, rtol=1e-11, atol=1e-12)


def _convolve(x, kernel, stride):
    """Cross-correlation by scipy with one zero on each side, channel by channel."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    maps = [
        sum(
            scipy.signal.correlate(image[..., j], kernel[..., j, i], "valid", "direct")
            for j in range(kernel.shape[2])
        )
        for image in padded
        for i in range(kernel.shape[3])
    ]
    stacked = np.array(maps).reshape(len(x), kernel.shape[3], *maps[0].shape)
    return stacked.transpose(0, 2, 3, 1)[:, ::stride, ::stride]


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), (3, 2)])
def test_linear_cnn_is_head_times_toeplitz(stride, padding):
    model = LinearCNN(
        9, 2, filters=3, kernel=4, stride=stride, padding=padding, key=jax.random.key(0)
    )
    x = _x(5, 9)
    convolution = toeplitz(model.kernels[...], 9, stride, padding)
    matrix = np.asarray(model.head[...]) @ np.asarray(convolution)
    np.testing.assert_allclose(outputs(model, x), x @ matrix.T, rtol=1e-12, atol=1e-13)
    assert len(jax.tree.leaves(nnx.state(model, nnx.Param))) == 2


@pytest.mark.parametrize(
    "model",
    [
        lambda: MLP((4, 6, 5, 3), activation="tanh", norm="batch", key=jax.random.key(0)),
        lambda: CNN((4, 5, 2), 3, filters=(3, 4), kernel=2, norm="batch", key=jax.random.key(0)),
    ],
)
def test_frozen_statistics_are_those_of_the_batch(model):
    """On the batch both modes agree; one example alone then gives its own row."""
    model = model()
    _shift(model)
    shape = (4,) if isinstance(model, MLP) else (4, 5, 2)
    x = _x(8, *shape)
    before = jax.tree.leaves(nnx.state(model, nnx.BatchStat))
    frozen = freeze_statistics(model, x)
    for old, new in zip(before, jax.tree.leaves(nnx.state(model, nnx.BatchStat)), strict=True):
        np.testing.assert_array_equal(old, new)
    trained = np.asarray(outputs(model, x))
    np.testing.assert_allclose(outputs(frozen, x), trained, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(outputs(frozen, x[:1]), trained[:1], rtol=1e-12, atol=1e-13)
    assert np.abs(outputs(model, x[:2]) - trained[:2]).max() > 1e-3
    assert frozen.norm1.momentum == model.norm1.momentum
    model.eval()
    assert np.abs(outputs(model, x) - trained).max() > 1e-3
    model.train()
    np.testing.assert_allclose(outputs(model, x), trained, rtol=1e-12)


def test_statistics_are_frozen_whatever_was_stored_before():
    """As after a training that diverged."""
    model = MLP((4, 6, 2), norm="batch", key=jax.random.key(0))
    x = _x(8, 4)
    expected = np.asarray(outputs(freeze_statistics(model, x), x))
    model.norm1.mean[...] = jnp.full(6, jnp.inf)
    model.norm1.var[...] = jnp.full(6, jnp.nan)
    np.testing.assert_array_equal(outputs(freeze_statistics(model, x), x), expected)


def test_batch_norm_goes_through_the_statistics():
    """In training mode the outputs do not change when a hidden weight is scaled; frozen they do."""
    model = MLP((4, 6, 2), activation="linear", norm="batch", bias=False, key=jax.random.key(0))
    model.norm1.epsilon = 0.0
    x = _x(8, 4)
    frozen = freeze_statistics(model, x)
    trained = np.asarray(outputs(model, x))
    for net in (model, frozen):
        net.dense1.kernel[...] = jax.device_put(3 * np.asarray(net.dense1.kernel))
    np.testing.assert_allclose(outputs(model, x), trained, rtol=1e-10)
    assert np.abs(outputs(frozen, x) - trained).max() > 1e-2


def test_parameters_are_named_and_typed():
    model = MLP((4, 6, 2), norm="batch", key=jax.random.key(0))
    params = nnx.state(model, nnx.Param)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(params))
    assert shapes == [(2,), (4, 6), (6,), (6,), (6,), (6, 2)]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float64")}
    plain = MLP((4, 6, 2), bias=False, key=jax.random.key(0), dtype=jnp.float32)
    leaves = jax.tree.leaves(nnx.state(plain, nnx.Param))
    assert [leaf.dtype for leaf in leaves] == [jnp.float32] * 2
    assert outputs(plain, np.ones((1, 4), np.float32)).dtype == jnp.float32


def test_models_of_one_seed_are_equal():
    first, second = (MLP((4, 6, 2), activation="gelu", key=jax.random.key(3)) for _ in range(2))
    assert nnx.graphdef(first) == nnx.graphdef(second)
    for a, b in zip(mlp_weights(first), mlp_weights(second), strict=True):
        np.testing.assert_array_equal(a, b)
    other = MLP((4, 6, 2), activation="gelu", key=jax.random.key(4))
    assert not np.allclose(mlp_weights(first)[0], mlp_weights(other)[0])


def test_initial_kernels_have_the_variance_of_their_fan_in():
    """Kaiming, fan_in = channels * kernel^2 = 18: variance 2/18, from 2304 entries to 5 sigma."""
    model = CNN((5, 5, 2), 1, filters=(128,), key=jax.random.key(0))
    kernel = np.asarray(model.conv1.kernel[...])
    assert kernel.shape == (3, 3, 2, 128)
    assert abs(kernel.var() * 9 - 1) < 5 * (2 / kernel.size) ** 0.5
    np.testing.assert_array_equal(model.conv1.bias[...], 0.0)


_KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MLP((4, 2), activation="swish", key=_KEY), "'swish' is not one of relu"),
        (lambda: MLP((4, 2), slope=2.0, key=_KEY), "between 0"),
        (lambda: MLP((4, 3, 2), norm="group", key=_KEY), "not one of None, 'batch', 'layer'"),
        (lambda: MLP((4,), key=_KEY), "widths must be"),
        (lambda: MLP((4, 0, 2), key=_KEY), "all at least 1"),
        (lambda: MLP((4, 2), initializer="kaimng_normal", key=_KEY), "did you mean"),
        (lambda: MLP((4, 2), key=_KEY)(np.ones((3, 5))), r"\(n, 4\)"),
        (lambda: LinearCNN(4, 2, filters=1, kernel=5, key=_KEY), "does not fit"),
        (lambda: LinearCNN(4, 2, filters=1, kernel=2, key=_KEY)(np.ones((3, 5))), r"\(n, 4\)"),
        (lambda: CNN((4, 4, 1), 2, filters=(3, 3, 3), kernel=3, key=_KEY), "does not fit"),
        (lambda: CNN((4, 4, 1), 2, filters=(3,), key=_KEY)(np.ones((3, 4, 4, 2))), "4, 4, 1"),
        (lambda: CNN((4, 4, 1), 2, filters=(0,), key=_KEY), "at least 1"),
        (lambda: freeze_statistics(MLP((4, 2), key=_KEY), np.ones((3, 4))), "no BatchNorm"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
