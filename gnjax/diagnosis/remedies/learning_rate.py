"""A learning rate of its own for one layer."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    ModelOnData,
    NotMeasurableError,
    Remedy,
    block_condition,
)
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import layer_name

_FACTORS = (0.25, 1 / 16)  # of the learning rate of the layer


def own_learning_rate(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """A learning rate s eta for the layer l that is most sensitive, for several s below 1.

    It is gradient descent on theta' with theta_l = sqrt(s) theta'_l, so that the layer's columns of
    the Jacobian are multiplied by sqrt(s), and G_l becomes s G_l.
    """
    if not baseline.suspect:
        msg = "no layer has a much larger share of lambda_max than of lambda_min"
        raise NotMeasurableError(msg)
    net = baseline.op.net
    names = [layer_name(name) for name in parameter_names(net)]
    is_of_layer = np.repeat([name == baseline.suspect for name in names], net.counts)
    variants = []
    for factor in _FACTORS:
        scaled = baseline.jacobian * np.where(is_of_layer, math.sqrt(factor), 1.0)
        variants.append((f"x {factor:.3g}", partial(block_condition, baseline.op, scaled)))
    reason = "d ln kappa / d ln rate is its share of lambda_max less its share of lambda_min"
    return Remedy(own_rate(baseline.suspect), reason, tuple(variants))


def own_rate(layer: str) -> str:
    """The name of the remedy that gives a layer a learning rate of its own."""
    return f"learning rate of {layer}"
