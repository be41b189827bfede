"""A small language model: a causal transformer."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models import initializers
from gnjax.models.parts import linear_layer, normalisation
from gnjax.models.vit import Attention
from gnjax.numerics.host import on_device
from gnjax.numerics.precision import real_dtype

_NORMS = ("pre", "post", "none")
STARTS = ("gpt2", "lecun")
_SCALE = 0.02  # GPT-2's standard deviation of weights


class CausalBlock(nnx.Module):
    """Two branches, attention and a dense layer of four times the width, each with its skip.

    A branch A and the skip of strength s give s x + b A(N(x)) for norm="pre", N(s x + b A(x)) for
    "post" and s x + b A(x) for "none", b being the strength of the branch. Both strengths are
    variables and no parameters, so that what is compiled for a model serves all of them.
    """

    def __init__(
        self, width: int, heads: int, norm: str, skip: float, branch: float, *, rngs: nnx.Rngs
    ) -> None:
        """A block on vectors of ``width``, with ``heads`` heads; the weights start at zero.

        ``norm`` is "pre", "post" or "none", and ``skip`` and ``branch`` are both strengths.
        """
        self.norm = norm
        self.skip, self.branch = (
            nnx.Variable(on_device(strength, real_dtype())) for strength in (skip, branch)
        )
        if norm != "none":
            self.norm1, self.norm2 = (normalisation("layer", width, rngs=rngs) for _ in range(2))
        self.attention = Attention(width, heads, causal=True, rngs=rngs)
        self.dense1 = linear_layer(width, 4 * width, rngs=rngs)
        self.dense2 = linear_layer(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """The block applied to the vectors of n samples with t tokens each, (n, t, width)."""
        x = self._with_branch(x, self.attention, "norm1")
        return self._with_branch(x, self._dense, "norm2")

    def _dense(self, x: jax.Array) -> jax.Array:
        """W_2 gelu(W_1 x + b_1) + b_2 for each token, with the tanh form of GELU."""
        return self.dense2(jax.nn.gelu(self.dense1(x), approximate=True))

    def _with_branch(self, x: jax.Array, layers: Callable[..., jax.Array], norm: str) -> jax.Array:
        """s x + b A(x) with A = ``layers``, normalised before or after as the class says.

        ``norm`` is the name of this branch's LayerNorm.
        """
        branch_input = getattr(self, norm)(x) if self.norm == "pre" else x
        x = self.skip[...] * x + self.branch[...] * layers(branch_input)
        return getattr(self, norm)(x) if self.norm == "post" else x


class GPT(nnx.Module):
    """A causal transformer: integers (n, t), t at most ``length``, to logits (n, t, vocabulary).

    Tokens and positions are looked up and added, go through ``depth`` blocks and, for norm="pre",
    a last LayerNorm; the output layer has no bias, and its matrix is the table of tokens where
    ``tied``. Weights start as GPT-2's: N(0, 0.02^2), those at the end of a branch N(0, 0.02^2 / (2
    depth)), biases at 0.

    >>> model = gnjax.models.GPT(7, length=5, width=8, depth=1, heads=2, key=jax.random.key(0))
    >>> model(np.zeros((3, 5), int)).shape
    (3, 5, 7)
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        length: int,
        width: int = 32,
        depth: int = 2,
        heads: int = 2,
        norm: str = "pre",
        skip: float = 1.0,
        branch: float = 1.0,
        tied: bool = True,
        initializer: str = "gpt2",
        key: jax.Array,
    ) -> None:
        """A model of ``vocabulary`` tokens.

        Args:
          vocabulary: how many different tokens there are.
          length: the most tokens of a sample.
          width: of the vectors, one for each token.
          depth: how many blocks.
          heads: of the attention; they divide the width.
          norm: "pre", a LayerNorm at the start of every branch; "post", behind every sum of a
            branch and its skip; "none".
          skip: the factor of the skips.
          branch: the factor of the branches.
          tied: whether the output layer is the table of tokens.
          initializer: "gpt2", as above, or "lecun", where a layer keeps the size of its inputs:
            N(0, 1 / fan_in) for layers and N(0, 1) for both tables, or N(0, 1 / width) where tied.
          key: draws the weights.
        """
        _check(vocabulary, length, width, depth, heads, norm, initializer)
        rngs = nnx.Rngs(key)
        self.length, self.depth = length, depth
        lecun_scale = width**-0.5 if tied else 1.0  # a tied table is a layer with fan_in = width
        scale = _SCALE if initializer == "gpt2" else lecun_scale
        self.tokens, self.positions = (
            nnx.Param(_gaussian(jax.random.fold_in(key, index), (rows, width), scale))
            for index, rows in enumerate((vocabulary, length))
        )
        for block in range(1, depth + 1):
            causal_block = CausalBlock(width, heads, norm, skip, branch, rngs=rngs)
            setattr(self, f"block{block}", causal_block)
        self.norm = normalisation("layer", width, rngs=rngs) if norm == "pre" else None
        self.head = None if tied else linear_layer(width, vocabulary, bias=False, rngs=rngs)
        _draw_layers(self, jax.random.fold_in(key, 2), initializer)  # the tables took 0 and 1

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits (n, t, vocabulary) for tokens (n, t): those of the token that follows each."""
        if tokens.ndim != 2 or tokens.shape[1] > self.length:
            msg = f"tokens must have shape (n, t) with t <= {self.length}, got {tokens.shape}"
            raise ValueError(msg)
        x = self.tokens[...][tokens] + self.positions[...][None, : tokens.shape[1]]
        for block in range(1, self.depth + 1):
            x = getattr(self, f"block{block}")(x)
        x = x if self.norm is None else self.norm(x)
        if self.head is not None:
            return self.head(x)
        return jnp.matmul(x, self.tokens[...].T, precision="highest")


def _check(
    vocabulary: int, length: int, width: int, depth: int, heads: int, norm: str, initializer: str
) -> None:
    """Refuse arguments of :class:`GPT` that make no model."""
    if min(vocabulary, length, width, depth, heads) < 1 or width % heads:
        msg = (
            f"vocabulary={vocabulary}, length={length}, width={width}, depth={depth} and "
            f"heads={heads} must be at least 1, and the heads must divide the width"
        )
        raise ValueError(msg)
    if norm not in _NORMS:
        msg = f"norm={norm!r} is not one of {', '.join(_NORMS)}"
        raise ValueError(msg)
    if initializer not in STARTS:
        msg = f"initializer={initializer!r} is not one of {', '.join(STARTS)}"
        raise ValueError(msg)


def _draw_layers(model: GPT, key: jax.Array, initializer: str) -> None:
    """Draw the matrices of all linear layers, in place and in the order of their paths.

    Their entries have the standard deviations that :class:`GPT` states for the ``initializer``.
    Biases stay at 0.
    """
    nodes = {"/".join(map(str, path)): node for path, node in nnx.iter_graph(model)}
    for index, path in enumerate(sorted(nodes)):
        layer = nodes[path]
        if not isinstance(layer, nnx.Linear):
            continue
        scale = _SCALE if initializer == "gpt2" else layer.in_features**-0.5
        if initializer == "gpt2" and path.endswith(("out", "dense2")):  # the end of a branch
            scale *= (2 * model.depth) ** -0.5
        shape = (layer.in_features, layer.out_features)
        layer.kernel[...] = _gaussian(jax.random.fold_in(key, index), shape, scale)


def _gaussian(key: jax.Array, shape: initializers.Shape, scale: float) -> jax.Array:
    """A matrix with entries N(0, scale^2)."""
    # kaiming_normal draws N(0, gain / fan_in) and takes shape[1] for the fan-in.
    return initializers.kaiming_normal(key, shape, gain=scale**2 * shape[1])
