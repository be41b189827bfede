"""Language models: tokens in, logits of every token out."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import gnjax
from tests.zoo import Case, initialised, made

RNG = np.random.default_rng(0)
N, T, V, D = 2, 3, 5, 4
TOKENS = RNG.integers(0, V, (N, T))
LABELS = np.array([[1, 2, -1], [0, -1, 4]])


def token_loss(logits, labels):
    """The mean over the labels that count."""
    logs = jax.nn.log_softmax(logits)
    found = -jnp.take_along_axis(logs, jnp.maximum(labels, 0)[..., None], -1)[..., 0]
    return jnp.where(labels < 0, 0, found).sum() / (labels >= 0).sum()


class GPT(nn.Module):
    """Tied embeddings, causal attention, a gelu block."""

    dtype: object = None

    @nn.compact
    def __call__(self, tokens, train=True):
        embed = nn.Embed(V, D, dtype=self.dtype)
        h = embed(tokens) + self.param("place", nn.initializers.normal(), (T, D))[None]
        a = nn.LayerNorm(dtype=self.dtype)(h)
        mask = nn.make_causal_mask(tokens)
        h = h + nn.MultiHeadDotProductAttention(
            2, dropout_rate=0.1, deterministic=not train, dtype=self.dtype
        )(a, mask=mask)
        h = h + nn.Dense(D, dtype=self.dtype)(nn.gelu(nn.Dense(D, dtype=self.dtype)(h)))
        return embed.attend(h)


def gpt():
    module = GPT(dtype=jnp.float32)
    variables = initialised(module, 0, TOKENS, train=False)
    plain = GPT(dtype=jnp.float64)
    return Case(
        gnjax.functional((module, variables), train=False),
        TOKENS,
        lambda p, x: plain.apply({"params": p}, x, train=False),
        token_loss,
        {"y": LABELS, "loss": "cross_entropy"},
    )


class Encoder(nnx.Module):
    """BERT's way: a padding mask in a dict, and jax.nn.dot_product_attention."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(V, D, rngs=rngs)
        self.qkv = nnx.Linear(D, 3 * D, rngs=rngs)
        self.norm = nnx.LayerNorm(D, rngs=rngs)
        self.head = nnx.Linear(D, 2, rngs=rngs)

    def __call__(self, batch):
        h = self.embed(batch["tokens"])
        q, k, v = jnp.split(self.qkv(h).reshape(*h.shape[:2], 2, -1), 3, axis=-1)
        mask = batch["mask"][:, None, None, :]
        h = self.norm(h + jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(h.shape))
        kept = batch["mask"][..., None]
        return self.head((h * kept).sum(1) / kept.sum(1))


def bert():
    model = made(Encoder, 0)
    mask = np.array([[True, True, False], [True, True, True]])

    def plain(p, x):
        h = p["embed"]["embedding"][...][x["tokens"]]
        q, k, v = jnp.split(
            (h @ p["qkv"]["kernel"][...] + p["qkv"]["bias"][...]).reshape(N, T, 2, -1), 3, -1
        )
        scores = jnp.einsum("nthd,nshd->nhts", q, k) / np.sqrt(D / 2)
        scores = jnp.where(x["mask"][:, None, None, :], scores, -1e30)
        h = h + jnp.einsum("nhts,nshd->nthd", jax.nn.softmax(scores), v).reshape(h.shape)
        centred = h - h.mean(-1, keepdims=True)
        h = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        h = h * p["norm"]["scale"][...] + p["norm"]["bias"][...]
        kept = x["mask"][..., None]
        pooled = (h * kept).sum(1) / kept.sum(1)
        return pooled @ p["head"]["kernel"][...] + p["head"]["bias"][...]

    weights = np.array([1.0, 3.0])
    labels = np.array([1, 0])

    def loss(f, y):
        each = -jax.nn.log_softmax(f)[jnp.arange(N), y]
        return (weights * each).sum() / weights.sum()

    options = {"y": labels, "loss": "cross_entropy", "weights": weights}
    return Case(model, {"tokens": TOKENS, "mask": mask}, plain, loss, options)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, h):
        return h + jnp.tanh(self.dense(h))


class Scanned(nnx.Module):
    """Two equal blocks under nnx.scan, each rematerialised."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def blocks(rngs):
            return Block(rngs)

        self.blocks = blocks(rngs)
        self.head = nnx.Linear(D, V, rngs=rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(h, block):
            return nnx.remat(Block.__call__)(block, h)

        return self.head(forward(x, self.blocks))


def scanned():
    x = RNG.standard_normal((N, T, D))

    def plain(p, x):
        for layer in range(2):
            dense = p["blocks"]["dense"]
            x = x + jnp.tanh(x @ dense["kernel"][...][layer] + dense["bias"][...][layer])
        return x @ p["head"]["kernel"][...] + p["head"]["bias"][...]

    options = {"y": LABELS, "loss": "cross_entropy"}
    return Case(made(Scanned, 1), x, plain, token_loss, options)


class GRU(nnx.Module):
    """A recurrent network whose first carry is float32."""

    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(2, 3, rngs=rngs))
        self.head = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(self.rnn(x)[:, -1])[:, 0]


def gru():
    x, y = RNG.standard_normal((N, T, 2)), RNG.standard_normal(N)

    def plain(p, x):
        cell, h = p["rnn"]["cell"], jnp.zeros((N, 3))
        for t in range(T):
            gates = x[:, t] @ cell["dense_i"]["kernel"][...] + cell["dense_i"]["bias"][...]
            near = jnp.split(gates, 3, -1)
            far = jnp.split(h @ cell["dense_h"]["kernel"][...], 3, -1)
            reset, update = (jax.nn.sigmoid(near[i] + far[i]) for i in (0, 1))
            new = jnp.tanh(near[2] + reset * (far[2]))
            h = (1 - update) * new + update * h
        return (h @ p["head"]["kernel"][...] + p["head"]["bias"][...])[:, 0]

    return Case(made(GRU, 0), x, plain, squared_loss, {"y": y})


def squared_loss(f, y):
    return ((f - y) ** 2).sum() / 2 / len(y)


class LSTM(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.RNN(nn.LSTMCell(2))(x))  # an output at every step


def lstm():
    x, y = RNG.standard_normal((N, T, 2)), RNG.standard_normal((N, T, 2))
    module = LSTM()
    variables = initialised(module, 0, x.astype(np.float32))

    def plain(p, x):
        (name,) = [key for key in p if "LSTM" in key]
        cell, h, c, outputs = p[name], jnp.zeros((N, 2)), jnp.zeros((N, 2)), []
        for t in range(T):
            gate = {
                g: x[:, t] @ cell[f"i{g}"]["kernel"]
                + h @ cell[f"h{g}"]["kernel"]
                + cell[f"h{g}"]["bias"]
                for g in "ifgo"
            }
            c = jax.nn.sigmoid(gate["f"]) * c + jax.nn.sigmoid(gate["i"]) * jnp.tanh(gate["g"])
            h = jax.nn.sigmoid(gate["o"]) * jnp.tanh(c)
            outputs.append(h @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"])
        return jnp.stack(outputs, axis=1)

    return Case((module, variables), x, plain, squared_loss, {"y": y})
