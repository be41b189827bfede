"""Remedies that the theory offers for a large kappa, each tried on the model and measured.

A remedy changes one thing: the inputs, the weights, a learning rate or the layers. Nothing is
trained after the change, so that the number says what the change itself does to kappa.
"""

from __future__ import annotations

from collections.abc import Callable

from gnjax.diagnosis.remedies.batch_norm import batch_norm
from gnjax.diagnosis.remedies.inputs import standardised, whitened
from gnjax.diagnosis.remedies.learning_rate import own_learning_rate
from gnjax.diagnosis.remedies.metrics import diagonal_metric, kronecker_metric
from gnjax.diagnosis.remedies.suggestion import (
    Found,
    LeftOut,
    Problem,
    Remedy,
    Suggestion,
    measured,
)
from gnjax.diagnosis.remedies.weights import skips, wider


def suggestions(
    problem: Problem, found: Found, advance: Callable[[], None]
) -> tuple[tuple[Suggestion, ...], tuple[LeftOut, ...]]:
    """Every remedy that can be measured on this model, and the others with the reason.

    ``advance`` is called after each of the :data:`REMEDIES`.
    """
    made, missing = [], []
    for name, remedy in REMEDIES.items():
        try:
            made.append(measured(remedy(problem, found), found.condition))
        except ValueError as error:  # what a changed model returns may be refused as well
            missing.append(LeftOut(name, str(error)))
        advance()
    return tuple(made), tuple(missing)


REMEDIES: dict[str, Callable[[Problem, Found], Remedy]] = {
    "standardised inputs": standardised,
    "whitened inputs": whitened,
    "skip connections": skips,
    "twice the width": wider,
    "BatchNorm": batch_norm,
    "a learning rate of its own": own_learning_rate,
    "the metric diag(G)": diagonal_metric,
    "the metric of K-FAC": kronecker_metric,
}
