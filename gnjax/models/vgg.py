"""A small VGG network."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from flax import nnx

from gnjax.models import initializers
from gnjax.models.parts import ConvNorm, check_images, linear_layer, max_pool

VGG5 = (32, 64, 128, 128)  # filters; the head is the fifth layer


class VGG(nnx.Module):
    """3 x 3 convolutions, each with bias, BatchNorm, ReLU and a 2 x 2 max-pool; a dense head.

    Images are (side, side, channels), outputs (n, k). PyTorch's default initialisation. Paper A
    does not say what its VGG5 is: the layers are those of the code that it names, and ``VGG5`` has
    about as many weights as its ResNet20.

    >>> model = gnjax.models.VGG(4, 2, filters=(3, 3), channels=1, key=jax.random.key(0))
    >>> model.eval()
    >>> apply, params = gnjax.functional(model)
    >>> jax.eval_shape(apply, params, np.ones((5, 4, 4, 1))).shape
    (5, 2)
    """

    def __init__(
        self,
        side: int,
        outputs: int,
        *,
        filters: Sequence[int] = VGG5,
        channels: int = 3,
        key: jax.Array,
    ) -> None:
        """A network for images (n, side, side, channels), with k = ``outputs``.

        It has one convolution for each of ``filters``, and every max-pool halves the side.
        """
        self.shape, self.depth = (side, side, channels), len(filters)
        last_side, remainder = divmod(side, 2**self.depth)
        if remainder or last_side < 1:
            msg = (
                f"side={side} cannot be halved {self.depth} times; give a multiple of "
                f"{2**self.depth} or fewer filters"
            )
            raise ValueError(msg)
        rngs = nnx.Rngs(key)
        for layer, features in enumerate(filters, start=1):
            setattr(self, f"layer{layer}", ConvNorm(channels, features, bias=True, rngs=rngs))
            channels = features
        self.head = linear_layer(last_side * last_side * channels, outputs, rngs=rngs)
        initializers.start_as_pytorch(self, key)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for images (n, side, side, channels)."""
        check_images(x, self.shape)
        for layer in range(1, self.depth + 1):
            x = max_pool(jax.nn.relu(getattr(self, f"layer{layer}")(x)))
        return self.head(x.reshape(len(x), -1))
