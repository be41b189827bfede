"""Remedies that the theory offers for a large kappa, each tried on the model and measured.

A remedy changes one thing: the inputs, the weights, a learning rate or the metric. The
model is not trained after the change, so that kappa changes because of the remedy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gnjax.conditioning.answer import short
from gnjax.diagnosis.course import Course
from gnjax.diagnosis.remedies.inputs import standardised, whitened
from gnjax.diagnosis.remedies.learning_rate import own_learning_rate
from gnjax.diagnosis.remedies.metrics import diagonal_metric, kronecker_metric
from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    LeftOut,
    ModelOnData,
    Remedy,
    Suggestion,
    best_variant,
)
from gnjax.diagnosis.remedies.weights import skips, wider


def suggestions(
    problem: ModelOnData, baseline: Baseline, course: Course, advance: Callable[[], None]
) -> tuple[tuple[Suggestion, ...], tuple[LeftOut, ...]]:
    """The remedies measured on this model, and those that cannot be measured, with the reason.

    Each is a stage of the ``course``, which keeps those for which there is no time. ``advance`` is
    called after each of the :data:`REMEDIES`.
    """
    measurements, left_out = [], []
    for name, remedy in REMEDIES.items():
        try:
            tried = remedy(problem, baseline)
            variants = len(tried.variants) + (tried.before is not None)
            forecast = tried.cost * variants * baseline.seconds
            found = course.stage(
                tried.name, partial(best_variant, tried, baseline.condition), forecast
            )
            if found is not None:
                measurements.append(found)
                course.say(told(found))
        except ValueError as error:  # from the remedy, or from the operator of the changed model
            left_out.append(LeftOut(name, str(error)))
        advance()
    return tuple(measurements), tuple(left_out)


def told(found: Suggestion) -> str:
    """A suggestion in one line."""
    before, after = short(found.before), short(found.after)
    return f"{found.name}: {found.verdict}, kappa {before} -> {after}"


REMEDIES: dict[str, Callable[[ModelOnData, Baseline], Remedy]] = {
    "standardised inputs": standardised,
    "whitened inputs": whitened,
    "skip connections": skips,
    "twice the width": wider,
    "a learning rate of its own": own_learning_rate,
    "the metric diag(G)": diagonal_metric,
    "the metric of K-FAC": kronecker_metric,
}
