"""What a question about a network that people train costs beside the same in plain JAX.

    python -m benchmarks.real_networks [--networks transformer cnn lstm] [--save]

Plain JAX is what a user writes by hand: one compiled product with the Hessian, the forward
derivative of a gradient, and 20 Lanczos steps for the sharpness, 60 for ten eigenvalues, or 30
vectors of random signs for the trace, in NumPy and without an error. gnjax answers the same with
one: the sharpness to 1%, ten eigenvalues to 0.1%, the trace with 30 vectors.

Each asks three times in a process of its own, at parameters that move by 1% as along a training:
the first answer is cold, the better one of the others is warm. Seconds are those of the processor,
which move less on a busy machine.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks import harness, record

QUESTIONS = {"sharpness": "sharpness to 1%", "trace": "trace, 30 vectors", "ten": "ten eigenvalues"}
_PLAIN, _OURS = "plain JAX and NumPy, no error", "gnjax"
_STEPS = {"sharpness": 20, "ten": 60}  # of Lanczos by hand
_VECTORS, _ASKED = 30, 3
_SIZES = {
    "transformer": "a transformer of 118,656 parameters on 16 x 32 tokens",
    "cnn": "a convolutional network of 20,490 parameters on 200 images",
    "lstm": "an LSTM of 31,040 parameters on 32 x 24 tokens",
}


def measure(networks: tuple[str, ...] = tuple(_SIZES)) -> list[record.Row]:
    rows = []
    for network in networks:
        for question, said in QUESTIONS.items():
            seconds = {
                tool: harness.apart(
                    "benchmarks.real_networks:asked",
                    {"network": network, "question": question, "by_hand": tool == _PLAIN},
                )["seconds"]
                for tool in (_OURS, _PLAIN)
            }
            for run in ("cold", "warm"):
                case = f"{_SIZES[network]}: {said}, {run}"
                ours, plain = _of_run(seconds[_OURS], run), _of_run(seconds[_PLAIN], run)
                rows.append(record.Row(case, _OURS, [ours]))
                rows.append(record.Row(case, _PLAIN, [plain], [plain / ours]))
    return rows


def _of_run(seconds: np.ndarray, run: str) -> float:
    return float(seconds[0] if run == "cold" else seconds[1:].min())


def asked(network: Any, question: Any, by_hand: Any) -> dict[str, Any]:
    """The seconds of three answers about one network, and their values."""
    from flax import nnx

    import gnjax  # its import does not count

    model, x, y = NETWORKS[str(network)]()
    parts: Any = nnx.split(model, nnx.Param, ...)
    graph, params, rest = parts
    plain = _Plain(graph, rest, x, y)
    seconds, values = [], []
    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of 32-bit mode, which is meant
        for call in range(_ASKED):
            here = jax.tree.map(lambda leaf, call=call: leaf * (1 + 0.01 * call), params)
            began = time.process_time()
            if by_hand:
                value = plain.answer(str(question), here)
            else:
                model = nnx.merge(graph, here, rest)
                op = gnjax.hessian(model, x, y, loss="cross_entropy")
                value = _by_gnjax(str(question), op)
            seconds.append(time.process_time() - began)
            values.append(value)
    return {"seconds": np.array(seconds), "values": np.array(values)}


def _by_gnjax(question: str, op: Any) -> float:
    import gnjax

    if question == "trace":
        return float(gnjax.trace(op, probes=_VECTORS).value)
    count, rtol = (1, 1e-2) if question == "sharpness" else (10, 1e-3)
    return float(gnjax.eigenvalues(op, k=count, rtol=rtol).values[0])


class _Plain:
    """The answers by one compiled product with the Hessian of the mean loss."""

    def __init__(self, graph: Any, rest: Any, x: jax.Array, y: jax.Array) -> None:
        self.graph, self.rest, self.x, self.y = graph, rest, x, y
        self._product: Callable[..., jax.Array] | None = None

    def answer(self, question: str, params: Any) -> float:
        import optax
        from flax import nnx

        flat, unravel = ravel_pytree(params)

        def loss(flat: jax.Array) -> jax.Array:
            outputs = nnx.merge(self.graph, unravel(flat), self.rest)(self.x)
            return optax.softmax_cross_entropy_with_integer_labels(outputs, self.y).mean()

        if self._product is None:
            self._product = jax.jit(lambda f, v: jax.jvp(jax.grad(loss), (f,), (v,))[1])
        product, rng = self._product, np.random.default_rng(0)
        if question == "trace":
            signs = np.sign(rng.standard_normal((_VECTORS, flat.size))).astype(flat.dtype)
            return float(np.mean([v @ np.asarray(product(flat, v)) for v in signs]))
        v = rng.standard_normal(flat.size).astype(flat.dtype)
        basis, projection = [v / np.linalg.norm(v)], np.zeros((_STEPS[question],) * 2)
        for step in range(_STEPS[question]):
            image = np.asarray(product(flat, basis[-1]))
            for place, u in enumerate(basis):
                projection[place, step] = projection[step, place] = image @ u
                image = image - (image @ u) * u
            basis.append(image / np.linalg.norm(image))
        return float(np.linalg.eigvalsh(projection)[-1])


def _tokens(vocabulary: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, vocabulary, shape))


def _transformer() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    vocabulary, d, length, heads = 128, 64, 32, 4

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.norms = nnx.List([nnx.LayerNorm(d, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(heads, d, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(d, 4 * d, rngs=rngs), nnx.Linear(4 * d, d, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
            x = x + self.attention(self.norms[0](x), mask=mask)
            return x + self.down(nnx.gelu(self.up(self.norms[1](x))))

    class Transformer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.tokens = nnx.Embed(vocabulary, d, rngs=rngs)
            self.positions = nnx.Param(0.02 * jax.random.normal(rngs.params(), (length, d)))
            self.blocks = nnx.List([Block(rngs) for _ in range(2)])
            self.norm, self.head = nnx.LayerNorm(d, rngs=rngs), nnx.Linear(d, vocabulary, rngs=rngs)

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = self.tokens(tokens) + self.positions[...]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    shape = 16, length
    return Transformer(nnx.Rngs(0)), _tokens(vocabulary, *shape), _tokens(vocabulary, *shape)


def _cnn() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    class CNN(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
            self.second = nnx.Conv(16, 32, (3, 3), rngs=rngs)
            self.head = nnx.Linear(32 * 49, 10, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            for layer in (self.first, self.second):
                x = nnx.avg_pool(nnx.relu(layer(x)), (2, 2), (2, 2))
            return self.head(x.reshape(len(x), -1))

    images = np.random.default_rng(0).standard_normal((200, 28, 28, 1), np.float32)
    return CNN(nnx.Rngs(0)), jnp.asarray(images), _tokens(10, 200)


def _lstm() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    class LSTM(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.tokens = nnx.Embed(64, 32, rngs=rngs)
            self.loop = nnx.RNN(nnx.LSTMCell(32, 64, rngs=rngs))
            self.head = nnx.Linear(64, 64, rngs=rngs)

        def __call__(self, tokens: jax.Array) -> jax.Array:
            zero = jnp.zeros((tokens.shape[0], 64))
            return self.head(self.loop(self.tokens(tokens), initial_carry=(zero, zero)))

    return LSTM(nnx.Rngs(0)), _tokens(64, 32, 24), _tokens(64, 32, 24)


NETWORKS = {"transformer": _transformer, "cnn": _cnn, "lstm": _lstm}


if __name__ == "__main__":
    record.command(measure)
