"""ReLU networks of dense layers, with weights and biases as the papers start them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

import gnjax
from gnjax.models import MLP

BIASES = ("none", "zero", "normal", "pytorch")


def relu_network(widths: Sequence[int], initializer: str, biases: str, seed: int) -> MLP:
    """A ReLU network of widths (d, m_1, .., k).

    Args:
      initializer: of the weights, one of :func:`gnjax.initializers.names`.
      biases: "none", "zero", "normal" for N(0, 1) as in the published code of paper A, or
        "pytorch", which draws the weights, too, as PyTorch's linear layers start.
      seed: of the weights and of the biases.
    """
    if biases not in BIASES:
        msg = f"biases={biases!r} is not one of {', '.join(BIASES)}"
        raise ValueError(msg)
    key = jax.random.key(seed)
    model = MLP(widths, bias=biases != "none", initializer=initializer, key=key)
    if biases == "pytorch":
        gnjax.initializers.start_as_pytorch(model, key)
    if biases == "normal":
        _draw_biases(model, seed)
    return model


def _draw_biases(model: MLP, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for layer in range(1, len(model.widths)):
        bias = getattr(model, f"dense{layer}").bias
        bias[...] = jax.device_put(rng.standard_normal(bias.shape).astype(bias.dtype))
