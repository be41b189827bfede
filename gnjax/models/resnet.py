"""Residual networks for small images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models import initializers
from gnjax.models.parts import ConvNorm, linear_layer

STAGES = 3
WIDTH = 16  # filters of the first stage, as on CIFAR
SHORTCUTS = ("projection", "zeros")


class ResidualBlock(nnx.Module):
    """relu(s(x) + N(w_2 * relu(N(w_1 * x)))), s the shortcut; stride 2 where filters double.

    Where they do, s is a 1 x 1 convolution with BatchNorm ("projection"), or takes every other
    pixel and puts channels of zeros around ("zeros").
    """

    def __init__(self, channels: int, filters: int, shortcut: str, *, rngs: nnx.Rngs) -> None:
        """A block from ``channels`` to as many or twice as many ``filters``.

        ``shortcut`` is "projection" or "zeros", and matters only where filters double.
        """
        self.added_channels = filters - channels
        stride = 2 if self.added_channels else 1  # the side is halved where filters double
        self.first = ConvNorm(channels, filters, stride=stride, rngs=rngs)
        self.second = ConvNorm(filters, filters, rngs=rngs)
        projects = self.added_channels and shortcut == "projection"
        self.shortcut = (
            ConvNorm(channels, filters, kernel=1, stride=stride, rngs=rngs) if projects else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        branch = self.second(jax.nn.relu(self.first(x)))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.added_channels:
            before = self.added_channels // 2
            after = self.added_channels - before
            x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (before, after)))
        return jax.nn.relu(x + branch)


class ResNet(nnx.Module):
    """The CIFAR form of residual networks: a convolution, three stages of blocks, a dense head.

    The stages have w, 2 w and 4 w filters, the last two start by halving the side, and the head
    reads means over positions, so that images of any side fit: (n, height, width, channels) to
    (n, k). The number of parameters grows as w^2. PyTorch's default initialisation.
    ``model.train()`` and ``model.eval()`` as in :class:`gnjax.models.mlp.MLP` with BatchNorm.

    >>> model = gnjax.models.ResNet(8, 2, channels=1, key=jax.random.key(0))
    >>> model.eval()
    >>> apply, params = gnjax.functional(model)
    >>> jax.eval_shape(apply, params, np.ones((5, 8, 8, 1))).shape
    (5, 2)
    """

    def __init__(
        self,
        depth: int,
        outputs: int,
        *,
        width: int = WIDTH,
        channels: int = 3,
        shortcut: str = "projection",
        key: jax.Array,
    ) -> None:
        """``depth`` is 6 b + 2 for b blocks in every stage: 20, 32, 44, ..

        ``width`` is w, the number of filters of the first stage; 16 is that of the networks for
        CIFAR, and fewer make a network of the same depth for smaller data.
        ``shortcut`` is "projection", as in the code that paper A names, or "zeros", which has no
        parameters.
        """
        blocks, remainder = divmod(depth - 2, 2 * STAGES)
        if remainder or blocks < 1:
            msg = f"depth={depth} is not 6 b + 2 for b >= 1 blocks a stage (8, 14, 20, 26, 32, ..)"
            raise ValueError(msg)
        if shortcut not in SHORTCUTS:
            msg = f"shortcut={shortcut!r} is not one of {', '.join(map(repr, SHORTCUTS))}"
            raise ValueError(msg)
        if width < 1:
            msg = f"width={width} is not the number of filters of the first stage, 1 or more"
            raise ValueError(msg)
        rngs = nnx.Rngs(key)
        self.channels, self.blocks = channels, blocks
        self.stem = ConvNorm(channels, width, rngs=rngs)
        channels_before = width
        for stage in range(1, STAGES + 1):
            filters = width * 2 ** (stage - 1)
            for block in range(1, blocks + 1):
                module = ResidualBlock(channels_before, filters, shortcut, rngs=rngs)
                setattr(self, f"stage{stage}_block{block}", module)
                channels_before = filters
        self.head = linear_layer(channels_before, outputs, rngs=rngs)
        initializers.start_as_pytorch(self, key)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for images (n, height, width, channels)."""
        if x.ndim != 4 or x.shape[3] != self.channels:
            msg = f"images must have shape (n, height, width, {self.channels}), got {x.shape}"
            raise ValueError(msg)
        x = jax.nn.relu(self.stem(x))
        for stage in range(1, STAGES + 1):
            for block in range(1, self.blocks + 1):
                x = getattr(self, f"stage{stage}_block{block}")(x)
        return self.head(x.mean(axis=(1, 2)))
