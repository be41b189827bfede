"""Suggestions: kappa before and after a remedy, and the arguments and results of remedies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.conditioning.condition_number import (
    ConditionNumber,
    condition_number,
    condition_of_spectrum,
)
from gnjax.networks.model import Apply, Params
from gnjax.numerics.answers.result import Result
from gnjax.numerics.rank_bound import RankBound
from gnjax.operators.curvature import gauss_newton, hessian
from gnjax.operators.metrics.metric import Metric
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.operators.stored.matrices import factored
from gnjax.spectra.eigenvalues import eigenvalues

if TYPE_CHECKING:
    from gnjax.diagnosis.layer_grams import Gram

HELPS, HURTS, SAME, UNKNOWN = "helps", "makes it worse", "changes little", "cannot be told"
_WORTHWHILE = 1.1  # the least factor between kappa before and after a change that helps or hurts
RTOL = 1e-2  # rtol of a kappa whose interval is only compared with another interval


@dataclass(frozen=True, repr=False)
class Suggestion(Result):
    """kappa before and after one change, and the theorem behind the change."""

    _also = ("verdict",)

    name: str
    before: ConditionNumber
    after: ConditionNumber
    reason: str

    @property
    def verdict(self) -> str:
        """Whether the change helps or hurts: the intervals must prove a factor of at least 1.1."""
        before, after = self.before.at_rank, self.after.at_rank
        if before[0] >= _WORTHWHILE * after[1]:
            return HELPS
        if after[0] >= _WORTHWHILE * before[1]:
            return HURTS
        return SAME if self.before.bounded and self.after.bounded else UNKNOWN


@dataclass(frozen=True, repr=False)
class LeftOut(Result):
    """What was not measured, such as a remedy that does not apply to the model, and why.

    ``seconds`` are how long it may take, where it was left out for lack of time.
    """

    name: str
    reason: str
    seconds: float | None = None


Measure = Callable[[], ConditionNumber]


@dataclass(frozen=True)
class ModelOnData:
    """A model (apply, params) on data, and the options of its Gauss-Newton matrix and Hessian."""

    model: tuple[Apply, Params]
    x: ArrayLike
    y: ArrayLike | None
    seed: int
    options: dict[str, Any]
    metric: Metric | None = None  # of the optimiser whose state was given

    def gram(self) -> NetworkGram:
        """The Gauss-Newton matrix, on the side of parameters or outputs that is smaller."""
        op = gauss_newton(self.model, self.x, self.y, side="auto", **self.options)
        assert isinstance(op, NetworkGram)  # x is one batch
        return op

    def hessian(self) -> Operator:
        return hessian(self.model, self.x, self.y, **self.options)

    def kappa(self) -> ConditionNumber:
        """kappa of the Gauss-Newton matrix, to the tolerance of a comparison."""
        return condition_number(self.gram(), rtol=RTOL, seed=self.seed)


@dataclass(frozen=True)
class Baseline:
    """Results that are computed once and then given to every remedy.

    Attributes:
      condition: kappa of G.
      op: G, whose network holds inputs and parameters in the working precision.
      jacobian: J / sqrt(n), (n k, p), weighted by the loss.
      suspect: the name of the layer that is most sensitive; "" where no layer stands out.
      gram: J J^T / n, from which kappa follows for a large J; None for a small one.
      seconds: how long kappa took, which is the forecast of a kappa after a change.
    """

    condition: ConditionNumber
    op: NetworkGram
    jacobian: np.ndarray
    suspect: str
    gram: Gram | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Remedy:
    """A remedy with its variants; the best of them is reported.

    Attributes:
      name: what is changed.
      reason: the theorem or the argument behind it.
      variants: for each a label, and a function that computes kappa after the change.
      before: computes the kappa to compare with; None where that is kappa of the problem.
      cost: how long each variant takes, in times of a kappa of the problem.
    """

    name: str
    reason: str
    variants: tuple[tuple[str, Measure], ...]
    before: Measure | None = None
    cost: float = 1.0


class NotMeasurableError(ValueError):
    """The remedy does not apply to this model or to these data."""


def best_variant(remedy: Remedy, condition: ConditionNumber) -> Suggestion:
    """Measure all variants, and suggest the one whose kappa has the smallest upper bound.

    ``condition`` is kappa of the problem without a change.
    """
    before = condition if remedy.before is None else remedy.before()
    outcomes = [(label, measure()) for label, measure in remedy.variants]
    label, after = min(outcomes, key=lambda pair: (pair[1].at_rank[1], pair[1].value))
    labels = ", ".join(name for name, _ in outcomes)
    name = f"{remedy.name} {label} (best of {labels})" if len(outcomes) > 1 else remedy.name
    return Suggestion(name, before, after, remedy.reason)


def block_condition(
    op: NetworkGram, jacobian: np.ndarray, limit: Callable[[], RankBound] | None = None
) -> ConditionNumber:
    """kappa of J_b J_b^T, where ``jacobian`` is J_b: columns of the Jacobian of ``op``.

    The columns may be scaled by factors of at most 1, so that the error of the whole Jacobian
    bounds theirs. ``limit()`` bounds the rank of J_b, and is asked only where it is needed.
    """
    # J_b J_b^T and J_b^T J_b have the same kappa: the smaller one is formed.
    wide = jacobian if jacobian.shape[0] <= jacobian.shape[1] else jacobian.T
    block = factored(wide, error=op.factor_error())
    return condition_of_spectrum(block, eigenvalues(block), len(wide), limit)


def count_of(count: int, noun: str) -> str:
    """A number with its noun, in the singular or plural: "1 layer", "2,000 layers"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
