"""Layers of convolutional networks and transformers, and the check of their images.

Their weights start at zero and are drawn together, by
:func:`gnjax.models.initializers.start_as_pytorch` at the end of a model's constructor.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models.mlp import NORM_EPSILON, normalisation, normalised, ones, zero_weights
from gnjax.numerics.precision import real_dtype


def linear_layer(inputs: int, outputs: int, *, bias: bool = True, rngs: nnx.Rngs) -> nnx.Linear:
    """The layer x -> W x + b, or x -> W x without ``bias``; W and b start at zero."""
    return nnx.Linear(
        inputs,
        outputs,
        use_bias=bias,
        param_dtype=real_dtype(),
        precision="highest",
        kernel_init=zero_weights,
        bias_init=zero_weights,
        rngs=rngs,
    )


def layer_norm(features: int, *, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A LayerNorm with PyTorch's epsilon; its variance is that of centred values."""
    return nnx.LayerNorm(
        features,
        epsilon=NORM_EPSILON,
        param_dtype=real_dtype(),
        use_fast_variance=False,
        scale_init=ones,
        bias_init=zero_weights,
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
        self.conv = nnx.Conv(
            channels,
            filters,
            (kernel, kernel),
            strides=stride,
            padding=kernel // 2,
            use_bias=bias,
            param_dtype=real_dtype(),
            precision="highest",
            kernel_init=zero_weights,
            bias_init=zero_weights,
            rngs=rngs,
        )
        self.norm = normalisation("batch", filters, real_dtype(), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return normalised(self.norm, self.conv(x))


def max_pool(x: jax.Array) -> jax.Array:
    """The maximum over 2 x 2 positions, (n, h, w, c) to (n, h/2, w/2, c).

    Where several positions have the maximum, the first has the derivative, as in PyTorch.
    ``jnp.max`` is not used: its derivative compares every entry with the maximum, and a compiled
    program may compute the entries a second time with another rounding, so that none is equal to
    the maximum and the derivative is 0 / 0.
    """
    first, second, third, fourth = (x[:, i::2, j::2] for i in (0, 1) for j in (0, 1))
    return _larger(_larger(first, second), _larger(third, fourth))


def _larger(a: jax.Array, b: jax.Array) -> jax.Array:
    """max(a, b), whose derivative is that of a where both are equal."""
    return jnp.where(a >= b, a, b)


def check_images(x: jax.Array, shape: tuple[int, int, int]) -> None:
    """Refuse images that are not (n, height, width, channels) with the given shape."""
    if x.ndim != 4 or x.shape[1:] != shape:
        msg = f"images must have shape (n, {', '.join(map(str, shape))}), got {x.shape}"
        raise ValueError(msg)
