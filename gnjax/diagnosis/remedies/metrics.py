"""The metrics of optimisers as remedies: kappa of P^{-1/2} G P^{-1/2}."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.remedies.suggestion import (
    RTOL,
    Baseline,
    ModelOnData,
    NotMeasurableError,
    Remedy,
)
from gnjax.operators.metrics.kronecker import kfac
from gnjax.operators.metrics.with_metric import preconditioned

_DAMPING = 1e-4  # of lambda_max


def diagonal_metric(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """P = diag(G) + damping I, approximated by methods with a learning rate for each parameter."""
    kappa = partial(_kappa_in_metric, problem, baseline, "diagonal", _damping(baseline))
    return Remedy("the metric diag(G)", _reason("one rate for each parameter"), (("", kappa),))


def kronecker_metric(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """The metric P of K-FAC: one Kronecker product for each layer."""
    if baseline.op.net.coupled:
        msg = "the samples are coupled, and a layer's inputs belong to one sample each"
        raise NotMeasurableError(msg)
    if not baseline.op.net.layered:
        msg = "no layer of a known type was found in the model"
        raise NotMeasurableError(msg)
    damping = _damping(baseline)
    kappa = partial(_kappa_in_metric, problem, baseline, kfac(baseline.op, damping=damping), None)
    reason = _reason("Kronecker factors of every layer, as K-FAC and Shampoo have them")
    return Remedy("the metric of K-FAC", reason, (("", kappa),))


def _reason(metric: str) -> str:
    """What a step in this metric is, for the report."""
    return f"steps along P^-1 g: {metric}, damped by {_DAMPING:g} lambda_max"


def _damping(baseline: Baseline) -> float:
    """What is added to the diagonal of a metric: 1e-4 lambda_max(G)."""
    return _DAMPING * baseline.condition.lambda_max


def _kappa_in_metric(
    problem: ModelOnData, baseline: Baseline, metric: Any, damping: float | None
) -> ConditionNumber:
    """kappa of P^{-1/2} G P^{-1/2} on its range, for the Gauss-Newton matrix G on parameters.

    ``metric`` is P or names it, as for :func:`gnjax.preconditioned`. ``damping`` is None where P
    has it already.
    """
    op = replace(baseline.op, side="parameters")
    options = {} if damping is None else {"damping": damping}
    return condition_number(preconditioned(op, metric, **options), rtol=RTOL, seed=problem.seed)
