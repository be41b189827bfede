"""The networks of the cases in JAX; runs on jax 0.4.23 and later.

Dense layers are x @ W, as neural-tangents needs: behind a transpose of W its structured
derivatives are 150 times slower at n = 20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.harness import Case

Weights = Mapping[str, jax.Array]
_NORM_EPSILON = 1e-5
_AXES = {"dense": (1, 0), "conv": (2, 3, 1, 0)}


def relu_mlp(weights: Weights, x: jax.Array) -> jax.Array:
    """W2 relu(W1 x)."""
    return jax.nn.relu(x @ weights["layer1_dense"]) @ weights["layer2_dense"]


def tanh_mlp(weights: Weights, x: jax.Array) -> jax.Array:
    """W2 tanh(W1 x + b1) + b2."""
    hidden = jnp.tanh(x @ weights["layer1_dense"] + weights["layer1_bias"])
    return hidden @ weights["layer2_dense"] + weights["layer2_bias"]


def resnet20(weights: Weights, statistics: Weights, x: jax.Array) -> jax.Array:
    """ResNet20 for CIFAR: three stages of three blocks, and shortcuts without parameters."""
    z = jax.nn.relu(_conv_norm(weights, statistics, "stem", x, 1))
    for stage in (1, 2, 3):
        for block in (1, 2, 3):
            name = f"stage{stage}_block{block}"
            stride = 2 if stage > 1 and block == 1 else 1
            inner = jax.nn.relu(_conv_norm(weights, statistics, f"{name}_first", z, stride))
            inner = _conv_norm(weights, statistics, f"{name}_second", inner, 1)
            z = jax.nn.relu(inner + _shortcut(z, stride))
    return z.mean((1, 2)) @ weights["head_dense"] + weights["head_bias"]


def _conv_norm(
    weights: Weights, statistics: Weights, name: str, x: jax.Array, stride: int
) -> jax.Array:
    """A 3 x 3 convolution and BatchNorm with frozen statistics."""
    z = jax.lax.conv_general_dilated(
        x,
        weights[f"{name}_conv"],
        (stride, stride),
        ((1, 1), (1, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    spread = jnp.sqrt(statistics[f"{name}_variance"] + _NORM_EPSILON)
    return (z - statistics[f"{name}_mean"]) / spread * weights[f"{name}_scale"] + weights[
        f"{name}_shift"
    ]


def _shortcut(x: jax.Array, stride: int) -> jax.Array:
    """The identity; where the width doubles, every other pixel, padded with channels of zeros."""
    if stride == 1:
        return x
    around = x.shape[-1] // 2
    return jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (around, around)))


def cross_entropy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """The cross-entropy, a mean over the samples."""
    chosen = jnp.take_along_axis(outputs, labels[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(outputs, axis=1) - chosen).mean()


def hessian_product(case: Case) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """The weights of ``tanh_mlp`` as a vector, and products with the Hessian of its risk there."""
    flat, unravel = ravel_pytree(to_jax(case.weights))
    x, y = jnp.asarray(case.x), jnp.asarray(case.y)

    def risk(flat: jax.Array) -> jax.Array:
        return cross_entropy(tanh_mlp(unravel(flat), x), y)

    return flat, lambda v: jax.jvp(jax.grad(risk), (flat,), (v,))[1]


def gauss_newton_product(case: Case) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """The same for the Gauss-Newton matrix, 1/n sum_i J_i^T (diag p - p p^T) J_i."""
    flat, unravel = ravel_pytree(to_jax(case.weights))
    x = jnp.asarray(case.x)

    def outputs(flat: jax.Array) -> jax.Array:
        return tanh_mlp(unravel(flat), x)

    def product(v: jax.Array) -> jax.Array:
        f, pushed = jax.jvp(outputs, (flat,), (v,))
        p = jax.nn.softmax(f)
        weighted = p * (pushed - (p * pushed).sum(1, keepdims=True))
        return jax.vjp(outputs, flat)[1](weighted)[0] / len(x)

    return flat, product


def to_jax(weights: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """A case's arrays with the outputs of every layer last, as is usual in JAX."""
    return {name: jnp.asarray(_moved(name, a)) for name, a in weights.items()}


def order(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """For each entry of a vector that JAX flattened, its index in the case's flat vector."""
    names = sorted(weights)
    ends = np.cumsum([weights[name].size for name in names])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    shaped = [
        _moved(name, part.reshape(weights[name].shape))
        for name, part in zip(names, parts, strict=True)
    ]
    return np.concatenate([part.ravel() for part in shaped])


def _moved(name: str, a: np.ndarray) -> np.ndarray:
    return a.transpose(_AXES.get(name.rpartition("_")[2], range(a.ndim)))
