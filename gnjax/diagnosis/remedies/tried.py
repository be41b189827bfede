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
from gnjax.diagnosis.remedies.metrics import (
    diagonal_metric,
    kronecker_metric,
    optimizers_metric,
)
from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    LeftOut,
    ModelOnData,
    Remedy,
    Suggestion,
    best_variant,
)
from gnjax.diagnosis.remedies.weights import skips, wider

Tried = Callable[[ModelOnData, Baseline], Remedy]


def suggestions(
    problem: ModelOnData,
    baseline: Baseline,
    course: Course,
    advance: Callable[[], None],
    remedies: dict[str, Tried],
) -> tuple[tuple[Suggestion, ...], tuple[LeftOut, ...]]:
    """The remedies measured on this model, and those that cannot be measured, with the reason.

    Each is a stage of the ``course``, which keeps those for which there is no time. ``advance`` is
    called after each of the ``remedies``, see :func:`remedies_of`.
    """
    measurements, left_out = [], []
    for name, remedy in remedies.items():
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


def remedies_of(*, with_optimizer: bool) -> dict[str, Tried]:
    """The remedies that are tried, by name, and the metric of an optimiser where one was given."""
    added = {"the metric of your optimiser": optimizers_metric} if with_optimizer else {}
    return REMEDIES | added


REMEDIES: dict[str, Tried] = {
    "standardised inputs": standardised,
    "whitened inputs": whitened,
    "skip connections": skips,
    "twice the width": wider,
    "a learning rate of its own": own_learning_rate,
    "the metric diag(G)": diagonal_metric,
    "the metric of K-FAC": kronecker_metric,
}
