"""Models as people write them, of random parts and sizes, in Flax NNX, Linen, Equinox and Haiku.

Each comes as the model that the library is given, and as a plain function of its parameters for
:func:`jax.jacrev`, by the framework's own means. A model that computes in a narrow format inside
has a reference that computes in float64 there, with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WORDS = 7  # of the vocabulary
Apply = Callable[[Any, Any], jax.Array]


@dataclass(frozen=True)
class Written:
    """A model with samples x, and the same as a plain function of its parameters.

    Attributes:
      name: its parts, in words.
      model: what the library is given.
      x: samples, first along every array.
      apply: the function of ``params`` and x to outputs (n, .., k), in float64 throughout.
      params: a pytree of arrays.
    """

    name: str
    model: Any
    x: Any
    apply: Apply
    params: Any


def _function(name: str, apply: Apply, params: Any, x: Any, narrow: Apply | None = None) -> Written:
    """A model that is a function already; ``narrow`` is the same with a narrow format inside."""
    params = jax.tree.map(jnp.asarray, params)
    return Written(name, (narrow or apply, params), x, apply, params)


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) / max(shape[0], 1) ** 0.5


def _sizes(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Samples, tokens (or steps), width (even), outputs."""
    return (
        int(rng.integers(2, 6)),
        int(rng.integers(3, 6)),
        2 * int(rng.integers(1, 3)) + 2,
        int(rng.integers(1, 4)),
    )


def _of_nnx(name: str, module: nnx.Module, x: Any) -> Written:
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    module = nnx.merge(graph, params, rest)
    return Written(name, module, x, lambda p, x: nnx.merge(graph, p, rest)(x), params)


def _positions(kind: str, h: jax.Array) -> jax.Array:
    """What is added to the embeddings h (n, t, d)."""
    if kind != "sinusoids":
        return jnp.zeros_like(h)
    rates = 100.0 ** (-jnp.arange(h.shape[-1]) / h.shape[-1])
    return jnp.broadcast_to(jnp.sin(jnp.arange(h.shape[1])[:, None] * 0.1 * rates[None]), h.shape)


def _rotated(h: jax.Array) -> jax.Array:
    """Rotary positions for h (n, t, d): pairs of entries are turned by angles that grow with t."""
    half = h.shape[-1] // 2
    angles = jnp.arange(h.shape[1])[:, None] * 10.0 ** -jnp.arange(half)[None]
    a, b = h[..., :half], h[..., half:]
    c, s = jnp.cos(angles)[None], jnp.sin(angles)[None]
    return jnp.concatenate([a * c - b * s, a * s + b * c], axis=-1)


class _Block(nnx.Module):
    """A block of a transformer: one head of attention, and a perceptron of some kind."""

    def __init__(self, width: int, parts: dict[str, str], rngs: nnx.Rngs) -> None:
        self.parts = parts
        norm = nnx.RMSNorm if parts["norm"] == "RMSNorm" else nnx.LayerNorm
        self.norms = nnx.List([norm(width, rngs=rngs) for _ in range(2)])
        self.qkv = nnx.Linear(width, 3 * width, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.gate = nnx.Linear(width, 2 * width, rngs=rngs) if parts["mlp"] == "SwiGLU" else None
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, h: jax.Array, seen: jax.Array) -> jax.Array:
        parts, width = self.parts, h.shape[-1]
        q, k, v = jnp.split(self.qkv(self.norms[0](h)), 3, axis=-1)
        if parts["positions"] == "rotary":
            q, k = _rotated(q), _rotated(k)
        scores = jnp.einsum("ntd,nsd->nts", q, k) / np.sqrt(width)
        if parts["positions"] == "ALiBi":
            places = jnp.arange(h.shape[1])
            scores = scores - 0.5 * jnp.abs(places[:, None] - places[None])[None]
        h = h + jax.nn.softmax(jnp.where(seen, scores, -1e9)) @ v
        a = self.norms[1](h)
        up = self.up(a)
        up = jax.nn.gelu(up) if self.gate is None else jax.nn.silu(self.gate(a)) * up
        return h + self.down(up)


class _Transformer(nnx.Module):
    def __init__(
        self, width: int, depth: int, parts: dict[str, str], outputs: int, rngs: nnx.Rngs
    ) -> None:
        self.parts = parts
        self.embed = nnx.Embed(WORDS, width, dtype=jnp.float64, rngs=rngs)
        self.blocks = nnx.List([_Block(width, parts, rngs) for _ in range(depth)])
        tied = parts["head"] == "tied"
        self.head = None if tied else nnx.Linear(width, outputs, use_bias=False, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        parts, length = self.parts, tokens.shape[1]
        h = self.embed(tokens)
        h = h + _positions(parts["positions"], h)
        real = tokens > 0 if parts["mask"] == "padding" else jnp.ones(tokens.shape, bool)
        seen = jnp.broadcast_to(real[:, None], (len(tokens), length, length))
        if parts["mask"] == "causal":
            seen = seen & jnp.tril(jnp.ones((length, length), bool))[None]
        call = nnx.remat(_Block.__call__) if parts["remat"] == "remat" else _Block.__call__
        for block in self.blocks:
            h = call(block, h, seen)
        if parts["pooling"] == "mean":
            weight = real.astype(h.dtype)[..., None]
            h = (h * weight).sum(axis=1) / weight.sum(axis=1)
        elif parts["pooling"] == "last":
            last = real.astype(h.dtype).sum(axis=1).astype(int) - 1
            h = h[jnp.arange(len(h)), last]
        return h @ self.embed.embedding[...].T if self.head is None else self.head(h)


_PARTS = {
    "norm": ("LayerNorm", "RMSNorm"),
    "positions": ("sinusoids", "rotary", "ALiBi", "none"),
    "mlp": ("gelu", "SwiGLU"),
    "mask": ("causal", "padding", "none"),
    "pooling": ("mean", "last", "tokens"),
    "head": ("own", "own", "tied"),
    "remat": ("kept", "remat"),
}


def _transformer(rng: np.random.Generator) -> Written:
    n, length, width, outputs = _sizes(rng)
    parts = {part: str(rng.choice(kinds)) for part, kinds in _PARTS.items()}
    tokens = rng.integers(1, WORDS, (n, length))
    if parts["mask"] == "padding":
        tokens *= np.arange(length)[None] < rng.integers(1, length + 1, (n, 1))
    module = _Transformer(width, int(rng.integers(1, 3)), parts, outputs, nnx.Rngs(0))
    name = "NNX transformer: " + ", ".join(parts.values())
    written = _of_nnx(name, module, tokens)
    noise = lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape)  # noqa: E731
    params = jax.tree.map(noise, written.params)
    nnx.update(module, params)
    return _of_nnx(name, module, tokens)


def _of_linen(name: str, module: nn.Module, x: np.ndarray, **call: Any) -> Written:
    variables = module.init(jax.random.key(0), jnp.asarray(x), **call)
    variables = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), variables)
    params, rest = variables["params"], {k: v for k, v in variables.items() if k != "params"}

    def apply(p: Any, x: jax.Array) -> jax.Array:
        out = module.apply({"params": p, **rest}, x, mutable=list(rest), **call)
        return out[0]

    return Written(name, (apply, params), x, apply, params)


class _Recurrent(nn.Module):
    cell: str
    width: int
    outputs: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        cells = {"GRU": nn.GRUCell, "LSTM": nn.OptimizedLSTMCell, "simple": nn.SimpleCell}
        h = nn.RNN(cells[self.cell](self.width, param_dtype=jnp.float64))(x)
        return nn.Dense(self.outputs, param_dtype=jnp.float64)(h[:, -1])


class _Convolutional(nn.Module):
    width: int
    outputs: int
    trains: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        keys = {"param_dtype": jnp.float64}
        h = nn.Conv(self.width, (3,), **keys)(x)
        h = nn.BatchNorm(use_running_average=not self.trains, **keys)(h)
        h = nn.max_pool(nn.relu(h), (2,), (2,)) if self.trains else nn.gelu(h)
        return nn.Dense(self.outputs, **keys)(h.mean(axis=1))


def _recurrent(rng: np.random.Generator) -> Written:
    n, length, width, outputs = _sizes(rng)
    cell = str(rng.choice(["GRU", "LSTM", "simple"]))
    x = rng.standard_normal((n, length, 2))
    return _of_linen(f"Linen {cell}", _Recurrent(cell, width // 2, outputs), x)


def _convolutional(rng: np.random.Generator) -> Written:
    n, _, width, outputs = _sizes(rng)
    trains = bool(rng.random() < 0.5)
    x = rng.standard_normal((n + 1, 6, 2))
    name = f"Linen convolutions, BatchNorm in {'training' if trains else 'evaluation'}"
    return _of_linen(name, _Convolutional(width, outputs, trains), x)


def _of_equinox(name: str, module: Any, x: np.ndarray) -> Written:
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
    apply = lambda p, x: jax.vmap(eqx.combine(p, rest))(x)  # noqa: E731
    return Written(name, eqx.combine(params, rest), x, apply, params)


class _Flow(eqx.Module):
    """A neural ODE by Euler's method, in a loop of some kind."""

    field: eqx.nn.MLP
    out: eqx.nn.Linear
    loop: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        dt = 1 / self.steps

        def step(i: Any, h: jax.Array) -> jax.Array:
            return h + dt * self.field(jnp.append(h, i * dt))

        if self.loop == "fori_loop":
            h = jax.lax.fori_loop(0, self.steps, step, x)
        elif self.loop == "scan":
            h, _ = jax.lax.scan(lambda h, i: (step(i, h), None), x, jnp.arange(self.steps))
        else:
            _, h = eqx.internal.while_loop(
                lambda s: s[0] < self.steps,
                lambda s: (s[0] + 1, step(s[0], s[1])),
                (jnp.zeros((), int), x),
                max_steps=16,
                kind=self.loop,
            )
        return self.out(h)


def _flow(rng: np.random.Generator) -> Written:
    n, length, width, outputs = _sizes(rng)
    loop = str(rng.choice(["fori_loop", "scan", "checkpointed", "bounded"]))
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), 2)
    mlp = eqx.nn.MLP(4, 3, width, 1, activation=jnp.tanh, key=keys[0])
    module = _Flow(mlp, eqx.nn.Linear(3, outputs, key=keys[1]), loop, length)
    return _of_equinox(f"Equinox neural ODE: {loop}", module, rng.standard_normal((n, 3)))


def _haiku(rng: np.random.Generator) -> Written:
    n, length, width, outputs = _sizes(rng)
    kind = str(rng.choice(["perceptron", "convolutions", "LSTM"]))

    def forward(x: jax.Array) -> jax.Array:
        if kind == "perceptron":
            h = hk.nets.MLP([width, width], activation=jax.nn.swish)(x.mean(axis=1))
            h = hk.LayerNorm(-1, True, True)(h)
        elif kind == "convolutions":
            h = jax.nn.silu(hk.Conv1D(width, 2)(x)).mean(axis=1)
        else:
            core = hk.LSTM(width // 2)
            h, _ = hk.dynamic_unroll(core, x, core.initial_state(len(x)), time_major=False)
            h = h[:, -1]
        return hk.Linear(outputs)(h)

    module = hk.without_apply_rng(hk.transform(forward))
    x = rng.standard_normal((n, length, 2))
    params = module.init(jax.random.key(int(rng.integers(2**31))), jnp.asarray(x))
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    return Written(f"Haiku {kind}", (module.apply, params), x, module.apply, params)


def _graph(rng: np.random.Generator) -> Written:
    """Messages along the edges of a fixed graph, summed or the largest taken."""
    n, nodes, width, outputs = _sizes(rng)
    senders, receivers = rng.integers(0, nodes, (2, 2 * nodes))
    kind = str(rng.choice(["sum", "mean", "largest"]))

    def of_one(p: Any, x: jax.Array) -> jax.Array:
        h = jnp.tanh(x @ p["in"])
        for _ in range(2):
            messages = jnp.tanh(h[senders] @ p["edge"])
            reduce = jax.ops.segment_max if kind == "largest" else jax.ops.segment_sum
            taken = reduce(messages, receivers, nodes)
            taken = jnp.where(jnp.isfinite(taken), taken, 0.0)
            if kind == "mean":
                degree = jax.ops.segment_sum(jnp.ones(len(receivers)), receivers, nodes)
                taken = taken / jnp.maximum(degree, 1.0)[:, None]
            h = jnp.tanh(h @ p["node"] + taken)
        return h.mean(axis=0) @ p["out"]

    shapes = {"in": (2, width), "edge": (width, width), "node": (width, width)}
    params = {name: _weights(rng, *shape) for name, shape in shapes.items()}
    params["out"] = _weights(rng, width, outputs)
    apply = lambda p, x: jax.vmap(of_one, (None, 0))(p, x)  # noqa: E731
    return _function(f"graph network: {kind}", apply, params, rng.standard_normal((n, nodes, 2)))


def _implicit(rng: np.random.Generator) -> Written:
    """An equilibrium z = tanh(W z + x), and one differentiable step after it."""
    n, _, width, outputs = _sizes(rng)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        def step(z: jax.Array) -> jax.Array:
            return jnp.tanh(z @ p["w"] + x)

        z = jax.lax.while_loop(
            lambda s: jnp.abs(s[0] - s[1]).max() > 1e-12,
            lambda s: (s[1], step(s[1])),
            (jnp.ones_like(x), jnp.zeros_like(x)),
        )[1]
        return step(jax.lax.stop_gradient(z)) @ p["out"]

    params = {"w": 0.4 * _weights(rng, width, width), "out": _weights(rng, width, outputs)}
    return _function("implicit layer", apply, params, rng.standard_normal((n, width)))


def _fourier(rng: np.random.Generator) -> Written:
    n, length, width, outputs = _sizes(rng)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        h = x @ p["in"]
        modes = jnp.fft.rfft(h, axis=1)[:, :2]
        mixed = jnp.einsum("nmd,mde->nme", modes, p["real"] + 1j * p["imaginary"])
        h = jax.nn.gelu(h @ p["skip"] + jnp.fft.irfft(mixed, length, axis=1))
        return h.mean(axis=1) @ p["out"]

    shapes = {"real": (2, width, width), "imaginary": (2, width, width), "skip": (width, width)}
    params = {name: _weights(rng, *shape) for name, shape in shapes.items()}
    params |= {"in": _weights(rng, 2, width), "out": _weights(rng, width, outputs)}
    return _function("Fourier layer", apply, params, rng.standard_normal((n, length, 2)))


def _physics(rng: np.random.Generator) -> Written:
    """The residual u_xx + u u_x of a network u at points of collocation."""
    n, _, width, _ = _sizes(rng)

    def u(p: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x[None] @ p["in"] + p["bias"]) @ p["middle"]) @ p["out"]

    def residual(p: Any, x: jax.Array) -> jax.Array:
        first = jax.grad(lambda s: u(p, x.at[0].set(s))[0, 0])
        return (jax.grad(first)(x[0]) + u(p, x)[0, 0] * first(x[0]))[None]

    params = {"in": _weights(rng, 2, width), "bias": _weights(rng, 1, width)}
    params |= {"middle": _weights(rng, width, width), "out": _weights(rng, width, 1)}
    apply = lambda p, x: jax.vmap(residual, (None, 0))(p, x)  # noqa: E731
    return _function("physics-informed residual", apply, params, rng.uniform(-1, 1, (n, 2)))


def _experts(rng: np.random.Generator) -> Written:
    """A mixture of experts with places, taken by a sum of floats along the tokens."""
    n, length, width, outputs = _sizes(rng)
    experts, places = int(rng.integers(2, 4)), int(rng.integers(1, 3))

    def of_one(p: Any, x: jax.Array) -> jax.Array:
        chances = jax.nn.softmax(x @ p["router"])
        chosen = jax.nn.one_hot(jnp.argmax(chances, axis=-1), experts, dtype=x.dtype)
        at = jnp.cumsum(chosen, axis=0) * chosen
        kept = (at <= places) * chosen
        slot = jax.nn.one_hot((at.sum(axis=-1) - 1).astype(int), places, dtype=x.dtype)
        sent = kept[..., None] * slot[:, None]
        worked = jax.nn.gelu(jnp.einsum("tec,td,edk->eck", sent, x, p["experts"]))
        weight = (chances * chosen).sum(axis=-1)
        return jnp.einsum("tec,eck,t->k", sent, worked, weight) @ p["out"]

    params = {"router": _weights(rng, 2, experts), "experts": _weights(rng, experts, 2, width)}
    params["out"] = _weights(rng, width, outputs)
    apply = lambda p, x: jax.vmap(of_one, (None, 0))(p, x)  # noqa: E731
    return _function("mixture of experts", apply, params, rng.standard_normal((n, length, 2)))


def _scanned(rng: np.random.Generator) -> Written:
    """A scan over layers with stacked weights, with a checkpoint in every step or without."""
    n, depth, width, outputs = _sizes(rng)
    remat = bool(rng.random() < 0.5)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return h + jnp.tanh(h @ w), None

        layer = jax.checkpoint(layer) if remat else layer
        return jax.lax.scan(layer, x @ p["in"], p["layers"])[0] @ p["out"]

    params = {"in": _weights(rng, 3, width), "layers": _weights(rng, depth, width, width)}
    params["out"] = _weights(rng, width, outputs)
    name = f"scan over layers{' with remat' if remat else ''}"
    return _function(name, apply, params, rng.standard_normal((n, 3)))


def _adapted(rng: np.random.Generator) -> Written:
    """LoRA: W + A B with frozen W, and B near zero."""
    n, _, width, outputs = _sizes(rng)
    first, last = _weights(rng, 3, width), _weights(rng, width, outputs)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ first + (x @ p["a"]) @ p["b"]) @ last

    params = {"a": _weights(rng, 3, 2), "b": 10.0 ** -rng.integers(0, 4) * _weights(rng, 2, width)}
    return _function("LoRA", apply, params, rng.standard_normal((n, 3)))


def _gridded(rng: np.random.Generator) -> Written:
    """A table that is read at features on a grid, cut or rounded to integers."""
    n, _, width, outputs = _sizes(rng)
    kind = str(rng.choice(["cut", "rounded", "floor"]))
    to_integers = {"cut": lambda z: z, "rounded": jnp.round, "floor": jnp.floor}[kind]

    def apply(p: Any, x: jax.Array) -> jax.Array:
        rows = p["table"][to_integers(x[:, 0] * 4).astype(int)]
        return jnp.tanh(rows + x[:, 1:] @ p["in"]) @ p["out"]

    params = {"table": _weights(rng, 5, width), "in": _weights(rng, 2, width)}
    params["out"] = _weights(rng, width, outputs)
    x = np.concatenate([rng.integers(0, 17, (n, 1)) / 16, rng.standard_normal((n, 2))], axis=1)
    return _function(f"table of a grid: {kind}", apply, params, x)


def _narrow(rng: np.random.Generator) -> Written:
    """A perceptron whose middle computes in bfloat16 or float32."""
    n, _, width, outputs = _sizes(rng)
    kind = jnp.bfloat16 if rng.random() < 0.5 else jnp.float32

    def computed_in(dtype: Any) -> Apply:
        def apply(p: Any, x: jax.Array) -> jax.Array:
            h = jnp.tanh(x @ p["in"]).astype(dtype)
            h = jax.nn.silu(h @ p["middle"].astype(dtype))
            return h.astype(x.dtype) @ p["out"]

        return apply

    params = {"in": _weights(rng, 3, width), "middle": _weights(rng, width, width)}
    params["out"] = _weights(rng, width, outputs)
    name = f"{jnp.dtype(kind).name} inside"
    x = rng.standard_normal((n, 3))
    return _function(name, computed_in(jnp.float64), params, x, computed_in(kind))


def _towers(rng: np.random.Generator) -> Written:
    """Two towers that are compared across the batch, as a contrastive loss wants it."""
    n, _, width, _ = _sizes(rng)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        a, b = (jnp.tanh(x[:, i] @ p[f"in{i}"]) @ p[f"out{i}"] for i in range(2))
        a, b = (z / jnp.linalg.norm(z, axis=-1, keepdims=True) for z in (a, b))
        return a @ b.T / 0.3

    params = {f"in{i}": _weights(rng, 2, width) for i in range(2)}
    params |= {f"out{i}": _weights(rng, width, 3) for i in range(2)}
    return _function("two towers", apply, params, rng.standard_normal((n, 2, 2)))


FAMILIES: dict[str, Callable[[np.random.Generator], Written]] = {
    "transformer": _transformer,
    "recurrent": _recurrent,
    "convolutional": _convolutional,
    "neural ODE": _flow,
    "Haiku": _haiku,
    "graph": _graph,
    "implicit": _implicit,
    "Fourier": _fourier,
    "physics": _physics,
    "experts": _experts,
    "scan": _scanned,
    "LoRA": _adapted,
    "grid": _gridded,
    "narrow": _narrow,
    "towers": _towers,
}
