"""A small vision transformer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models import initializers
from gnjax.models.parts import check_images, linear_layer, normalisation
from gnjax.numerics.host import by_numpy, on_device
from gnjax.numerics.precision import real_dtype


class Attention(nnx.Module):
    """Multi-head attention of t tokens: W_o [softmax(Q_h K_h^T / sqrt(w / heads)) V_h]_h + b_o.

    Tokens are (n, t, w) for n samples and the width w. Q_h, K_h and V_h are the queries, keys and
    values of head h, (t, w / heads), from linear layers, and the results of all heads lie side by
    side. Where the attention is ``causal``, a token sees itself and those before it.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False, rngs: nnx.Rngs) -> None:
        """Attention of ``heads`` heads on vectors of ``width``; all weights start at zero."""
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (
            linear_layer(width, width, rngs=rngs) for _ in range(4)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """The attention of each sample's tokens to one another, (n, t, w) to (n, t, w)."""
        q, k, v = (self._split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = jnp.einsum("nthd,nshd->nhts", q, k, precision="highest")
        scores = scores * q.shape[-1] ** -0.5
        if self.causal:
            visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
            scores = jnp.where(visible[None, None], scores, -jnp.inf)
        attention_weights = jax.nn.softmax(scores)
        heads = jnp.einsum("nhts,nshd->nthd", attention_weights, v, precision="highest")
        return self.out(heads.reshape(x.shape))

    def _split(self, x: jax.Array) -> jax.Array:
        """Vectors (n, t, w) as those of the heads, (n, t, heads, w / heads)."""
        return x.reshape(*x.shape[:2], self.heads, -1)


class EncoderBlock(nnx.Module):
    """y = x + A(N_1(x)), then y + W_2 gelu(W_1 N_2(y)), for attention A and LayerNorms N.

    The hidden layer has four times the width. W_1 and W_2 have biases.
    """

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        """A block on vectors of ``width`` with ``heads`` heads; all matrices start at zero."""
        self.norm1, self.norm2 = (normalisation("layer", width, rngs=rngs) for _ in range(2))
        self.attention = Attention(width, heads, rngs=rngs)
        self.dense1 = linear_layer(width, 4 * width, rngs=rngs)
        self.dense2 = linear_layer(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        hidden = jax.nn.gelu(self.dense1(self.norm2(x)), approximate=True)
        return x + self.dense2(hidden)


class ViT(nnx.Module):
    """Patches and a class token through pre-norm blocks; a dense head reads the token.

    Images are (side, side, channels), outputs (n, k). As in the code that paper A names, GELU is
    the tanh form and nothing normalises the last block. Layers start as PyTorch's; the class
    token and the positions are N(0, 1), as in that code with PyTorch's defaults.

    >>> model = gnjax.models.ViT(4, 2, patch=2, width=4, depth=1, channels=1, key=jax.random.key(0))
    >>> apply, params = gnjax.functional(model)
    >>> jax.eval_shape(apply, params, np.ones((5, 4, 4, 1))).shape
    (5, 2)
    """

    def __init__(
        self,
        side: int,
        outputs: int,
        *,
        patch: int = 4,
        width: int = 48,
        depth: int = 4,
        heads: int = 4,
        channels: int = 3,
        key: jax.Array,
    ) -> None:
        """A network for images (n, side, side, channels), with k = ``outputs``.

        An image is cut into patches of ``patch`` x ``patch`` pixels, each a vector of ``width``.
        ``depth`` blocks follow, with ``heads`` heads of attention.
        """
        if side % patch or width % heads:
            msg = (
                f"a patch of {patch} must divide the side {side}, and {heads} heads the width "
                f"{width}"
            )
            raise ValueError(msg)
        rngs = nnx.Rngs(key)
        self.shape, self.patch, self.depth = (side, side, channels), patch, depth
        self.patches = linear_layer(patch * patch * channels, width, rngs=rngs)
        for block in range(1, depth + 1):
            setattr(self, f"block{block}", EncoderBlock(width, heads, rngs=rngs))
        self.head = linear_layer(width, outputs, rngs=rngs)
        key_of_layers, key_of_positions = jax.random.split(key)
        initializers.start_as_pytorch(self, key_of_layers)
        # A row for the class token, one for its position, and one for that of each patch.
        shape = (side // patch) ** 2 + 2, width
        rows = by_numpy(jax.random.normal(key_of_positions, shape, real_dtype()))
        self.token, self.positions = nnx.Param(on_device(rows[0])), nnx.Param(on_device(rows[1:]))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for images (n, side, side, channels)."""
        check_images(x, self.shape)
        n, side, _, channels = x.shape
        rows, p = side // self.patch, self.patch  # how many patches a side has, and their size
        # row by row, as are the pixels of a patch: (n, rows^2, p p channels)
        grid = x.reshape(n, rows, p, rows, p, channels).swapaxes(2, 3)
        patches = self.patches(grid.reshape(n, rows**2, p * p * channels))
        token = jnp.broadcast_to(self.token[...], (len(x), 1, patches.shape[-1]))
        x = jnp.concatenate([token, patches], axis=1) + self.positions[...][None]
        for block in range(1, self.depth + 1):
            x = getattr(self, f"block{block}")(x)
        return self.head(x[:, 0])
