"""Networks of images, and of vectors by other frameworks."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import gnjax
from tests.zoo import Case, initialised, made
from tests.zoo.language import squared_loss

RNG = np.random.default_rng(1)
N = 3


def class_loss(f, y):
    return -jax.nn.log_softmax(f)[jnp.arange(len(y)), y].mean()


class ViT(nnx.Module):
    """Patches by a convolution, a class token, attention of Flax in float32."""

    def __init__(self, rngs, dtype=None):
        keywords = {"dtype": dtype, "rngs": rngs}
        self.patch = nnx.Conv(1, 4, (2, 2), strides=2, padding="VALID", **keywords)
        self.token = nnx.Param(jax.random.normal(rngs.params(), (1, 1, 4)))
        self.attend = nnx.MultiHeadAttention(2, 4, dropout_rate=0.1, decode=False, **keywords)
        self.head = nnx.Linear(4, 3, **keywords)

    def __call__(self, x, deterministic=False):
        h = self.patch(x)
        h = h.reshape(len(h), -1, 4)
        h = jnp.concatenate([jnp.tile(self.token[...], (len(h), 1, 1)).astype(h.dtype), h], axis=1)
        h = h + self.attend(h, deterministic=deterministic)
        return self.head(h[:, 0])


def vit():
    x, y = RNG.standard_normal((N, 4, 2, 1)), np.arange(N) % 3
    graph, _, rest = nnx.split(made(ViT, 0, dtype=jnp.float64), nnx.Param, ...)
    model = gnjax.functional(made(ViT, 0, dtype=jnp.float32), deterministic=True)

    def plain(p, x):
        return nnx.merge(graph, p, rest, copy=True)(x, deterministic=True)

    return Case(model, x, plain, class_loss, {"y": y, "loss": "cross_entropy"})


class UNet(nn.Module):
    """Down, up, and a connection across; an image comes out."""

    @nn.compact
    def __call__(self, x):
        near = nn.tanh(nn.GroupNorm(num_groups=2)(nn.Conv(4, (3, 3))(x)))
        far = nn.avg_pool(near, (2, 2), (2, 2))
        far = nn.silu(nn.Conv(2, (3, 3))(far))
        far = nn.ConvTranspose(2, (2, 2), strides=(2, 2))(far)
        return nn.Conv(1, (1, 1))(jnp.concatenate([near, far], axis=-1))


def unet():
    x, y = RNG.standard_normal((2, 2, 4, 4, 1))
    module = UNet()
    variables = initialised(module, 0, x)

    def plain(p, x):
        return module.apply({"params": p}, x)

    return Case((module, variables), x, plain, squared_loss, {"y": y})


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.gelu(nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x)))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))


def _widened(leaf):
    """In float64, where it is no count."""
    return np.asarray(leaf, float) if leaf.dtype.kind == "f" else leaf


def _normed():
    """Its own samples in every test: with others a ReLU and one mask can silence all units."""
    x, y = np.random.default_rng(1).standard_normal((N, 3)), np.array([0, 1, 1])
    module = Normed()
    variables = initialised(module, 1, x, train=False)
    fixed = {"batch_stats": jax.tree.map(_widened, variables["batch_stats"])}
    return module, variables, fixed, x, {"y": y, "loss": "cross_entropy"}


def batch_norm_evaluated():
    module, variables, fixed, x, options = _normed()

    def plain(p, x):
        return module.apply({"params": p, **fixed}, x, train=False)

    return Case(gnjax.functional((module, variables), train=False), x, plain, class_loss, options)


def batch_norm_training():
    """With one mask of dropout; the updated statistics are what the model returns beside."""
    module, variables, fixed, x, options = _normed()
    keys = {"dropout": jax.random.key(3)}
    model = gnjax.functional((module, variables), train=True, rngs=keys, mutable=["batch_stats"])

    def plain(p, x):
        given = {"params": p, **fixed}
        return module.apply(given, x, train=True, rngs=keys, mutable=["batch_stats"])[0]

    return Case(model, x, plain, class_loss, {**options, "has_aux": True}, coupled=True)


def train_state():
    module, variables, fixed, x, options = _normed()

    class State(TrainState):
        batch_stats: object = None

    state = State.create(
        apply_fn=module.apply,
        params=variables["params"],
        tx=optax.adam(1e-3),
        batch_stats=variables["batch_stats"],
    )

    def plain(p, x):
        return module.apply({"params": p, **fixed}, x, train=False)

    return Case(gnjax.functional(state, train=False), x, plain, class_loss, options)


def equinox_autoencoder():
    eqx = pytest.importorskip("equinox")

    x = RNG.standard_normal((N, 2, 2))
    hidden = eqx.filter_jit(eqx.nn.MLP)(4, 4, 2, 1, activation=jnp.tanh, key=jax.random.key(0))

    class Autoencoder(eqx.Module):
        inner: eqx.nn.MLP

        def __call__(self, image):
            return self.inner(image.reshape(-1)).reshape(image.shape)

    def plain(p, x):
        first, last = p.inner.layers
        h = jnp.tanh(x.reshape(N, -1) @ first.weight.T + first.bias)
        return (h @ last.weight.T + last.bias).reshape(x.shape)

    return Case(Autoencoder(hidden), x, plain, squared_loss, {"y": x})


def equinox_logistic():
    eqx = pytest.importorskip("equinox")

    x, y = RNG.standard_normal((N, 3)), np.array([1, 0, 1])
    model = eqx.filter_jit(eqx.nn.MLP)(3, "scalar", 4, 1, key=jax.random.key(0))
    weights = np.array([1.0, 2.0, 0.5])

    def plain(p, x):
        first, last = p.layers
        return (jax.nn.relu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias)[:, 0]

    def loss(f, y):
        return (weights * (jnp.logaddexp(0, f) - y * f)).sum() / weights.sum()

    options = {"y": y, "loss": "binary_cross_entropy", "weights": weights}
    return Case(model, x, plain, loss, options)


def haiku_parts(x):
    """(transformed, params, state) of a residual network with BatchNorm."""
    hk = pytest.importorskip("haiku")

    def forward(x, is_training):
        h = jax.nn.relu(hk.Conv2D(2, 3)(x))
        new = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(2, 3)(h), is_training)
        return hk.Linear(3)((h + new).mean(axis=(1, 2)))

    model = hk.transform_with_state(forward)
    init = jax.jit(model.init, static_argnums=2)
    return model, *init(jax.random.key(0), x.astype(np.float32), True)


def haiku_resnet():
    x, y = RNG.standard_normal((N, 4, 4, 1)), np.arange(N) % 3
    model, params, state = haiku_parts(x)
    fixed = jax.tree.map(_widened, state)

    def plain(p, x):
        return model.apply(p, fixed, None, x, False)[0]

    given = gnjax.functional((model, params, state), is_training=False)
    return Case(given, x, plain, class_loss, {"y": y, "loss": "cross_entropy"})


def haiku_mlp():
    hk = pytest.importorskip("haiku")

    x, y = RNG.standard_normal((N, 3)), RNG.standard_normal((N, 2))
    model = hk.transform(lambda x: hk.nets.MLP([4, 2], activation=jnp.tanh)(x))
    params = jax.jit(model.init)(jax.random.key(0), x)
    huber = {"y": y, "loss": optax.huber_loss}

    def plain(p, x):
        first, last = p["mlp/~/linear_0"], p["mlp/~/linear_1"]
        return jnp.tanh(x @ first["w"] + first["b"]) @ last["w"] + last["b"]

    def loss(f, y):
        size = jnp.abs(f - y)
        return jnp.where(size < 1, size**2 / 2, size - 0.5).sum() / len(y)

    return Case((model, params), x, plain, loss, huber)
