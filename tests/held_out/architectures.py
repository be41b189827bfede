"""Small networks written once, for two arithmetics: JAX in float64, and numbers of many digits.

``apply(ops, params, x)`` is the definition of the network. With the functions of :data:`JAX` it is
what the library is given; with those of :data:`EXACT` it is the reference, which differentiates by
its own tape. Casts to a lower precision are part of the program in JAX, and nothing in exact
arithmetic: the truth is the network without rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.held_out import tape

EPSILON = 1e-6


@dataclass(frozen=True)
class Ops:
    """The functions that networks are written with."""

    relu: Callable
    tanh: Callable
    gelu: Callable
    gelu_tanh: Callable
    exp: Callable
    rsqrt: Callable
    sigmoid: Callable
    softmax: Callable
    convolution: Callable
    positive: Callable  # max(0, x) of what is never negative but for rounding
    single: Callable
    half: Callable
    double: Callable


def _convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x.astype(kernel.dtype), kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


JAX = Ops(
    relu=jax.nn.relu,
    tanh=jnp.tanh,
    gelu=functools.partial(jax.nn.gelu, approximate=False),
    gelu_tanh=functools.partial(jax.nn.gelu, approximate=True),
    exp=jnp.exp,
    rsqrt=jax.lax.rsqrt,
    sigmoid=jax.nn.sigmoid,
    softmax=functools.partial(jax.nn.softmax, axis=-1),
    convolution=_convolution,
    positive=functools.partial(jnp.maximum, 0.0),
    single=lambda x: x.astype(jnp.float32),
    half=lambda x: x.astype(jnp.bfloat16),
    double=lambda x: x.astype(jnp.float64),
)
EXACT = Ops(
    relu=tape.relu,
    tanh=tape.tanh,
    gelu=tape.gelu,
    gelu_tanh=tape.gelu_tanh,
    exp=tape.exp,
    rsqrt=tape.rsqrt,
    sigmoid=tape.sigmoid,
    softmax=tape.softmax,
    convolution=tape.convolution,
    positive=tape.same,
    single=tape.same,
    half=tape.same,
    double=tape.same,
)


@dataclass(frozen=True)
class Architecture:
    """A network as a function, with the shapes of its parameters and of one input.

    ``coupled`` says that the output of one sample depends on the others.
    """

    name: str
    apply: Callable[[Ops, Any, Any], Any]
    shapes: dict[str, tuple[int, ...]]
    inputs: tuple[int, ...]
    outputs: int
    coupled: bool = False

    @functools.cached_property
    def jax(self) -> Callable:
        """The same function object every time, so that JAX compiles it once."""
        return functools.partial(self.apply, JAX)


def _dense(activation: str, sizes: tuple[int, ...]) -> Architecture:
    layers = len(sizes) - 1

    def apply(ops: Ops, p: Any, x: Any) -> Any:
        f = getattr(ops, activation)
        for layer in range(layers):
            x = x @ p[f"{layer}w"] + p[f"{layer}b"]
            x = f(x) if layer < layers - 1 else x
        return x

    name = f"dense {activation} {'-'.join(map(str, sizes))}"
    return Architecture(name, apply, _dense_shapes(sizes), (sizes[0],), sizes[-1])


def _dense_shapes(sizes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    pairs = list(enumerate(itertools.pairwise(sizes)))
    weights = {f"{layer}w": pair for layer, pair in pairs}
    return weights | {f"{layer}b": (1, pair[1]) for layer, pair in pairs}


def _convolutional(activation: str) -> Architecture:
    def apply(ops: Ops, p: Any, x: Any) -> Any:
        h = getattr(ops, activation)(ops.convolution(x, p["0kernel"]))
        return h.reshape(x.shape[0], 12) @ p["1w"] + p["1b"]

    shapes = {"0kernel": (2, 2, 1, 2), "1w": (12, 2), "1b": (1, 2)}
    return Architecture(f"convolution {activation}", apply, shapes, (3, 4, 1), 2)


def _attention(precision: str) -> Architecture:
    def apply(ops: Ops, p: Any, x: Any) -> Any:  # (n, 3 tokens, 3)
        query, key, value = x @ p["0query"], x @ p["0key"], x @ p["0value"]
        scores = (query @ key.swapaxes(1, 2)) * 3**-0.5
        weights = ops.double(ops.softmax(getattr(ops, precision)(scores)))
        return (weights @ value).mean(axis=1) @ p["1head"]

    shapes = {"0query": (3, 3), "0key": (3, 3), "0value": (3, 3), "1head": (3, 2)}
    return Architecture(f"attention, softmax in {precision}", apply, shapes, (3, 3), 2)


def _layer_norm(fast: bool) -> Architecture:
    def apply(ops: Ops, p: Any, x: Any) -> Any:
        h = x @ p["0w"] + p["0b"]
        mean = h.mean(axis=1, keepdims=True)
        if fast:  # E h^2 - (E h)^2, as Flax has it
            variance = ops.positive((h * h).mean(axis=1, keepdims=True) - mean * mean)
        else:
            variance = ((h - mean) * (h - mean)).mean(axis=1, keepdims=True)
        h = (h - mean) * ops.rsqrt(variance + EPSILON) * p["1scale"] + p["1bias"]
        return ops.tanh(h) @ p["2w"]

    shapes = {"0w": (3, 4), "0b": (1, 4), "1scale": (1, 4), "1bias": (1, 4), "2w": (4, 2)}
    name = "layer norm, fast variance" if fast else "layer norm"
    return Architecture(name, apply, shapes, (3,), 2)


def _batch_norm(frozen: bool) -> Architecture:
    rng = np.random.default_rng(20)
    center, spread = rng.standard_normal((1, 4)), rng.uniform(0.1, 2.0, (1, 4))

    def apply(ops: Ops, p: Any, x: Any) -> Any:
        h = x @ p["0w"]
        if frozen:
            h = (h + -center) * (spread + EPSILON) ** -0.5
        else:
            h = h - h.mean(axis=0, keepdims=True)
            h = h * ops.rsqrt((h * h).mean(axis=0, keepdims=True) + EPSILON)
        return ops.relu(h * p["1scale"] + p["1bias"]) @ p["2w"]

    shapes = {"0w": (3, 4), "1scale": (1, 4), "1bias": (1, 4), "2w": (4, 2)}
    name = "batch norm, frozen" if frozen else "batch norm of the batch"
    return Architecture(name, apply, shapes, (3,), 2, coupled=not frozen)


def _tied(activation: str) -> Architecture:
    def apply(ops: Ops, p: Any, x: Any) -> Any:
        return getattr(ops, activation)(x @ p["0w"]) @ p["0w"].swapaxes(0, 1) + p["1b"]

    return Architecture(f"tied {activation}", apply, {"0w": (3, 4), "1b": (1, 3)}, (3,), 3)


def _half_inside() -> Architecture:
    def apply(ops: Ops, p: Any, x: Any) -> Any:
        h = ops.half(x) @ ops.half(p["0w"])
        return ops.tanh(ops.double(h)) @ p["1w"]

    return Architecture("dense in bfloat16 inside", apply, {"0w": (3, 4), "1w": (4, 2)}, (3,), 2)


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        _dense("relu", (3, 4, 2)),
        _dense("tanh", (3, 4, 2)),
        _dense("gelu", (3, 4, 2)),
        _dense("gelu_tanh", (3, 4, 2)),
        _dense("tanh", (2, 3, 3, 3)),
        _dense("relu", (3, 5, 1)),
        _dense("tanh", (4, 1)),
        _convolutional("relu"),
        _convolutional("tanh"),
        _attention("double"),
        _attention("single"),
        _layer_norm(fast=False),
        _layer_norm(fast=True),
        _batch_norm(frozen=True),
        _batch_norm(frozen=False),
        _tied("tanh"),
        _tied("relu"),
        _half_inside(),
    )
}
