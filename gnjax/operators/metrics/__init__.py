"""Metrics of the space of parameters: ``gnjax.metrics``, for :func:`gnjax.preconditioned`."""

from gnjax.operators.metrics.exact import diagonal_of
from gnjax.operators.metrics.kronecker import LayerFactors, ekfac, kfac, kfac_factors
from gnjax.operators.metrics.metric import Metric
from gnjax.operators.metrics.optimisers import optimizer_metric
from gnjax.operators.metrics.shampoo import shampoo, shampoo_factors, soap

__all__ = [
    "LayerFactors",
    "Metric",
    "diagonal_of",
    "ekfac",
    "kfac",
    "kfac_factors",
    "optimizer_metric",
    "shampoo",
    "shampoo_factors",
    "soap",
]
