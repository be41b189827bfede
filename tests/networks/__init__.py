"""Small networks of every kind, as models and as plain functions, in float64."""

from __future__ import annotations

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.models import CNN, MLP, LinearNet, freeze_statistics


class Attention(nnx.Module):
    """Pre-norm attention and a dense block with skips, pooled to k outputs."""

    def __init__(self, width, outputs, *, rngs):
        self.norm = nnx.LayerNorm(width, param_dtype=jnp.float64, rngs=rngs)
        self.query, self.key, self.value = (
            nnx.LinearGeneral(width, (2, width // 2), param_dtype=jnp.float64, rngs=rngs)
            for _ in range(3)
        )
        self.out = nnx.LinearGeneral(
            (2, width // 2), width, axis=(-2, -1), param_dtype=jnp.float64, rngs=rngs
        )
        self.head = nnx.Linear(width, outputs, param_dtype=jnp.float64, rngs=rngs)

    def __call__(self, x):  # (n, t, width)
        h = self.norm(x)
        q, k, v = self.query(h), self.key(h), self.value(h)
        scores = jnp.einsum("nthd,nshd->nhts", q, k) / q.shape[-1] ** 0.5
        mixed = jnp.einsum("nhts,nshd->nthd", jax.nn.softmax(scores), v)
        return self.head((x + self.out(mixed)).mean(axis=1))


class TiedLinen(flax.linen.Module):
    """W^T tanh(W x) + b: one kernel used twice."""

    @flax.linen.compact
    def __call__(self, x):
        kernel = self.param("kernel", flax.linen.initializers.normal(1.0), (x.shape[-1], 6))
        bias = self.param("bias", flax.linen.initializers.normal(1.0), (x.shape[-1],))
        return jnp.tanh(x @ kernel) @ kernel.T + bias[None]


def _x(*shape):
    return np.random.default_rng(5).standard_normal(shape)


def _mlp(activation, **options):
    model = MLP((4, 6, 5, 3), activation=activation, slope=0.1, key=jax.random.key(2), **options)
    return model, _x(5, 4)


def _batch_norm(train):
    model, x = _mlp("tanh", norm="batch")
    model.train()
    return (model if train else freeze_statistics(model, x)), x


def _cnn():
    model = CNN(
        (6, 5, 2), 3, filters=(4, 3), stride=2, padding=1, activation="tanh", key=jax.random.key(1)
    )
    return model, _x(4, 6, 5, 2)


def _residual():
    return LinearNet(4, 2, depth=3, width=4, skip=0.5, key=jax.random.key(4)), _x(5, 4)


_tied_params = jax.jit(TiedLinen().init)


def _linen():
    module, x = TiedLinen(), _x(5, 3)
    return (module, _tied_params(jax.random.key(0), x)), x


def _plain():
    rng = np.random.default_rng(3)
    params = {"a": rng.standard_normal((4, 7)), "b": [rng.standard_normal((3, 7)), np.ones(3)]}

    def apply(p, x):
        hidden = jax.nn.gelu(x @ p["a"])
        return (p["b"][0] @ hidden.T).T * p["b"][1][None]

    return (apply, params), _x(6, 4)


CASES = {
    "mlp relu": lambda: _mlp("relu"),
    "mlp leaky": lambda: _mlp("leaky_relu", bias=False),
    "mlp tanh layer norm": lambda: _mlp("tanh", norm="layer"),
    "cnn with stride": _cnn,
    "batch norm frozen": lambda: _batch_norm(train=False),
    "batch norm of the batch": lambda: _batch_norm(train=True),
    "residual": lambda: (
        LinearNet(4, 2, depth=3, width=4, skip=0.5, key=jax.random.key(4)),
        _x(5, 4),
    ),
    "attention": lambda: (Attention(4, 3, rngs=nnx.Rngs(0)), _x(4, 3, 4)),
    "linen, tied": _linen,
    "plain": _plain,
}
