"""A learning rate of its own for one layer."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gnjax.diagnosis.remedies.suggestion import (
    Found,
    NotMeasurableError,
    Problem,
    Remedy,
    block_condition,
)
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import layer_name

_LEARNING_RATES = (0.25, 1 / 16)


def own_learning_rate(problem: Problem, found: Found) -> Remedy:
    """theta_l = sqrt(s) theta'_l: gradient descent on theta' gives layer l the rate s eta.

    G_l becomes s G_l, and d ln kappa / d ln s is the layer's share at the top less its share at
    the bottom (first-order perturbation of both eigenvalues).
    """
    if not found.culprit:
        msg = "no layer has a larger share at the top of the spectrum than at its bottom"
        raise NotMeasurableError(msg)
    net = found.op.net
    chosen = np.repeat([name in found.culprit for name in parameter_names(net)], net.counts)
    variants = tuple(
        (
            f"x {scale:.3g}",
            partial(
                block_condition, found.op, found.jacobian * np.where(chosen, math.sqrt(scale), 1.0)
            ),
        )
        for scale in _LEARNING_RATES
    )
    reason = "d ln kappa / d ln rate is its share at the top less its share at the bottom"
    return Remedy(own_rate(layer_name(found.culprit[0])), reason, variants)


def own_rate(layer: str) -> str:
    """The name of the remedy that gives a layer a learning rate of its own."""
    return f"learning rate of {layer}"
