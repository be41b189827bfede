"""A learning rate of its own for one layer."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.layer_grams import condition_by_gram, gram_of, part_of_columns
from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    ModelOnData,
    NotMeasurableError,
    Remedy,
    block_condition,
)
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import layer_name
from gnjax.operators.facts import rank_of

_FACTORS = (0.25, 1 / 16)  # of the learning rate of the layer
_COST = 0.3  # of a kappa from J J^T, in times of the first, which forms J


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
        scale = np.where(is_of_layer, math.sqrt(factor), 1.0)
        variants.append((f"x {factor:.3g}", partial(_kappa, baseline, is_of_layer, factor, scale)))
    reason = "d ln kappa / d ln rate is its share of lambda_max less its share of lambda_min"
    cost = 1.0 if baseline.gram is None else _COST
    return Remedy(own_rate(baseline.suspect), reason, tuple(variants), cost=cost)


def _kappa(
    baseline: Baseline, is_of_layer: np.ndarray, factor: float, scale: np.ndarray
) -> ConditionNumber:
    """kappa of J S S J^T for the diagonal matrix S of ``scale``, 1 but for one layer's columns.

    ``factor`` are the squares of these, and J S S J^T = J J^T - (1 - factor) J_l J_l^T.
    """
    op, jacobian = baseline.op, baseline.jacobian
    if baseline.gram is None:
        return block_condition(op, jacobian * scale)
    of_layer = gram_of(part_of_columns(jacobian, np.flatnonzero(is_of_layer)))
    less = baseline.gram.less(of_layer, 1 - factor)
    return condition_by_gram(op, less, lambda: jacobian * scale, lambda: rank_of(op))


def own_rate(layer: str) -> str:
    """The name of the remedy that gives a layer a learning rate of its own."""
    return f"learning rate of {layer}"
