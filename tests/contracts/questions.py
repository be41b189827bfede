"""Every question about an operator: the public function, and how it is asked of a small one.

A new question is a line here. ``test_questions.py`` then holds it to what every question owes, and
says so where a public function of an operator is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import gnjax
from gnjax.operators.factorisation import Factorisation


class Question(NamedTuple):
    """A public function, and how it is asked: ``ask(op, **options)``, with seed, progress, limits.

    What ``ask`` fixes lets a small operator take the road of its name, with few products; options
    replace it.
    """

    function: Callable[..., Any]
    ask: Callable[..., Any]


def _of(function: Callable[..., Any], **fixed: Any) -> Question:
    return Question(function, partial(function, **fixed))


def _certified(op: Any, **options: Any) -> gnjax.answers.CertifiedPairs:
    """For one vector, that of ones, which takes no memory."""
    return gnjax.certify(op, np.broadcast_to(1.0, (1, op.shape[1])), **options)


class Identity:
    """Of any size, without memory."""

    def __init__(self, size: int) -> None:
        self.shape, self.dtype = (size, size), np.dtype(float)

    def facts(self) -> gnjax.operators.Facts:
        return gnjax.operators.Facts(error=0.0, symmetric=True)

    def mv(self, v: Any) -> Any:
        return v

    def as_matrix(self) -> Any:
        return np.eye(*self.shape)


class OneOutput:
    """J J^T for a row J of ones, of any length, without memory."""

    def __init__(self, size: int) -> None:
        self.shape, self.dtype, self.size = (1, 1), np.dtype(float), size

    def facts(self) -> gnjax.operators.Facts:
        def factor() -> Factorisation:
            ones = np.broadcast_to(1.0, (1, self.size))
            return Factorisation(ones.shape, lambda: ones, lambda: gnjax.Error(0.0))

        return gnjax.operators.Facts(error=0.0, symmetric=True, factor=factor)

    def mv(self, v: Any) -> Any:
        return self.size * v

    def as_matrix(self) -> Any:
        return np.full(self.shape, float(self.size))


def _predicted(op: Any, **options: Any) -> gnjax.answers.PredictiveVariance:
    return gnjax.predictive_variance(op, OneOutput(op.shape[1]), damping=0.5, **options)


def _solved(op: Any, **options: Any) -> gnjax.answers.Solution:
    return gnjax.solve(op, np.broadcast_to(1.0, op.shape[1]), damping=0.5, **options)


def _distance(op: Any, **options: Any) -> gnjax.answers.Distance:
    """From the identity, as an operator that takes no memory."""
    return gnjax.distance(op, Identity(op.shape[1]), **options)


QUESTIONS = {
    "kappa": _of(gnjax.condition_number),
    "kappa by Lanczos": _of(gnjax.condition_number, method="krylov"),
    "all eigenvalues": _of(gnjax.eigenvalues),
    "some eigenvalues": _of(
        gnjax.eigenvalues, k=1, which="largest", limits=gnjax.Limits(whole_rows=1)
    ),
    "pairs": Question(gnjax.certify, _certified),
    "density": _of(gnjax.spectral_density, probes=2, steps=2),
    "trace": _of(gnjax.trace, probes=3),
    "exact trace": _of(gnjax.trace, method="exact"),
    "diagonal": _of(gnjax.estimate_diagonal, probes=3),
    "solution": Question(gnjax.solve, _solved),
    "log determinant": _of(gnjax.logdet, damping=0.5),
    "log determinant by Lanczos": _of(
        gnjax.logdet, damping=0.5, method="quadrature", probes=10, steps=2, rtol=0.5
    ),
    "effective dimension": _of(gnjax.effective_dimension, damping=0.5),
    "trace of a function": Question(gnjax.trace_of, partial(gnjax.trace_of, "sqrt", damping=0.5)),
    "diagonal of the inverse": _of(gnjax.inverse_diagonal, damping=0.5),
    "variance of an output": Question(gnjax.predictive_variance, _predicted),
    "distance": Question(gnjax.distance, _distance),
}
"""Of any symmetric matrix."""

OF_NETWORKS = {
    "blocks": _of(gnjax.block_spectra),
}
"""Of the matrix of a network alone."""
