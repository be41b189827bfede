"""Convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from gnjax.models import initializers
from gnjax.models.mlp import ACTIVATIONS, check_activation
from gnjax.models.parts import check_images, conv_layer, dense_layer, normalisation
from gnjax.numerics.host import by_numpy, on_device


class LinearCNN(nnx.Module):
    """F(x) = H (w * x), the two-layer linear CNN of paper A's Figure 8 and Appendix B.

    Inputs are rows, images flattened: (n, d) to (n, k). The convolution is 1-D over the d entries
    and not flipped; its outputs, filter after filter, go through the dense head H. No bias.

    >>> model = gnjax.models.LinearCNN(6, 2, filters=3, kernel=2, key=jax.random.key(0))
    >>> model(np.ones((5, 6))).shape
    (5, 2)
    """

    def __init__(
        self,
        length: int,
        outputs: int,
        *,
        filters: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        initializer: str = "kaiming_normal",
        key: jax.Array,
        **options: object,
    ) -> None:
        """A network for inputs (n, ``length``), with one 1-D convolution and k = ``outputs``.

        The attributes ``kernels`` (filters, kernel) and ``head`` (k, filters * length_out) are
        drawn as such matrices by :func:`gnjax.models.initializers.chain`, to which ``options`` go.
        ``padding`` zeros are put on each side.
        """
        positions = output_length(length, kernel, stride, padding)
        self.length, self.stride, self.padding = length, stride, padding
        shapes = ((kernel, filters), (filters * positions, outputs))
        kernels, head = (
            initializers.chain(jax.random.fold_in(key, layer), shape, initializer, **options)[0]
            for layer, shape in enumerate(shapes, start=1)
        )
        self.kernels, self.head = nnx.Param(kernels), nnx.Param(head)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for flattened images (n, length)."""
        if x.ndim != 2 or x.shape[1] != self.length:
            msg = f"inputs must have shape (n, {self.length}), got {x.shape}"
            raise ValueError(msg)
        hidden = lax.conv_general_dilated(
            x[:, None, :],
            self.kernels[...][:, None, :],
            window_strides=(self.stride,),
            padding=[(self.padding, self.padding)],
            precision="highest",
        )  # (n, filters, length_out)
        hidden = hidden.reshape(x.shape[0], -1)
        return jnp.matmul(hidden, self.head[...].T, precision="highest")


class CNN(nnx.Module):
    """2-D convolutions, each with normalisation and activation, then a dense head on all positions.

    Images are (n, height, width, channels), outputs (n, k).

    >>> model = gnjax.models.CNN((6, 6, 1), 2, filters=(3,), key=jax.random.key(0))
    >>> model(np.ones((5, 6, 6, 1))).shape
    (5, 2)
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        outputs: int,
        *,
        filters: Sequence[int],
        kernel: int = 3,
        stride: int = 1,
        padding: int = 0,
        activation: str = "relu",
        slope: float = 0.01,
        bias: bool = True,
        norm: str | None = None,
        initializer: str = "kaiming_normal",
        key: jax.Array,
        **options: object,
    ) -> None:
        """One convolution for each of ``filters``, all with the same square kernel.

        Args:
          shape: (height, width, channels) of an image.
          outputs: k.
          filters: of every convolution.
          kernel, stride, padding: of every convolution; ``padding`` zeros on each side.
          activation, slope, bias, norm: as in :class:`gnjax.models.mlp.MLP`; "batch" shares the
            statistics over positions, "layer" normalises the channels of one position.
          initializer: a kernel is drawn as the matrix (filters, channels * kernel^2).
          key: draws the weights.
        """
        initializers.check_options(CNN, initializer, options)
        _check_sizes(shape, filters)
        self.shape, self.depth = tuple(shape), len(filters)
        self.activation, self.slope = check_activation(activation, slope)
        rngs = nnx.Rngs(key)
        height, width, channels = shape
        for layer, features in enumerate(filters, start=1):
            fan_in_and_out = (channels * kernel * kernel, features)
            layer_key = jax.random.fold_in(key, layer)
            matrices = initializers.chain(layer_key, fan_in_and_out, initializer, **options)
            weight = by_numpy(matrices[0]).reshape(features, channels, kernel, kernel)
            convolution = conv_layer(
                channels,
                features,
                kernel,
                stride=stride,
                padding=padding,
                bias=bias,
                dtype=weight.dtype,
                rngs=rngs,
            )
            convolution.kernel = nnx.Param(on_device(weight.transpose(2, 3, 1, 0)))
            setattr(self, f"conv{layer}", convolution)
            between = normalisation(norm, features, weight.dtype, rngs=rngs)
            setattr(self, f"norm{layer}", between)
            height, width = (
                output_length(side, kernel, stride, padding) for side in (height, width)
            )
            channels = features
        fan_in_and_out = (height * width * channels, outputs)
        layer_key = jax.random.fold_in(key, self.depth + 1)
        head = initializers.chain(layer_key, fan_in_and_out, initializer, **options)[0]
        self.head = dense_layer(head, bias=bias, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for images (n, height, width, channels)."""
        check_images(x, self.shape)
        for layer in range(1, self.depth + 1):
            x = getattr(self, f"conv{layer}")(x)
            between = getattr(self, f"norm{layer}")
            x = x if between is None else between(x)
            x = ACTIVATIONS[self.activation](x, self.slope)
        return self.head(x.reshape(x.shape[0], -1))


def output_length(length: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """How many outputs a filter has along one axis: (length + 2 padding - kernel) // stride + 1."""
    if length < 1 or kernel < 1 or stride < 1 or padding < 0:
        msg = (
            "length, kernel and stride must be at least 1 and padding at least 0, got "
            f"length={length}, kernel={kernel}, stride={stride}, padding={padding}"
        )
        raise ValueError(msg)
    if kernel > length + 2 * padding:
        msg = (
            f"a kernel of {kernel} does not fit into {length} inputs with padding {padding}; "
            "take a shorter kernel or more padding"
        )
        raise ValueError(msg)
    return (length + 2 * padding - kernel) // stride + 1


def _check_sizes(shape: object, filters: object) -> None:
    """Refuse a ``shape`` other than (height, width, channels), and ``filters`` that are no list."""
    if not isinstance(shape, Sequence) or len(shape) != 3:
        msg = (
            f"shape={shape!r} is not (height, width, channels) of an image; write "
            "CNN((28, 28, 1), 10, filters=(8, 16), key=key), say"
        )
        raise ValueError(msg)
    if not isinstance(filters, Sequence):
        msg = f"filters={filters!r} is not a list with a number for every convolution, as (8, 16)"
        raise ValueError(msg)
