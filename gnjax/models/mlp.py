"""Fully connected networks, with and without normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.models import initializers
from gnjax.models.parts import dense_layer, normalisation
from gnjax.numerics.validation import check_finite_number

# Of the values before the activation and of the slope, which only "leaky_relu" reads. At exactly 0
# jax differentiates relu to 0 and leaky_relu to 1; gelu is the exact one, as in PyTorch.
ACTIVATIONS: dict[str, Callable[[jax.Array, float], jax.Array]] = {
    "relu": lambda x, slope: jax.nn.relu(x),
    "leaky_relu": jax.nn.leaky_relu,
    "tanh": lambda x, slope: jnp.tanh(x),
    "gelu": lambda x, slope: jax.nn.gelu(x, approximate=False),
    "linear": lambda x, slope: x,
}


class MLP(nnx.Module):
    """f(x) = W_L phi(N(W_{L-1} .. phi(N(W_1 x + b_1)) ..)) + b_L on rows: (n, d) to (n, k).

    phi is the activation and N the normalisation of every hidden layer. With ``norm="batch"``,
    ``model.train()`` takes the statistics of the batch, so that f is a function of the whole
    batch, and ``model.eval()`` the stored ones; see :func:`freeze_statistics`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="gelu", norm="layer", key=jax.random.key(0))
    >>> model(np.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        activation: str = "relu",
        slope: float = 0.01,
        bias: bool = True,
        norm: str | None = None,
        initializer: str = "kaiming_normal",
        key: jax.Array,
        **options: object,
    ) -> None:
        """A network of widths (d, m_1, .., m_{L-1}, k).

        Args:
          widths: inputs, hidden layers, outputs.
          activation: one of ``ACTIVATIONS``.
          slope: of "leaky_relu" for negative arguments.
          bias: whether every layer has one; it starts at 0.
          norm: None, "batch" or "layer", before the activation of hidden layers.
          initializer: of the weights; ``options`` go to :func:`gnjax.models.initializers.chain`.
          key: draws the weights.
        """
        initializers.check_options(MLP, initializer, options)
        self.activation, self.slope = check_activation(activation, slope)
        matrices = initializers.chain(key, widths, initializer, **options)
        self.widths = tuple(widths)
        rngs = nnx.Rngs(key)
        for layer, weight in enumerate(matrices, start=1):
            setattr(self, f"dense{layer}", dense_layer(weight, bias=bias, rngs=rngs))
            if layer < len(matrices):
                between = normalisation(norm, weight.shape[0], weight.dtype, rngs=rngs)
                setattr(self, f"norm{layer}", between)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs (n, k) for inputs (n, d)."""
        if x.ndim != 2 or x.shape[1] != self.widths[0]:
            msg = f"inputs must have shape (n, {self.widths[0]}), got {x.shape}"
            raise ValueError(msg)
        depth = len(self.widths) - 1
        for layer in range(1, depth):
            x = getattr(self, f"dense{layer}")(x)
            between = getattr(self, f"norm{layer}")
            x = x if between is None else between(x)
            x = ACTIVATIONS[self.activation](x, self.slope)
        return getattr(self, f"dense{depth}")(x)


def mlp_weights(model: MLP) -> list[jax.Array]:
    """W_1 .. W_L, W_l of shape (a_l, a_{l-1}) as in the closed forms."""
    return [getattr(model, f"dense{layer}").kernel[...].T for layer in range(1, len(model.widths))]


def freeze_statistics(model: nnx.Module, x: jax.Array) -> nnx.Module:
    """A copy in evaluation mode whose BatchNorm statistics are exactly those of the batch x.

    On x it returns what the model returns in training mode, but as a function of each example.

    >>> model = gnjax.models.MLP((3, 4, 2), norm="batch", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> model.train()
    >>> np.allclose(gnjax.models.freeze_statistics(model, x)(x), model(x))
    True
    """
    frozen = nnx.clone(model)
    norms = [module for _, module in nnx.iter_graph(frozen) if isinstance(module, nnx.BatchNorm)]
    if not norms:
        msg = f"{type(model).__name__} has no BatchNorm, so there are no statistics to freeze"
        raise ValueError(msg)
    frozen.eval()
    # With momentum 0 the running statistics become those of the batch that the model is called on,
    # if they are finite before: 0 times infinity is nan.
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum, norm.use_running_average = 0.0, False
        for stored in (norm.mean, norm.var):
            stored[...] = jnp.zeros_like(stored[...])
    _run_once(frozen, x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum, norm.use_running_average = momentum, True
    return frozen


@nnx.jit
def _run_once(model: nnx.Module, x: jax.Array) -> None:
    """Call the model, to update its running statistics; models of one structure share a program."""
    model(x)


def check_activation(name: str, slope: float) -> tuple[str, float]:
    """Check the name of an activation, and its slope in [0, 1], and return both."""
    if name not in ACTIVATIONS:
        msg = f"activation={name!r} is not one of {', '.join(ACTIVATIONS)}"
        raise ValueError(msg)
    slope = check_finite_number("slope", slope)
    if not 0 <= slope <= 1:
        msg = f"slope={slope} is not between 0 (ReLU) and 1 (linear)"
        raise ValueError(msg)
    return name, slope
