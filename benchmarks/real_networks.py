"""What a question about a network that people train costs beside the same in plain JAX.

    python -m benchmarks.real_networks [--networks transformer cnn lstm vit unet experts] [--save]

Plain JAX is what a user writes by hand: one compiled product with the Hessian, the forward
derivative of a gradient, and 20 Lanczos steps for the sharpness, 60 for ten eigenvalues, 30
vectors of random signs for the trace or the diagonal, or 20 Lanczos steps from each of 5 vectors
for the density, in NumPy and without an error. gnjax answers the same with one: the sharpness to
1%, ten eigenvalues to 0.1%, the others with as many vectors and steps.

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

QUESTIONS = {
    "sharpness": "sharpness to 1%",
    "ten": "ten eigenvalues",
    "trace": "trace, 30 vectors",
    "diagonal": "diagonal, 30 vectors",
    "density": "density, 5 vectors of 20 steps",
}
_PLAIN, _OURS = "plain JAX and NumPy, no error", "gnjax"
_STEPS = {"sharpness": 20, "ten": 60}  # of Lanczos by hand
_VECTORS, _ASKED = 30, 3
_STARTS, _STEPS_EACH = 5, 20  # of a density
_SIZES = {
    "transformer": "a transformer of 118,656 parameters on 16 x 32 tokens",
    "cnn": "a convolutional network of 20,490 parameters on 200 images",
    "lstm": "an LSTM of 31,040 parameters on 32 x 24 tokens",
    "vit": "a vision transformer of 72,074 parameters on 64 images",
    "unet": "a U-Net of 29,641 parameters on 16 images of 32 x 32",
    "experts": "a mixture of experts of 99,376 parameters on 16 x 32 tokens",
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
            case = f"{_SIZES[network]}: {said}"
            (cold, warm), (plain_cold, plain_warm) = (_both(seconds[t]) for t in (_OURS, _PLAIN))
            again = f"{plain_warm:.3g} s again, {plain_warm / warm:.3g} times as long"
            rows.append(record.Row(case, _OURS, [cold], note=f"{warm:.3g} s again"))
            rows.append(record.Row(case, _PLAIN, [plain_cold], [plain_cold / cold], note=again))
    return rows


def _both(seconds: np.ndarray) -> tuple[float, float]:
    """The seconds of the first answer, and of the better one of the others."""
    return float(seconds[0]), float(seconds[1:].min())


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
                loss = "squared_error" if jnp.issubdtype(y.dtype, jnp.floating) else "cross_entropy"
                op = gnjax.hessian(model, x, y, loss=loss)
                value = _by_gnjax(str(question), op)
            seconds.append(time.process_time() - began)
            values.append(value)
    return {"seconds": np.array(seconds), "values": np.array(values)}


def _by_gnjax(question: str, op: Any) -> float:
    import gnjax

    if question == "trace":
        return float(gnjax.trace(op, probes=_VECTORS).value)
    if question == "diagonal":
        return float(gnjax.estimate_diagonal(op, probes=_VECTORS).values.sum())
    if question == "density":
        density = gnjax.spectral_density(op, probes=_STARTS, steps=_STEPS_EACH)
        return float(density.moment(1).value)
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
            if jnp.issubdtype(self.y.dtype, jnp.floating):  # half of the square, summed
                return jnp.square(outputs - self.y).sum() / 2 / len(self.y)
            return optax.softmax_cross_entropy_with_integer_labels(outputs, self.y).mean()

        if self._product is None:
            self._product = jax.jit(lambda f, v: jax.jvp(jax.grad(loss), (f,), (v,))[1])
        product, rng = self._product, np.random.default_rng(0)
        if question in ("trace", "diagonal"):
            signs = np.sign(rng.standard_normal((_VECTORS, flat.size))).astype(flat.dtype)
            parts = [v * np.asarray(product(flat, v)) for v in signs]
            return float(np.mean(parts, axis=0).sum())
        starts = rng.standard_normal((_STARTS, flat.size)).astype(flat.dtype)
        if question == "density":
            projections = [self._lanczos(flat, v, _STEPS_EACH) for v in starts]
            nodes = [np.linalg.eigh(projection) for projection in projections]
            return float(np.mean([values @ vectors[0] ** 2 for values, vectors in nodes]))
        return float(np.linalg.eigvalsh(self._lanczos(flat, starts[0], _STEPS[question]))[-1])

    def _lanczos(self, flat: jax.Array, start: np.ndarray, steps: int) -> np.ndarray:
        """The projection of the Hessian to the Krylov space of a start."""
        assert self._product is not None
        basis, projection = [start / np.linalg.norm(start)], np.zeros((steps, steps))
        for step in range(steps):
            image = np.asarray(self._product(flat, basis[-1]))
            for place, u in enumerate(basis):
                projection[place, step] = projection[step, place] = image @ u
                image = image - (image @ u) * u
            basis.append(image / np.linalg.norm(image))
        return projection


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


def _vision_transformer() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    d, heads, patches = 64, 4, 49

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.norms = nnx.List([nnx.LayerNorm(d, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(heads, d, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(d, 2 * d, rngs=rngs), nnx.Linear(2 * d, d, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            x = x + self.attention(self.norms[0](x))
            return x + self.down(nnx.gelu(self.up(self.norms[1](x))))

    class VisionTransformer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.patches = nnx.Conv(1, d, (4, 4), (4, 4), padding="VALID", rngs=rngs)
            places = jax.random.normal(rngs.params(), (patches + 1, d))
            self.positions = nnx.Param(0.02 * places)
            self.token = nnx.Param(jnp.zeros((1, 1, d)))
            self.blocks = nnx.List([Block(rngs) for _ in range(2)])
            self.norm, self.head = nnx.LayerNorm(d, rngs=rngs), nnx.Linear(d, 10, rngs=rngs)

        def __call__(self, images: jax.Array) -> jax.Array:
            x = self.patches(images).reshape(len(images), patches, d)
            token = jnp.broadcast_to(self.token[...], (len(images), 1, d))
            x = jnp.concatenate([token, x], axis=1) + self.positions[...]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x[:, 0]))

    images = np.random.default_rng(0).standard_normal((64, 28, 28, 1), np.float32)
    return VisionTransformer(nnx.Rngs(0)), jnp.asarray(images), _tokens(10, 64)


def _unet() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    class Twice(nnx.Module):
        def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
            self.convolutions = nnx.List(
                [nnx.Conv(k, outputs, (3, 3), rngs=rngs) for k in (inputs, outputs)]
            )
            self.norms = nnx.List([nnx.GroupNorm(outputs, 4, rngs=rngs) for _ in range(2)])

        def __call__(self, x: jax.Array) -> jax.Array:
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                x = nnx.silu(norm(convolution(x)))
            return x

    class UNet(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.down = nnx.List([Twice(1, 8, rngs), Twice(8, 16, rngs)])
            self.middle = Twice(16, 32, rngs)
            self.widen = nnx.List(
                [nnx.ConvTranspose(2 * k, k, (2, 2), (2, 2), rngs=rngs) for k in (16, 8)]
            )
            self.up = nnx.List([Twice(32, 16, rngs), Twice(16, 8, rngs)])
            self.head = nnx.Conv(8, 1, (1, 1), rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            kept = []
            for block in self.down:
                kept.append(block(x))
                x = nnx.avg_pool(kept[-1], (2, 2), (2, 2))
            x = self.middle(x)
            for widen, block in zip(self.widen, self.up, strict=True):
                x = block(jnp.concatenate([kept.pop(), widen(x)], axis=-1))
            return self.head(x)

    noise = np.random.default_rng(0).standard_normal((2, 16, 32, 32, 1), np.float32)
    return UNet(nnx.Rngs(0)), jnp.asarray(noise[0]), jnp.asarray(noise[1])


def _experts() -> tuple[Any, jax.Array, jax.Array]:
    from flax import nnx

    vocabulary, d, length, experts, hidden = 64, 48, 32, 4, 96

    class Experts(nnx.Module):
        """Each token goes through the two experts that a router prefers, by its weights."""

        def __init__(self, rngs: nnx.Rngs) -> None:
            self.router = nnx.Linear(d, experts, use_bias=False, rngs=rngs)
            draw = jax.random.normal
            self.up = nnx.Param(draw(rngs.params(), (experts, d, hidden)) / d**0.5)
            self.down = nnx.Param(draw(rngs.params(), (experts, hidden, d)) / hidden**0.5)

        def __call__(self, x: jax.Array) -> jax.Array:
            chances, chosen = jax.lax.top_k(jax.nn.softmax(self.router(x)), 2)
            shares = chances / chances.sum(-1, keepdims=True)
            weights = (jax.nn.one_hot(chosen, experts) * shares[..., None]).sum(-2)
            inside = nnx.silu(jnp.einsum("btd,edh->bteh", x, self.up[...]))
            return jnp.einsum("bteh,ehd,bte->btd", inside, self.down[...], weights)

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.norms = nnx.List([nnx.RMSNorm(d, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(4, d, decode=False, rngs=rngs)
            self.experts = Experts(rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
            x = x + self.attention(self.norms[0](x), mask=mask)
            return x + self.experts(self.norms[1](x))

    class Mixture(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.tokens = nnx.Embed(vocabulary, d, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(2)])
            self.norm, self.head = nnx.RMSNorm(d, rngs=rngs), nnx.Linear(d, vocabulary, rngs=rngs)

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    shape = 16, length
    return Mixture(nnx.Rngs(0)), _tokens(vocabulary, *shape), _tokens(vocabulary, *shape)


NETWORKS = {
    "transformer": _transformer,
    "cnn": _cnn,
    "lstm": _lstm,
    "vit": _vision_transformer,
    "unet": _unet,
    "experts": _experts,
}


if __name__ == "__main__":
    record.command(measure)
