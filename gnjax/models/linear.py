"""Linear and residual networks."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models import initializers
from gnjax.numerics.validation import check_finite_number


class LinearNet(nnx.Module):
    """f(x) = (W_L + beta I) .. (W_1 + beta I) x, with I rectangular where a layer changes width.

    Inputs are rows: (n, d) to (n, k). ``skip`` is beta; 0 is the plain linear network.

    >>> model = gnjax.models.LinearNet(3, 2, depth=3, width=4, skip=1.0, key=jax.random.key(0))
    >>> model(np.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        depth: int,
        width: int | Sequence[int],
        skip: float = 0.0,
        initializer: str = "kaiming_normal",
        key: jax.Array,
        **options: object,
    ) -> None:
        """A network with d = ``inputs``, k = ``outputs`` and L = ``depth`` layers.

        ``width`` is that of every hidden layer, or one for each of the depth - 1. The weights are
        drawn by :func:`gnjax.models.initializers.chain`, to which ``options`` go.
        """
        hidden = (width,) * (depth - 1) if isinstance(width, int) else tuple(width)
        if depth < 1 or len(hidden) != depth - 1:
            layers = max(depth - 1, 0)
            msg = f"depth {depth} has {layers} hidden layers, but {len(hidden)} widths came"
            raise ValueError(msg)
        self.widths = (inputs, *hidden, outputs)
        if min(self.widths) < 1:
            msg = f"every width must be at least 1, got {self.widths}"
            raise ValueError(msg)
        self.skip = check_finite_number("skip", skip)
        matrices = initializers.chain(key, self.widths, initializer, **options)
        self.depth = depth
        for layer, weight in enumerate(matrices, start=1):
            setattr(self, f"w{layer}", nnx.Param(weight))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for inputs (n, d)."""
        if x.ndim != 2 or x.shape[1] != self.widths[0]:
            msg = f"inputs must have shape (n, {self.widths[0]}), got {x.shape}"
            raise ValueError(msg)
        for weight in weights(self):
            identity = jnp.eye(weight.shape[0], weight.shape[1], dtype=weight.dtype)
            x = jnp.matmul(x, (weight + self.skip * identity).T, precision="highest")
        return x


def weights(model: LinearNet) -> list[jax.Array]:
    """W_1 .. W_L, without the skip."""
    return [getattr(model, f"w{layer}")[...] for layer in range(1, model.depth + 1)]
