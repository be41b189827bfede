"""Graphs, experts, adapters, fixed points, several outputs."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tests.zoo import Case, made
from tests.zoo.images import class_loss
from tests.zoo.language import squared_loss

RNG = np.random.default_rng(2)
N = 3


class GraphNet(nnx.Module):
    """Two arguments: the nodes and the adjacency of every graph."""

    def __init__(self, rngs):
        self.message = nnx.Linear(2, 3, rngs=rngs)
        self.head = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, nodes, edges):
        h = jax.nn.elu(edges @ self.message(nodes))
        return self.head(h.sum(axis=1))


def graphs():
    nodes, edges = RNG.standard_normal((N, 4, 2)), RNG.random((N, 4, 4)) < 0.5
    y = RNG.standard_normal((N, 1))

    def plain(p, x):
        h = x[1] @ (x[0] @ p["message"]["kernel"][...] + p["message"]["bias"][...])
        h = jnp.where(h > 0, h, jnp.expm1(jnp.minimum(h, 0))).sum(axis=1)
        return h @ p["head"]["kernel"][...] + p["head"]["bias"][...]

    return Case(made(GraphNet, 0), (nodes, edges), plain, squared_loss, {"y": y})


def one_graph():
    """The samples are the nodes of one graph."""
    x, y = RNG.standard_normal((4, 2)), np.array([0, 1, -1, 1])
    edges = (RNG.random((4, 4)) < 0.6).astype(float)
    params = {"a": RNG.standard_normal((2, 3)), "b": RNG.standard_normal((3, 2))}

    def apply(p, x):
        return jnp.tanh(edges @ x @ p["a"]) @ p["b"]

    def loss(f, y):
        each = -jax.nn.log_softmax(f)[jnp.arange(4), jnp.maximum(y, 0)]
        return jnp.where(y < 0, 0, each).sum() / 3

    options = {"y": y, "loss": "cross_entropy"}
    return Case((apply, params), x, apply, loss, options, coupled=True)


def experts():
    """Every sample takes the better of two experts, weighted by its gate."""
    x, y = RNG.standard_normal((N, 3)), np.array([0, 1, 1])
    params = {"gate": RNG.standard_normal((3, 2)), "experts": RNG.standard_normal((2, 3, 2))}

    def apply(p, x):
        gates = jax.nn.softmax(x @ p["gate"])
        value, index = jax.lax.top_k(gates, 1)
        return value * jnp.einsum("nd,ndk->nk", x, p["experts"][index[:, 0]])

    def plain(p, x):
        gates = jax.nn.softmax(x @ p["gate"])
        both = jnp.einsum("nd,edk->nek", x, p["experts"])
        best = jnp.where(gates[:, :1] > gates[:, 1:], both[:, 0], both[:, 1])
        return gates.max(axis=1, keepdims=True) * best

    return Case((apply, params), x, plain, class_loss, {"y": y, "loss": "cross_entropy"})


@partial(jax.custom_vjp, nondiff_argnums=())
def _fixed_point(w, x):
    return jax.lax.fori_loop(0, 80, lambda _, z: jnp.tanh(z @ w + x), jnp.zeros_like(x))


def _forward(w, x):
    z = _fixed_point(w, x)
    return z, (w, x, z)


def _backward(kept, g):
    """The implicit function theorem: u = g + (d tanh / dz)^T u, by iteration."""
    w, _, z = kept
    slope = 1 - z**2
    u = jax.lax.fori_loop(0, 80, lambda _, u: g + (u * slope) @ w.T, g)
    return z.T @ (u * slope), u * slope


_fixed_point.defvjp(_forward, _backward)


def deq():
    """A deep equilibrium model with its own reverse mode."""
    x, y = RNG.standard_normal((N, 3)), RNG.standard_normal((N, 2))
    params = {"w": 0.2 * RNG.standard_normal((3, 3)), "head": RNG.standard_normal((3, 2))}

    def apply(p, x):
        return _fixed_point(p["w"], x) @ p["head"]

    def plain(p, x):
        z = jnp.zeros_like(x)
        for _ in range(80):
            z = jnp.tanh(z @ p["w"] + x)
        return z @ p["head"]

    return Case((apply, params), x, plain, squared_loss, {"y": y})


class Adapted(nnx.Module):
    """A LoRA layer on a base that stays as it is."""

    def __init__(self, rngs):
        self.first = nnx.LoRALinear(3, 4, lora_rank=1, lora_param_type=nnx.LoRAParam, rngs=rngs)
        self.last = nnx.Linear(4, 2, rngs=rngs)
        self.first.lora.lora_b[...] = jax.random.normal(jax.random.key(0), (1, 4), jnp.float32)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))


def lora():
    x, y = RNG.standard_normal((N, 3)), np.array([0, 1, 1])
    model = made(Adapted, 0)

    def plain(p, x):
        first, last, lora = p["first"], p["last"], p["first"]["lora"]
        adapted = first["kernel"][...] + lora["lora_a"][...] @ lora["lora_b"][...]
        h = jnp.tanh(x @ adapted + first["bias"][...])
        return h @ last["kernel"][...] + last["bias"][...]

    options = {"y": y, "loss": "cross_entropy", "only": nnx.LoRAParam}
    return Case(model, x, plain, class_loss, options, kept="lora_")


def two_heads():
    """A dict of outputs, from which the loss picks."""
    x = RNG.standard_normal((N, 3))
    y = {"class": np.array([0, 1, 1]), "value": RNG.standard_normal(N)}
    params = {name: RNG.standard_normal(s) for name, s in (("a", (3, 4)), ("b", (4, 2)), ("c", 4))}

    def apply(p, x):
        h = jnp.tanh(x @ p["a"])
        return {"logits": h @ p["b"], "value": h @ p["c"]}

    def one(f, y):
        label = optax.softmax_cross_entropy_with_integer_labels(f["logits"], y["class"])
        return label + optax.l2_loss(f["value"], y["value"])

    def loss(f, y):
        return class_loss(f["logits"], y["class"]) + squared_loss(f["value"], y["value"])

    return Case((apply, params), x, apply, loss, {"y": y, "loss": one})


def spectrum_inside():
    """Complex numbers inside, real ones at both ends."""
    x, y = RNG.standard_normal((N, 4)), RNG.standard_normal((N, 3))
    params = {"w": RNG.standard_normal((3, 3)), "v": RNG.standard_normal((3, 3))}

    def apply(p, x):
        spectrum = jnp.fft.rfft(x @ jnp.eye(4, dtype=x.dtype))
        return jnp.abs(spectrum * (p["w"][0] + 1j * p["v"][0])) @ p["w"].T

    def plain(p, x):
        waves = np.exp(-2j * np.pi * np.outer(np.arange(4), np.arange(3)) / 4)
        a, b = x @ waves.real, x @ waves.imag
        w, v = p["w"][0], p["v"][0]
        return jnp.sqrt((a * w - b * v) ** 2 + (a * v + b * w) ** 2) @ p["w"].T

    return Case((apply, params), x, plain, squared_loss, {"y": y})
