"""The metrics of optimisers as remedies: kappa of P^{-1/2} G P^{-1/2}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.monitor_row import NO_STEP
from gnjax.diagnosis.remedies.suggestion import (
    RTOL,
    Baseline,
    ModelOnData,
    NotMeasurableError,
    Remedy,
)
from gnjax.operators.metrics.kronecker import kfac
from gnjax.operators.metrics.with_metric import preconditioned
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator

_DAMPING = 1e-4  # of lambda_max
_COST = 4.0  # of its kappa: P, the matrix, and where that is not enough its factor
_DAMPED = f"damped by {_DAMPING:g} lambda_max; begin with a rate far below 2 / lambda_max"


def diagonal_metric(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """P = diag(G) + damping I, approximated by methods with a learning rate for each parameter."""
    damping = _DAMPING * baseline.condition.lambda_max
    metric = partial(preconditioned, metric="diagonal", damping=damping)
    reason = f"steps along P^-1 g: one rate for each parameter, {_DAMPED}"
    return _in_metric("the metric diag(G)", reason, metric, problem, baseline)


def kronecker_metric(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """The metric P of K-FAC: one Kronecker product for each layer."""
    if baseline.op.net.coupled:
        msg = "the samples are coupled, and a layer's inputs belong to one sample each"
        raise NotMeasurableError(msg)
    if not baseline.op.net.layered:
        msg = "no layer of a known type was found in the model"
        raise NotMeasurableError(msg)

    def metric(op: NetworkGram) -> Operator:
        return preconditioned(op, kfac(op, damping=_DAMPING * baseline.condition.lambda_max))

    factors = "Kronecker factors of every layer, as K-FAC and Shampoo have them"
    reason = f"steps along P^-1 g: {factors}, {_DAMPED}"
    return _in_metric("the metric of K-FAC", reason, metric, problem, baseline)


def optimizers_metric(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """The metric P of the optimiser whose state was given: what it does for kappa already."""
    metric = problem.metric
    if metric is None:
        raise NotMeasurableError(NO_STEP)
    scaled = partial(preconditioned, metric=metric)
    reason = "how the next update of your optimiser responds to the gradient, P^-1 g"
    return _in_metric("the metric of your optimiser", reason, scaled, problem, baseline)


def _in_metric(
    name: str,
    reason: str,
    metric: Callable[[NetworkGram], Operator],
    problem: ModelOnData,
    baseline: Baseline,
) -> Remedy:
    """The remedy of ``metric``: kappa of P^{-1/2} G P^{-1/2} on its range, for G on parameters."""

    def kappa() -> ConditionNumber:
        op = metric(replace(baseline.op, side="parameters"))
        return condition_number(op, rtol=RTOL, seed=problem.seed)

    return Remedy(name, reason, (("", kappa),), cost=_COST)
