"""One line about the operator of a network."""

from __future__ import annotations

import jax.numpy as jnp

from gnjax.networks.equations.rewritten import is_widened
from gnjax.networks.losses.sample_losses import loss_in_words
from gnjax.networks.network import Network, differentiated
from gnjax.operators.protocol import Operator


def loss_of(net: Network) -> str:
    """The loss of a network in words; "" where it has none."""
    target = net.target
    return "" if target is None else target.in_words or loss_in_words(target.loss)


def said(loss: str) -> str:
    """A loss in words as a part of a line; "" says that no loss enters the matrix."""
    return f"loss {loss}" if loss else "no loss"


def described(op: Operator, form: str, net: Network, loss: str, *, layers: bool) -> str:
    """One line: the matrix, its size, network and loss; with ``layers``, how many are known."""
    in_known_layers = net.parameters - sum(differentiated(net).values())
    parameters = f"{net.parameters} parameters"
    if layers and in_known_layers < net.parameters:
        parameters = f"{in_known_layers:,} of {net.parameters:,} parameters in known layers"
    wider = ", float32 inside computed in float64" if is_widened(net.apply) else ""
    samples = f"{net.samples} coupled samples" if net.coupled else f"{net.samples} samples"
    outputs = f"{net.k} outputs"
    if net.rows != net.k:  # softmax is flat along the sum of its k outputs
        outputs += f" (curved in {net.rows} of {net.k} directions)"
    return (
        f"<{type(op).__name__}: {form}, {op.shape[0]} x {op.shape[1]}, {jnp.dtype(op.dtype).name},"
        f" {parameters}, {samples} of {outputs}{wider}, {said(loss)}>"
    )
