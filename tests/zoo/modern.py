"""What is trained at scale: rotary transformers, mixers, separable convolutions, two towers."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.zoo import Case, initialised, made
from tests.zoo.images import class_loss
from tests.zoo.language import LABELS, TOKENS, D, T, V, squared_loss, token_loss

RNG = np.random.default_rng(4)
N = 2


def _turned(h):
    """Rotary positions: every pair of coordinates is turned by an angle that grows with t."""
    angles = jnp.arange(h.shape[1])[:, None, None] * jnp.array([1.0])
    a, b = jnp.split(h, 2, axis=-1)
    c, s = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * c - b * s, a * s + b * c], axis=-1)


class Llama(nnx.Module):
    """RMSNorm, rotary positions, two heads of queries that share keys and values, SwiGLU."""

    def __init__(self, rngs):
        keys = {"use_bias": False, "rngs": rngs}
        self.embed = nnx.Embed(V, D, rngs=rngs)
        self.norms = nnx.List([nnx.RMSNorm(D, rngs=rngs) for _ in range(2)])
        self.q = nnx.LinearGeneral(D, (2, 2), **keys)
        self.kv = nnx.LinearGeneral(D, (2, 1, 2), **keys)
        self.out = nnx.LinearGeneral((2, 2), D, axis=(-2, -1), **keys)
        self.gate, self.up = nnx.Linear(D, 3, **keys), nnx.Linear(D, 3, **keys)
        self.down = nnx.Linear(3, D, **keys)
        self.head = nnx.Linear(D, V, **keys)

    def __call__(self, tokens):
        h = self.embed(tokens)
        a = self.norms[0](h)
        k, v = jnp.moveaxis(self.kv(a), -3, 0)
        a = jax.nn.dot_product_attention(_turned(self.q(a)), _turned(k), v, is_causal=True)
        h = h + self.out(a)
        a = self.norms[1](h)
        return self.head(h + self.down(jax.nn.silu(self.gate(a)) * self.up(a)))


def llama():
    def normed(p, h):
        return h / jnp.sqrt((h**2).mean(-1, keepdims=True) + 1e-6) * p["scale"][...]

    def turn(h):
        """With complex numbers: (a + i b) e^(i t)."""
        z = (h[..., :1] + 1j * h[..., 1:]) * jnp.exp(1j * jnp.arange(T))[:, None, None]
        return jnp.concatenate([z.real, z.imag], axis=-1)

    def plain(p, x):
        kernel = {name: p[name]["kernel"][...] for name in p if "kernel" in p[name]}
        h = p["embed"]["embedding"][...][x]
        a = normed(p["norms"][0], h)
        q = turn(jnp.einsum("ntd,dhe->nthe", a, kernel["q"]))
        kv = jnp.einsum("ntd,dchE->cnthE", a, kernel["kv"])
        scores = jnp.einsum("nthe,nse->nhts", q, turn(kv[0])[:, :, 0]) / np.sqrt(2)
        scores = jnp.where(np.tril(np.ones((T, T))) > 0, scores, -jnp.inf)
        mixed = jnp.einsum("nhts,nse->nthe", jax.nn.softmax(scores), kv[1][:, :, 0])
        h = h + jnp.einsum("nthe,hed->ntd", mixed, kernel["out"])
        a = normed(p["norms"][1], h)
        gate = a @ kernel["gate"]
        h = h + (gate / (1 + jnp.exp(-gate)) * (a @ kernel["up"])) @ kernel["down"]
        return h @ kernel["head"]

    options = {"y": LABELS, "loss": "cross_entropy"}
    return Case(made(Llama, 0), TOKENS, plain, token_loss, options)


class Translator(nnx.Module):
    """Encoder and decoder: the second reads the first by cross attention."""

    def __init__(self, rngs):
        keys = {"decode": False, "rngs": rngs}
        self.source, self.target = nnx.Embed(V, D, rngs=rngs), nnx.Embed(V, D, rngs=rngs)
        self.inner = nnx.MultiHeadAttention(1, D, **keys)
        self.cross = nnx.MultiHeadAttention(1, D, **keys)

    def __call__(self, source, target):
        memory = self.source(source)
        h = self.target(target)
        h = h + self.inner(h, mask=nnx.make_causal_mask(target))
        return self.target.attend(h + self.cross(h, memory))


def translator():
    def attend(p, h, memory, mask=None):
        q, k, v = (
            jnp.einsum("ntd,dhe->nte", data, p[name]["kernel"][...]) + p[name]["bias"][...][0]
            for name, data in (("query", h), ("key", memory), ("value", memory))
        )
        scores = jnp.einsum("nte,nse->nts", q, k) / np.sqrt(D)
        scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
        mixed = jax.nn.softmax(scores) @ v
        return mixed @ p["out"]["kernel"][...][0] + p["out"]["bias"][...]

    def plain(p, x):
        tables = [p[name]["embedding"][...] for name in ("source", "target")]
        memory, h = tables[0][x[0]], tables[1][x[1]]
        h = h + attend(p["inner"], h, h, np.tril(np.ones((T, T))) > 0)
        return (h + attend(p["cross"], h, memory)) @ tables[1].T

    x = (RNG.integers(0, V, (N, T)), TOKENS)
    options = {"y": LABELS, "loss": "cross_entropy"}
    return Case(made(Translator, 0), x, plain, token_loss, options)


class Mixer(nn.Module):
    """MLP-Mixer: one dense layer over the patches, one over the channels."""

    @nn.compact
    def __call__(self, x):
        h = nn.Conv(3, (2, 2), strides=(2, 2))(x).reshape(len(x), 4, 3)
        h = h + jnp.swapaxes(nn.Dense(4)(jnp.swapaxes(nn.LayerNorm()(h), 1, 2)), 1, 2)
        h = h + nn.Dense(3)(nn.gelu(nn.Dense(2)(h)))
        return nn.Dense(3)(h.mean(axis=1))


def mixer():
    x, y = RNG.standard_normal((N, 4, 4, 1)), np.array([0, 2])
    module = Mixer()
    variables = initialised(module, 1, x)

    def dense(p, h):
        return h @ p["kernel"] + p["bias"]

    def plain(p, x):
        patches = x.reshape(N, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(N, 4, 4)
        h = patches @ p["Conv_0"]["kernel"].reshape(4, 3) + p["Conv_0"]["bias"]
        a = h - h.mean(-1, keepdims=True)
        a = a / jnp.sqrt((a**2).mean(-1, keepdims=True) + 1e-6)
        a = a * p["LayerNorm_0"]["scale"] + p["LayerNorm_0"]["bias"]
        h = h + dense(p["Dense_0"], a.transpose(0, 2, 1)).transpose(0, 2, 1)
        inner = dense(p["Dense_2"], h)
        gelu = inner / 2 * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        h = h + dense(p["Dense_1"], gelu)
        return dense(p["Dense_3"], h.mean(axis=1))

    options = {"y": y, "loss": "cross_entropy"}
    return Case((module, variables), x, plain, class_loss, options)


class Separable(nn.Module):
    """A depthwise convolution, then one of single pixels; a class for every pixel comes out."""

    @nn.compact
    def __call__(self, x):
        h = nn.Conv(2, (3, 3), feature_group_count=2, use_bias=False)(x)
        h = nn.hard_swish(nn.GroupNorm(num_groups=1)(nn.Conv(4, (1, 1))(h)))
        return nn.Conv(3, (1, 1))(h)


def pixel_classes():
    x = RNG.standard_normal((N, 3, 3, 2))
    y = RNG.integers(-1, 3, (N, 3, 3))
    module = Separable()
    variables = initialised(module, 4, x)

    def plain(p, x):
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        kernel = p["Conv_0"]["kernel"][:, :, 0]  # (3, 3, channels)
        h = sum(padded[:, i : i + 3, j : j + 3] * kernel[i, j] for i in range(3) for j in range(3))
        h = h @ p["Conv_1"]["kernel"][0, 0] + p["Conv_1"]["bias"]
        h = h - h.mean((1, 2, 3), keepdims=True)
        h = h / jnp.sqrt((h**2).mean((1, 2, 3), keepdims=True) + 1e-6)
        h = h * p["GroupNorm_0"]["scale"] + p["GroupNorm_0"]["bias"]
        h = h * jnp.clip(h + 3, 0, 6) / 6
        return h @ p["Conv_2"]["kernel"][0, 0] + p["Conv_2"]["bias"]

    options = {"y": y, "loss": "cross_entropy"}
    return Case((module, variables), x, plain, token_loss, options)


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates."""

    @nn.compact
    def __call__(self, x):
        for dilation in (1, 2):
            keys = {"kernel_dilation": dilation, "padding": "CAUSAL"}
            gate = nn.sigmoid(nn.Conv(2, (2,), **keys)(x))
            x = x + gate * nn.tanh(nn.Conv(2, (2,), **keys)(x))
        return nn.Dense(1)(x)[..., 0]


def wavenet():
    x, y = RNG.standard_normal((N, 5, 2)), RNG.standard_normal((N, 5))
    module = WaveNet()
    variables = initialised(module, 5, x)

    def causal(p, x, dilation):
        before = jnp.pad(x, ((0, 0), (dilation, 0), (0, 0)))[:, : x.shape[1]]
        return before @ p["kernel"][0] + x @ p["kernel"][1] + p["bias"]

    def plain(p, x):
        for i, dilation in enumerate((1, 2)):
            gate, value = (causal(p[f"Conv_{2 * i + j}"], x, dilation) for j in (0, 1))
            x = x + jnp.tanh(value) / (1 + jnp.exp(-gate))
        return (x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"])[..., 0]

    return Case((module, variables), x, plain, squared_loss, {"y": y})


class TwoTowers(nnx.Module):
    """A recommender: a table of users, a table of items, features of the item."""

    def __init__(self, rngs):
        self.users, self.items = nnx.Embed(3, 2, rngs=rngs), nnx.Embed(4, 2, rngs=rngs)
        self.features = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, batch):
        item = self.items(batch["item"]) + nnx.relu(self.features(batch["features"]))
        return (self.users(batch["user"]) * item).sum(-1)


def two_towers():
    x = {
        "user": np.array([0, 2, 0, 1]),
        "item": np.array([1, 3, 0, 1]),
        "features": RNG.standard_normal((4, 2)),
    }
    y = np.array([1, 0, 0, 1])

    def plain(p, x):
        user = p["users"]["embedding"][...][x["user"]]
        h = x["features"] @ p["features"]["kernel"][...] + p["features"]["bias"][...]
        item = p["items"]["embedding"][...][x["item"]] + jnp.where(h > 0, h, 0)
        return jnp.einsum("nd,nd->n", user, item)

    def loss(f, y):
        return (jnp.logaddexp(0, f) - y * f).mean()

    options = {"y": y, "loss": "binary_cross_entropy"}
    return Case(made(TwoTowers, 0), x, plain, loss, options)


def contrastive():
    """CLIP's way: an image is to find its text among those of the batch."""
    x = (RNG.standard_normal((3, 4)), RNG.standard_normal((3, 2)))
    params = {"image": RNG.standard_normal((4, 2)), "text": RNG.standard_normal((2, 2))}
    params["scale"] = np.array(0.5)

    def apply(p, x):
        image, text = x
        a, b = image @ p["image"], text @ p["text"]
        a = a / jnp.linalg.norm(a, axis=1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=1, keepdims=True)
        return jnp.exp(p["scale"]) * a @ b.T

    def plain(p, x):
        a, b = x[0] @ p["image"], x[1] @ p["text"]
        sizes = jnp.sqrt(jnp.outer((a**2).sum(1), (b**2).sum(1)))
        return jnp.exp(p["scale"]) * jnp.einsum("id,jd->ij", a, b) / sizes

    options = {"y": np.arange(3), "loss": "cross_entropy"}
    return Case((apply, params), x, plain, class_loss, options, coupled=True)
