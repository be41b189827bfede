"""Metrics of the space of parameters: ``gnjax.metrics``, for :func:`gnjax.preconditioned`."""

from gnjax.operators.metrics.exact import diagonal_of
from gnjax.operators.metrics.kronecker import ekfac, kfac
from gnjax.operators.metrics.metric import Metric
from gnjax.operators.metrics.optimisers import optimizer_metric
from gnjax.operators.metrics.shampoo import shampoo, shampoo_factors, soap

__all__ = [
    "Metric",
    "diagonal_of",
    "ekfac",
    "kfac",
    "optimizer_metric",
    "shampoo",
    "shampoo_factors",
    "soap",
]
