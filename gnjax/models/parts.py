"""Layers of networks, and the check of images.

Where no weight is given, weights start at zero and are drawn together at the end of a model's
constructor.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.numerics.host import by_numpy, on_device
from gnjax.numerics.precision import real_dtype

_NORMS = (None, "batch", "layer")


def _zeros(key: jax.Array, shape: tuple[int, ...], dtype: Any, **_: Any) -> jax.Array:
    """An initialiser of Flax that compiles nothing, for weights that are replaced and biases."""
    return on_device(np.zeros(shape, dtype))


def _ones(key: jax.Array, shape: tuple[int, ...], dtype: Any, **_: Any) -> jax.Array:
    """An initialiser of Flax that compiles nothing, for the scales of normalisations."""
    return on_device(np.ones(shape, dtype))


def linear_layer(
    inputs: int, outputs: int, *, bias: bool = True, dtype: Any = None, rngs: nnx.Rngs
) -> nnx.Linear:
    """The layer x -> W x + b, or x -> W x without ``bias``; W and b start at zero."""
    return nnx.Linear(
        inputs,
        outputs,
        use_bias=bias,
        param_dtype=dtype or real_dtype(),
        precision="highest",
        kernel_init=_zeros,
        bias_init=_zeros,
        rngs=rngs,
    )


def dense_layer(weight: jax.Array, *, bias: bool, rngs: nnx.Rngs) -> nnx.Linear:
    """The layer x -> W x, or x -> W x + b with b = 0, for the weight W (outputs, inputs)."""
    outputs, inputs = weight.shape
    layer = linear_layer(inputs, outputs, bias=bias, dtype=weight.dtype, rngs=rngs)
    layer.kernel = nnx.Param(on_device(by_numpy(weight).T))
    return layer


def normalisation(norm: str | None, features: int, dtype: Any = None, *, rngs: nnx.Rngs) -> Any:
    """A normalisation of ``features`` values: "batch", "layer", or None for no layer.

    Its variance is computed as E[(x - E[x])^2], because E[x^2] - E[x]^2 loses digits. Its epsilon
    is PyTorch's.
    """
    if norm not in _NORMS:
        msg = f"norm={norm!r} is not one of {', '.join(map(repr, _NORMS))}"
        raise ValueError(msg)
    if norm is None:
        return None
    dtype = dtype or real_dtype()
    layer = (nnx.LayerNorm if norm == "layer" else nnx.BatchNorm)(
        features,
        epsilon=1e-5,
        param_dtype=dtype,
        use_fast_variance=False,
        scale_init=_ones,
        bias_init=_zeros,
        rngs=rngs,
    )
    if isinstance(layer, nnx.BatchNorm):
        # Flax keeps running statistics in float32 whatever param_dtype is.
        layer.mean = nnx.BatchStat(on_device(np.zeros(features, dtype)))
        layer.var = nnx.BatchStat(on_device(np.ones(features, dtype)))
    return layer


def conv_layer(
    channels: int,
    filters: int,
    kernel: int,
    *,
    stride: int,
    padding: int,
    bias: bool,
    dtype: Any = None,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """A 2-D convolution with a square kernel and so many zeros on each side; it starts at zero."""
    return nnx.Conv(
        channels,
        filters,
        (kernel, kernel),
        strides=stride,
        padding=padding,
        use_bias=bias,
        param_dtype=dtype or real_dtype(),
        precision="highest",
        kernel_init=_zeros,
        bias_init=_zeros,
        rngs=rngs,
    )


class ConvNorm(nnx.Module):
    """N(w * x + b): a convolution with an odd kernel, then BatchNorm.

    The padding keeps the height and width at stride 1, and halves even ones at stride 2.
    """

    def __init__(
        self,
        channels: int,
        filters: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        bias: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """From ``channels`` to ``filters``; all weights are zero until an initialiser sets them."""
        padding = kernel // 2
        self.conv = conv_layer(
            channels, filters, kernel, stride=stride, padding=padding, bias=bias, rngs=rngs
        )
        self.norm = normalisation("batch", filters, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.conv(x))


def max_pool(x: jax.Array) -> jax.Array:
    """The maximum over 2 x 2 positions, (n, h, w, c) to (n, h/2, w/2, c).

    Where several positions have the maximum, the first has the derivative, as in PyTorch.
    ``jnp.max`` is not used: its derivative compares every entry with the maximum, and a compiled
    program may compute the entries a second time with another rounding, so that none is equal to
    the maximum and the derivative is 0 / 0.
    """
    first, second, third, fourth = (x[:, i::2, j::2] for i in (0, 1) for j in (0, 1))
    upper = jnp.where(first >= second, first, second)
    lower = jnp.where(third >= fourth, third, fourth)
    return jnp.where(upper >= lower, upper, lower)


def check_images(x: jax.Array, shape: tuple[int, ...]) -> None:
    """Refuse images that are not (n, height, width, channels) with the given shape."""
    if x.ndim != 4 or x.shape[1:] != shape:
        msg = f"images must have shape (n, {', '.join(map(str, shape))}), got {x.shape}"
        raise ValueError(msg)
