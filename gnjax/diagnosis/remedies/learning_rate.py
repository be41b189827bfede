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

_LEARNING_RATES = (0.25, 1 / 16)


def own_learning_rate(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """A learning rate s eta for layer l, for several s below 1.

    It is the same as gradient descent on theta' with theta_l = sqrt(s) theta'_l. G_l becomes s G_l,
    and to first order d ln kappa / d ln s is the layer's share of lambda_max less its share of
    lambda_min.
    """
    if not baseline.culprit:
        msg = "no layer has a much larger share of lambda_max than of lambda_min"
        raise NotMeasurableError(msg)
    net = baseline.op.net
    of_layer = np.repeat([name in baseline.culprit for name in parameter_names(net)], net.counts)
    variants = tuple(
        (
            f"x {scale:.3g}",
            partial(
                block_condition,
                baseline.op,
                baseline.jacobian * np.where(of_layer, math.sqrt(scale), 1.0),
            ),
        )
        for scale in _LEARNING_RATES
    )
    reason = "d ln kappa / d ln rate is its share of lambda_max less its share of lambda_min"
    return Remedy(own_rate(layer_name(baseline.culprit[0])), reason, variants)


def own_rate(layer: str) -> str:
    """The name of the remedy that gives a layer a learning rate of its own."""
    return f"learning rate of {layer}"
