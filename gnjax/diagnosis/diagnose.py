"""What makes a user's own model ill-conditioned: kappa, learning rates, layers, and remedies.

On the output side G = sum_l G_l with one term for each layer. For a unit eigenvector u of G the
share of layer l in the eigenvalue lambda is u^T G_l u / lambda = |J_l^T u|^2 / |J^T u|^2. With a
learning rate s eta for the layer, G_l becomes s G_l, and d ln lambda / d ln s is that share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.classes import ClassShare, class_shares
from gnjax.diagnosis.end_eigenvectors import (
    end_eigenvectors,
    rescaling_curvature,
    top_eigenvectors,
)
from gnjax.diagnosis.layer_shares import LayerShare, layer_shares, most_sensitive
from gnjax.diagnosis.remedies.learning_rate import own_rate
from gnjax.diagnosis.remedies.suggestion import HELPS, Baseline, LeftOut, ModelOnData, Suggestion
from gnjax.diagnosis.remedies.tried import REMEDIES, suggestions
from gnjax.diagnosis.report import report
from gnjax.diagnosis.subset import part_of_samples
from gnjax.networks.forms.batches import is_batches
from gnjax.networks.forms.frameworks import InputTree, Model, PyTree
from gnjax.networks.losses import UNNAMED, Loss
from gnjax.networks.model import check_order, functional
from gnjax.networks.network import differentiated
from gnjax.networks.parameters import Only
from gnjax.numerics.answers.result import Result
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra.watch import Progress, stages

__all__ = ["Diagnosis", "LayerShare", "diagnose"]

_OWN_STAGES = 3  # stages of progress beside the remedies: kappa, learning rates, layers
_RATE = 1e-3  # the relative tolerance of the learning rates


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """The answer of :func:`diagnose`; ``str`` of it is the report.

    Attributes:
      condition: kappa of the Gauss-Newton matrix G (Eq 1) with its certificate.
      samples, outputs, parameters: n, k and p of the Jacobian that was decomposed.
      rescaling: the least |J w|^2 of a direction w that only multiplies each array of weights by a
        factor, with v . w = 1 for the eigenvector v of lambda_min; None where v was not computed.
        It is at least lambda_min, and some non-zero eigenvalue is at most as large. Where it lies
        below a gap in the spectrum, kappa measures how far the outputs depend on the size of
        weights: before a normalisation, such as LayerNorm, they do so through its epsilon alone.
      loss: the loss whose Gauss-Newton matrix this is, in words.
      part: which part of the samples this was, in words; "" where it was all of them.
      whole_lambda_max: the largest eigenvalue of G over all samples.
      eigenvalues: those of G from the largest down; None for a matrix too large to be decomposed.
      sharpness: the largest eigenvalue of the Hessian; None where no targets were given.
      layers: the shares of the layers, in the order of their names.
      classes: the shares of the classes, or of bands of them by frequency; empty without labels.
      suggestions: the remedies that were measured on the model.
      left_out: the remedies that could not be measured, and why.
      differentiated: the paths of the parameters that belong to no layer of a known type. Their
        part of the Jacobian is computed by automatic differentiation.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> diagnosis = gnjax.diagnose(model, x)
    >>> diagnosis.condition.rank, diagnosis.learning_rate == 2 / diagnosis.condition.lambda_max
    (10, True)
    >>> [layer.name for layer in diagnosis.layers]
    ['dense1', 'dense2']
    """

    _rows = ("layers",)
    _also = ("learning_rate", "hessian_learning_rate", "best_learning_rate", "steps_per_decade")

    condition: ConditionNumber
    samples: int
    outputs: int
    parameters: int
    eigenvalues: np.ndarray | None
    sharpness: float | None
    layers: tuple[LayerShare, ...]
    suggestions: tuple[Suggestion, ...]
    left_out: tuple[LeftOut, ...]
    whole_lambda_max: float
    differentiated: tuple[str, ...] = ()
    classes: tuple[ClassShare, ...] = ()
    rescaling: float | None = None
    part: str = ""
    loss: str = ""

    @property
    def learning_rate(self) -> float:
        """2 / lambda_max(G) over all samples.

        Above it gradient descent on the quadratic model with the matrix G diverges.
        """
        return 2 / self.whole_lambda_max

    @property
    def hessian_learning_rate(self) -> float | None:
        """2 / lambda_max(H); None without targets, or where H has no positive eigenvalue."""
        if self.sharpness is None or self.sharpness <= 0:
            return None
        return 2 / self.sharpness

    @property
    def best_learning_rate(self) -> float:
        """2 / (lambda_max + lambda_min), the constant rate that converges fastest on that model.

        It may be above the limits: ``hessian_learning_rate``, and ``learning_rate`` for all data.
        """
        return 2 / (self.condition.lambda_max + self.condition.lambda_min)

    @property
    def rate(self) -> float:
        """(kappa - 1) / (kappa + 1), by which a step at the best rate multiplies the error."""
        return (self.condition.value - 1) / (self.condition.value + 1)

    @property
    def steps_per_decade(self) -> float:
        """How many steps at the best learning rate divide the error by 10: -ln 10 / ln(rate)."""
        if self.condition.value <= 1:
            return 0.0
        return math.log(10) / (2 * math.atanh(1 / self.condition.value))

    @property
    def suspect(self) -> LayerShare | None:
        """The layer with the largest ``sensitivity``, if that is at least 0.1."""
        return most_sensitive(self.layers)

    @property
    def culprit(self) -> LayerShare | None:
        """The suspect, if a learning rate of its own lowered kappa when it was tried."""
        suspect = self.suspect
        helping = [remedy.name for remedy in self.suggestions if remedy.verdict == HELPS]
        blamed = suspect and any(name.startswith(own_rate(suspect.name)) for name in helping)
        return suspect if blamed else None

    def __str__(self) -> str:
        return report(self)


def diagnose(
    model: Model,
    x: InputTree,
    y: PyTree | None = None,
    *,
    loss: Loss = UNNAMED,
    only: Only | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> Diagnosis:
    """Measure what conditions a model on data: kappa, learning rates, layers, classes, remedies.

    Args:
      model: see :func:`gnjax.functional`.
      x: inputs (n, ...), or a pytree of them.
      y: targets; with them the Hessian's largest eigenvalue is computed too.
      loss: see :func:`gnjax.gauss_newton`, as for ``only`` and ``batch_size``.
      seed: the seed of random start vectors, and of the random weights of the wider network that is
        tried as a remedy.
      progress: True for a bar on stderr, or a function of the stages done and expected.
      limits: the limits of memory and work.

    A Jacobian is decomposed if its shorter side is at most ``limits.whole_rows``, 3000. Otherwise
    only the largest eigenvalues of G and of the Hessian, from which the learning rates follow, are
    those of all data. The rest is computed for a part: some samples at equal distances, or some
    tokens of one sample where one sample alone has too many rows. ``part`` says which. Where no
    such part can be taken, kappa and the largest eigenvectors come from Lanczos, and the report
    says what is missing.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> diagnosis = gnjax.diagnose(model, x)
    >>> round(sum(layer.top for layer in diagnosis.layers), 9)  # shares of lambda_max
    1.0
    >>> str(diagnosis).splitlines()[0]
    '26 parameters, 2 layers, 5 samples, 2 outputs'
    >>> str(diagnosis).splitlines()[1]
    '  loss squared_error: |f - y|^2 / 2, which is taken where no loss is named'
    """
    if is_batches(x):
        msg = (
            "x is a sequence of batches, and a diagnosis is of one Jacobian; pass one batch (x, y) "
            "of it, and see gnjax.condition_number(gnjax.gauss_newton(model, batches)) for them all"
        )
        raise ValueError(msg)
    check_order(model, x)
    options = {"loss": loss, "only": only, "batch_size": batch_size}
    whole_problem = ModelOnData(functional(model), x, y, seed, options)
    whole_gram = whole_problem.gram()
    problem, part = whole_problem, ""
    if not _fits(whole_gram, limits):
        problem, part = part_of_samples(whole_problem, whole_gram, limits.small_rows)
    op = problem.gram() if part else whole_gram
    with stages(progress, _OWN_STAGES + len(REMEDIES)) as advance:
        condition = condition_number(op, seed=seed, limits=limits)
        if condition.rank == 0:
            msg = (
                "no output depends on any parameter at these inputs (lambda_max = 0), so there is "
                "nothing to diagnose; are all units dead or the inputs zero?"
            )
            raise ValueError(msg)
        advance()
        top = _largest(whole_gram, limits) if part else condition.lambda_max
        sharpness = None if y is None else _largest(whole_problem.hessian(), limits)
        advance()
        # The other fields need eigenvectors: of both ends, or of the largest eigenvalue alone.
        if _fits(op, limits):
            fields = _fields_of_both_ends(problem, op, condition, advance)
        else:
            fields = _fields_of_top(limits.whole_rows, problem, op, advance)
    return Diagnosis(
        condition=condition,
        samples=op.net.samples,
        outputs=op.net.k,
        parameters=op.net.parameters,
        sharpness=sharpness,
        **fields,
        whole_lambda_max=top,
        differentiated=tuple(differentiated(op.net)),
        part=part,
        loss=op.loss,
    )


def _fits(op: NetworkGram, limits: Limits) -> bool:
    """Whether the Jacobian is small enough to be decomposed."""
    factorisation = op.full_factorisation()
    fits = factorisation is not None and factorisation.size_in_bytes <= limits.factor_bytes
    return min(op.factor_shape) <= limits.whole_rows and fits


def _fields_of_both_ends(
    problem: ModelOnData, op: NetworkGram, condition: ConditionNumber, advance: Callable[[], None]
) -> dict[str, Any]:
    """The fields that follow from a decomposition of the Jacobian, and the measured remedies.

    ``advance()`` moves the progress bar by one stage.
    """
    factor = op.factor()
    jacobian = factor.T if op.side == "parameters" else factor
    values, top, bottom = end_eigenvectors(jacobian, condition)
    layers = layer_shares(op, top, bottom, jacobian)
    advance()
    suspect = most_sensitive(layers)
    baseline = Baseline(condition, op, jacobian, suspect.name if suspect else "")
    measured, left_out = suggestions(problem, baseline, advance)
    return {
        "layers": layers,
        "classes": () if problem.y is None else class_shares(problem.y, jacobian, top, bottom),
        "eigenvalues": values,
        "rescaling": rescaling_curvature(op.net, jacobian, bottom),
        "suggestions": measured,
        "left_out": left_out,
    }


def _fields_of_top(
    largest_side: int, problem: ModelOnData, op: NetworkGram, advance: Callable[[], None]
) -> dict[str, Any]:
    """The fields where the smaller side of the Jacobian is above ``largest_side``: no remedies.

    ``advance()`` moves the progress bar by one stage.
    """
    reason = f"measured while the smaller side of the Jacobian is at most {largest_side}"
    top = top_eigenvectors(op, problem.seed)
    layers = layer_shares(op, top, bottom=None, jacobian=None)
    advance()
    left_out = (LeftOut("all remedies", reason),)
    return {"layers": layers, "eigenvalues": None, "suggestions": (), "left_out": left_out}


def _largest(op: Operator, limits: Limits) -> float:
    """The largest eigenvalue, as accurate as a learning rate needs it."""
    largest = spectrum.eigenvalues(op, k=1, which="largest", rtol=_RATE, limits=limits)
    return float(largest.values[0])
