"""The 10 largest eigenvalues of the Gauss-Newton matrix of a GPT with 124 million parameters.

    python -m benchmarks.gpt_eigenvalues [--tokens=64] [--steps=20] [--save]

hessian-eigenthings takes so many Lanczos steps, of which each holds a vector of parameters; gnjax
then works until its residuals are as small. Each runs in a process of its own. Seconds include
compilation, and for gnjax the certificate; peak memory is that of the process.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gnjax
from benchmarks import gpt, harness, record
from benchmarks.rivals import install


def measure(tokens: int = 64, steps: int = 20) -> list[record.Row]:
    rival = harness.apart(
        "benchmarks.rivals.hessian_eigenthings:language_model",
        {"tokens": tokens, "steps": steps},
        install.interpreter("hessian-eigenthings"),
    )
    given = {"tokens": tokens, "rtol": rival["residual"]}
    own = harness.apart("benchmarks.gpt_eigenvalues:ours", given)
    name = (
        f"10 largest Gauss-Newton eigenvalues of a GPT with {own['parameters']:,} parameters, "
        f"{tokens} tokens, float32, residuals below {rival['residual']:.0%} of the largest"
    )
    rows = []
    for tool, found in (("gnjax", own), ("hessian-eigenthings", rival)):
        note = f"one cold run, {1e9 * found['gigabytes'] / 2**30:.2f} GiB"
        rows.append(record.Row(name, tool, [found["seconds"]], note=note))
    return rows


def ours(tokens: int, rtol: float) -> dict[str, Any]:
    """The seconds of gnjax to this residual."""
    shape = gpt.Shape()
    params = parameters(shape)
    began = time.perf_counter()
    op = gauss_newton(shape, params, tokens)
    gnjax.eigenvalues(op, k=harness.EIGENVALUES, rtol=rtol)
    return {"seconds": time.perf_counter() - began, "parameters": op.shape[0]}


def parameters(shape: gpt.Shape) -> dict[str, Any]:
    """The weights as arrays of JAX."""
    params: dict[str, Any] = jax.tree.map(jnp.asarray, gpt.weights(shape))
    return params


def gauss_newton(shape: gpt.Shape, params: dict[str, Any], tokens: int) -> gnjax.Operator:
    """The Gauss-Newton matrix of a GPT for one sequence of tokens."""
    x, y = gpt.text(shape, tokens)
    return gnjax.gauss_newton((partial(logits, shape), params), x, y=y, loss="cross_entropy")


def logits(shape: gpt.Shape, params: dict[str, Any], tokens: jax.Array) -> jax.Array:
    """The logits (n, t, v) for token numbers (n, t)."""
    x = params["tokens"][tokens] + params["positions"][: tokens.shape[1]]
    for block in params["blocks"]:
        x = x + _attention(shape, block, _norm(block["norm1"], x))
        up = jax.nn.gelu(_dense(block["up"], _norm(block["norm2"], x)), approximate=True)
        x = x + _dense(block["down"], up)
    return _norm(params["norm"], x) @ params["tokens"].T


def _dense(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]


def _norm(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + gpt.EPSILON)
    return centred * spread * layer["scale"] + layer["bias"]


def _attention(shape: gpt.Shape, block: dict[str, Any], x: jax.Array) -> jax.Array:
    n, t, d = x.shape
    parts = _dense(block["qkv"], x).reshape(n, t, 3, shape.heads, d // shape.heads)
    q, k, v = (parts[:, :, part].swapaxes(1, 2) for part in range(3))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(d // shape.heads).astype(np.float32)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    mixed = (jax.nn.softmax(scores, axis=-1) @ v).swapaxes(1, 2).reshape(n, t, d)
    return _dense(block["out"], mixed)


if __name__ == "__main__":
    record.command(measure)
