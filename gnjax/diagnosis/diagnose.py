"""What makes a user's own model ill-conditioned: kappa, learning rates, layers, and remedies.

On the output side G = sum_l G_l with one term for each layer. For a unit eigenvector u of G the
share of layer l in the eigenvalue lambda is u^T G_l u / lambda = |J_l^T u|^2 / |J^T u|^2. With a
learning rate s eta for the layer, G_l becomes s G_l, and d ln lambda / d ln s is that share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.diagnosis.classes import ClassShare, class_shares
from gnjax.diagnosis.course import Course, seconds_for
from gnjax.diagnosis.end_eigenvectors import (
    end_eigenvectors,
    rescaling_curvature,
    top_eigenvectors,
)
from gnjax.diagnosis.layer_grams import Gram, condition_by_gram, layer_grams
from gnjax.diagnosis.layer_shares import (
    LayerShare,
    layer_columns,
    layer_shares,
    most_sensitive,
    with_blocks,
)
from gnjax.diagnosis.monitor_row import NO_STEP
from gnjax.diagnosis.remedies.learning_rate import own_rate
from gnjax.diagnosis.remedies.suggestion import HELPS, Baseline, LeftOut, ModelOnData, Suggestion
from gnjax.diagnosis.remedies.tried import Tried, remedies_of, suggestions
from gnjax.diagnosis.report import IN_FLOAT64, OF_HESSIAN, report
from gnjax.diagnosis.subset import part_of_samples
from gnjax.networks.arguments.batches import is_batches
from gnjax.networks.arguments.frameworks import InputTree, Model, PyTree
from gnjax.networks.losses.sample_losses import UNNAMED, Loss
from gnjax.networks.model import check_order, functional
from gnjax.networks.network import differentiated
from gnjax.networks.parameters import Only
from gnjax.numerics.answers.result import Result
from gnjax.numerics.evidence import with_evidence
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.precision import x64
from gnjax.operators.facts import rank_of
from gnjax.operators.metrics.metric import Metric
from gnjax.operators.metrics.optimisers import limit_of_optimizer, optimizer_metric
from gnjax.operators.metrics.update_response import NoMomentsError
from gnjax.operators.metrics.with_metric import preconditioned
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra.watch import Progress, Watch, watching

if TYPE_CHECKING:
    import optax

__all__ = ["Diagnosis", "LayerShare", "diagnose"]

SECONDS = 60.0  # that a diagnosis takes by default, about
_OWN_STAGES = 3  # of progress beside the remedies: largest eigenvalues, kappa, layers
_RATE = 1e-3  # the relative tolerance of the learning rates
_SMALL_WORK = 1e10  # multiplications: a Jacobian that takes no more is decomposed at once
_PRODUCTS = 20  # with G for its largest eigenvalue, at least
# multiplications, for each cube of the rows, that take as long as LAPACK does
_EIGENVALUES, _EIGENPAIRS = 5, 12
_ENTRY = 3e-8  # seconds for each entry of J
_COMPILED = 0.5  # of the time of the largest eigenvalue: to compile what forms J
_WIDER = 4.0  # times that a kappa in float64 takes of one in float32, with its compilation
_TOLD = 4  # layers of which the progress says a share
_AFTER_KAPPA = "kappa of each layer by itself", "all remedies"


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """The answer of :func:`diagnose`; ``str`` of it is the report.

    Attributes:
      condition: kappa of the Gauss-Newton matrix G (Eq 1) with its certificate; None where there
        was no time for it.
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
      left_out: what was not measured, such as a remedy, why, and how long it may take where it was
        left out for lack of time.
      differentiated: the paths of the parameters that belong to no layer of a known type. Their
        part of the Jacobian is computed by automatic differentiation.
      dtype: the precision of the products, "float32" or "float64".
      in_float64: kappa of the same weights and data in float64; it is computed where kappa is not
        resolved in float32.
      preconditioned: the largest eigenvalue of P^{-1/2} H P^{-1/2} for the metric P of the
        optimiser whose state was given; G stands in place of H where no targets were given. P
        contains the rate, see :func:`gnjax.metrics.optimizer_metric`.
      preconditioned_threshold: the optimiser is unstable on the quadratic model where
        ``preconditioned`` exceeds it, if P is held fixed: 2 in gradient descent, 3.8 for Adam with
        b1 = 0.9. None where it is not known.
      without: why there is no ``preconditioned`` although a state was given; else "".

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> diagnosis = gnjax.diagnose(model, x)
    >>> diagnosis.condition.rank, diagnosis.learning_rate == 2 / diagnosis.condition.lambda_max
    (10, True)
    >>> [layer.name for layer in diagnosis.layers]
    ['dense1', 'dense2']
    """

    _rows = ("layers",)
    _also = (
        "learning_rate",
        "hessian_learning_rate",
        "best_learning_rate",
        "steps_per_decade",
        "rate_to_limit",
    )

    condition: ConditionNumber | None
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
    dtype: str = ""
    in_float64: ConditionNumber | None = None
    preconditioned: float | None = None
    preconditioned_threshold: float | None = None
    without: str = ""

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
    def rate_to_limit(self) -> float | None:
        """By how much the optimiser's rate may be multiplied until its quadratic model is unstable.

        P is proportional to 1 / rate, so that it is ``preconditioned_threshold / preconditioned``,
        with P held fixed otherwise. None where one of them is not known.
        """
        limit, value = self.preconditioned_threshold, self.preconditioned
        if limit is None or value is None or value <= 0:
            return None
        return limit / value

    @property
    def best_learning_rate(self) -> float | None:
        """2 / (lambda_max + lambda_min), the constant rate that converges fastest on that model.

        It may be above the limits: ``hessian_learning_rate``, and ``learning_rate`` for all data.
        None, as the two that follow, where kappa was left out.
        """
        if self.condition is None:
            return None
        return 2 / (self.condition.lambda_max + self.condition.lambda_min)

    @property
    def rate(self) -> float | None:
        """(kappa - 1) / (kappa + 1), by which a step at the best rate multiplies the error."""
        if self.condition is None:
            return None
        return (self.condition.value - 1) / (self.condition.value + 1)

    @property
    def steps_per_decade(self) -> float | None:
        """How many steps at the best learning rate divide the error by 10: -ln 10 / ln(rate)."""
        if self.condition is None:
            return None
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


@with_evidence
def diagnose(
    model: Model,
    x: InputTree,
    y: PyTree | None = None,
    *,
    loss: Loss = UNNAMED,
    only: Only | None = None,
    batch_size: int | None = None,
    optimizer_state: PyTree | None = None,
    optimizer: optax.GradientTransformation | None = None,
    seconds: float = SECONDS,
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
      optimizer_state, optimizer: the state of your optimiser at this model, and the optimiser of
        optax that it belongs to; or an ``nnx.Optimizer`` or ``TrainState``, which hold both. The
        report then has the limit of that optimiser beside those of gradient descent, and kappa in
        its metric. See :func:`gnjax.metrics.optimizer_metric`.
      seconds: about how much time there is, of the processor where other programs keep it busy. The
        largest eigenvalues and the shares of the layers in them are computed in any case, and what
        follows while its forecast is within the time. What was left out is in ``left_out``;
        ``math.inf`` leaves out nothing.
      seed: the seed of random start vectors, and of the random weights of the wider network that is
        tried as a remedy.
      progress: True for a bar on stderr, or lines where it is no terminal, with results as they
        come; or a function of the stages done and expected. Ctrl-C then, or without it, gives the
        diagnosis of what is known.
      limits: the limits of memory and work.

    A Jacobian is decomposed if its shorter side is at most ``limits.whole_rows``, 3000. Otherwise
    only the largest eigenvalues of G and of the Hessian, from which the learning rates follow, are
    those of all data. The rest is computed for a part: some samples at equal distances, or some
    tokens of one sample where one sample alone has too many rows. ``part`` says which. Where no
    such part can be taken, kappa comes from Lanczos, and the report says what is missing.

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
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        msg = f"seconds={seconds!r} is not a positive number; math.inf sets no limit"
        raise ValueError(msg)
    check_order(model, x)
    if optimizer is not None and optimizer_state is None:
        msg = (
            "the metric of an optimizer is in its state: pass optimizer_state= beside optimizer=, "
            "the opt_state of the step that the model is at"
        )
        raise ValueError(msg)
    options = {"loss": loss, "only": only, "batch_size": batch_size}
    asked = None if optimizer_state is None else (optimizer_state, optimizer)
    whole = ModelOnData(functional(model), x, y, seed, options)
    remedies = remedies_of(with_optimizer=asked is not None)
    with watching(progress, _OWN_STAGES + len(remedies), unit="stages") as watch:
        return _Stages(whole, limits, Course(watch, seconds), watch, remedies, asked).diagnosis()


class _Stages:
    """The stages of a diagnosis, one after the other, and what is known after each."""

    def __init__(
        self,
        whole: ModelOnData,
        limits: Limits,
        course: Course,
        watch: Watch,
        remedies: dict[str, Tried],
        asked: tuple[Any, Any] | None,
    ) -> None:
        """Make the Gauss-Newton matrix of all data; that of a part is made when its turn comes.

        ``asked`` is the state of an optimiser and the optimiser, whose metric is made here.
        """
        self.whole, self.limits, self.course, self.watch = whole, limits, course, watch
        self.whole_gram = course.first("reading the equations of the model", whole.gram)
        self.of_equations = course.last  # seconds
        self.problem, self.part, self.op = whole, "", self.whole_gram
        self.sharpness: float | None = None
        self.layers: tuple[LayerShare, ...] = ()
        self.of_optimizer: dict[str, Any] = {}  # the fields of the answer about the optimiser
        self.in_float64: ConditionNumber | None = None
        self.remedies = remedies
        if asked is not None:
            self._ask(*asked)

    def diagnosis(self) -> Diagnosis:
        """The numbers of a small Jacobian at once; of a larger one what takes least time first."""
        is_small = _work_of(self.whole_gram) <= _SMALL_WORK
        if is_small and _fits(self.whole_gram, self.limits):
            return self._of_small()
        return self._of_large()

    def _of_small(self) -> Diagnosis:
        """Kappa first, which takes no time here, and the largest eigenvalue of G with it."""
        op, course = self.op, self.course
        condition = course.first("kappa", self._kappa)
        _refuse_dead(condition.rank)
        seconds = course.last
        self._advance(str(condition))
        self._measure_sharpness()
        self._measure_float64(condition, seconds)
        self._advance()
        jacobian = course.stage("the layers", partial(_rows_of, op))
        if jacobian is None:
            self._leave_out(_AFTER_KAPPA)
            return self._answer(condition, condition.lambda_max, {})
        values, top, bottom = end_eigenvectors(jacobian, condition)
        self.layers = layer_shares(op, top, bottom)
        self._measure_blocks(jacobian, [], 0.0)
        self._advance()
        baseline = Baseline(condition, op, jacobian, self._suspect, seconds=seconds)
        fields = self._of_both_ends(baseline, values, top, bottom)
        return self._answer(condition, condition.lambda_max, fields)

    def _of_large(self) -> Diagnosis:
        """The largest eigenvalues and the layers' shares in them first, and then the rest."""
        course = self.course
        largest = self._measure_largest()
        of_largest = course.last
        self._measure_sharpness(of_largest)
        self._advance()
        if not _fits(self.whole_gram, self.limits):
            rows = self.limits.small_rows
            self.problem, self.part = part_of_samples(self.whole, self.whole_gram, rows)
        if self.part:
            name = f"reading the equations at {self.part}"
            op = course.stage(name, self.problem.gram, self.of_equations)
            if op is None:
                self.part = ""
                self._advance()
                self._leave_out(("kappa", *_AFTER_KAPPA))
                return self._answer(None, largest, {})
            self.op = op
        if not _fits(self.op, self.limits):
            return self._without_decomposition(largest, of_largest / _PRODUCTS)
        op, rows, parameters = (
            self.op,
            self.op.net.samples * self.op.net.rows,
            self.op.net.parameters,
        )
        work = seconds_for(rows**2 * parameters / 2 + _EIGENPAIRS * rows**3)
        name = f"kappa of {self.part or 'all samples'}"
        forecast = work + _ENTRY * rows * parameters + _COMPILED * of_largest
        found = course.stage(name, self._decomposed, forecast)
        if found is None:
            self._advance()
            self._leave_out(_AFTER_KAPPA)
            return self._answer(None, largest, {})
        condition, (values, top, bottom), jacobian, gram, grams = found
        seconds = course.last
        self._advance(str(condition))
        self._measure_float64(condition, seconds)
        self.layers = layer_shares(op, top, bottom)
        course.say(f"shares of lambda_min: {_shares(self.layers, 'bottom')}")
        shorter = [min(rows, layer.parameters) for layer in self.layers]
        self._measure_blocks(
            jacobian, grams, seconds_for(_EIGENVALUES * sum(m**3 for m in shorter))
        )
        baseline = Baseline(condition, op, jacobian, self._suspect, gram, seconds)
        fields = self._of_both_ends(baseline, values, top, bottom)
        return self._answer(condition, largest if self.part else condition.lambda_max, fields)

    def _without_decomposition(self, largest: float, of_product: float) -> Diagnosis:
        """Kappa by Lanczos, whose basis may become as large as memory allows; no remedies."""
        rows = self.op.shape[0]
        forecast = of_product * min(rows, self.limits.basis_rows(rows))
        condition = self.course.stage("kappa by Lanczos", self._kappa, forecast)
        self._advance("" if condition is None else str(condition))
        self._advance(units=len(self.remedies))
        side = self.limits.whole_rows
        reason = f"measured while the smaller side of the Jacobian is at most {side}"
        return self._answer(condition, largest, {"left_out": (LeftOut("all remedies", reason),)})

    def _measure_largest(self) -> float:
        """lambda_max of G over all samples, with the layers' shares in it."""
        op = replace(self.whole_gram, side="parameters")
        name = f"lambda_max of G, with a network of {op.net.parameters:,} parameters"
        largest, top = self.course.first(
            name, partial(top_eigenvectors, op, self.whole.seed, self.limits)
        )
        _refuse_dead(largest)
        self.layers = layer_shares(op, top, None)
        self.course.say(
            f"lambda_max(G) = {largest:.4g}: gradient descent on the quadratic model is stable "
            f"below {2 / largest:.4g}\nshares of lambda_max: {_shares(self.layers, 'top')}"
        )
        self._advance()
        return largest

    def _ask(self, state: Any, optimizer: Any) -> None:
        """The metric of the optimiser and its limit, which do not depend on the data."""
        op = replace(self.whole_gram, side="parameters")
        try:
            metric = optimizer_metric(op, state, optimizer)
        except NoMomentsError:
            self.of_optimizer["without"] = NO_STEP
            return
        self.whole = self.problem = replace(self.whole, metric=metric)
        self.of_optimizer["preconditioned_threshold"] = limit_of_optimizer(op, state, optimizer)

    def _measure_preconditioned(self, forecast: float | None) -> None:
        """lambda_max of P^{-1/2} H P^{-1/2}, or with G where there are no targets."""
        metric = self.whole.metric
        if metric is None:
            return
        make = partial(self._in_metric, metric)
        name = "lambda_max in the metric of the optimiser"
        value = self.course.stage(name, partial(_largest, make, self.limits), forecast, always=True)
        self.of_optimizer["preconditioned"] = value

    def _in_metric(self, metric: Metric) -> Operator:
        if self.whole.y is None:
            return preconditioned(replace(self.whole_gram, side="parameters"), metric)
        return preconditioned(self.whole.hessian(), metric)

    def _measure_float64(self, condition: ConditionNumber, seconds: float) -> None:
        """kappa in float64, where it is not resolved in float32 and took so many ``seconds``."""
        if condition.resolved or self.op.dtype != np.float32:
            return
        self.in_float64 = self.course.stage(IN_FLOAT64, self._kappa_in_float64, _WIDER * seconds)

    def _kappa_in_float64(self) -> ConditionNumber:
        with x64():
            return condition_number(self.problem.gram(), seed=self.whole.seed, limits=self.limits)

    def _measure_sharpness(self, forecast: float | None = None) -> None:
        """lambda_max of the Hessian over all samples, where there are targets, and in a metric."""
        if self.whole.y is None:
            self._measure_preconditioned(forecast)
            return
        work = partial(_largest, self.whole.hessian, self.limits)
        self.sharpness = self.course.stage(OF_HESSIAN, work, forecast, always=True)
        if self.sharpness is not None:
            stable = f": stable below {2 / self.sharpness:.4g}" if self.sharpness > 0 else ""
            self.course.say(f"lambda_max(H) = {self.sharpness:.4g}{stable}")
        self._measure_preconditioned(forecast)

    def _kappa(self) -> ConditionNumber:
        return condition_number(self.op, seed=self.whole.seed, limits=self.limits)

    def _decomposed(self) -> Any:
        """kappa, eigenvalues with eigenvectors of both ends, J, J J^T and its terms of the layers.

        The last two are None and an empty list for a small J, and for one with more rows than
        columns. There are no terms where they would take much memory.
        """
        op, jacobian = self.op, _rows_of(self.op)
        rows, parameters = jacobian.shape
        if rows > parameters or _work_of(op) <= _SMALL_WORK:
            condition = self._kappa()
            return condition, end_eigenvectors(jacobian, condition), jacobian, None, []
        terms = layer_grams(jacobian, layer_columns(op))
        grams = list(terms) if rows <= self.limits.small_rows else []
        gram = reduce(Gram.__add__, grams or terms)
        condition = condition_by_gram(op, gram, lambda: jacobian, lambda: rank_of(op))
        ends = end_eigenvectors(jacobian, condition, gram.matrix)
        return condition, ends, jacobian, gram, grams

    def _measure_blocks(self, jacobian: np.ndarray, grams: Sequence[Gram], forecast: float) -> None:
        """kappa of each layer's own block, where its smaller side is short."""
        name = "kappa of each layer by itself"
        longest = self.limits.small_rows
        if len(self.layers) > 1 and any(
            min(layer.parameters, len(jacobian)) <= longest for layer in self.layers
        ):
            work = partial(with_blocks, self.op, self.layers, jacobian, grams, longest)
            self.layers = self.course.stage(name, work, forecast) or self.layers

    @property
    def _suspect(self) -> str:
        suspect = most_sensitive(self.layers)
        return suspect.name if suspect else ""

    def _of_both_ends(
        self, baseline: Baseline, values: np.ndarray, top: np.ndarray, bottom: np.ndarray
    ) -> dict[str, Any]:
        """The fields that follow from eigenvectors of both ends, and the measured remedies."""
        measured, left_out = suggestions(
            self.problem, baseline, self.course, self._advance, self.remedies
        )
        y, jacobian = self.problem.y, baseline.jacobian
        return {
            "classes": () if y is None else class_shares(y, jacobian, top, bottom),
            "eigenvalues": values,
            "rescaling": rescaling_curvature(self.op.net, jacobian, bottom),
            "suggestions": measured,
            "left_out": left_out,
        }

    def _advance(self, result: str = "", units: int = 1) -> None:
        """Count a stage, and show its result."""
        if result:
            self.course.say(result)
        self.watch.advance(units)

    def _leave_out(self, names: Sequence[str]) -> None:
        """Leave out what needs a stage that was left out."""
        last = self.course.left_out[-1]
        self.course.left_out += [LeftOut(name, last.reason) for name in names]
        self._advance(units=len(self.remedies))

    def _answer(
        self, condition: ConditionNumber | None, largest: float, fields: dict[str, Any]
    ) -> Diagnosis:
        """The diagnosis, where ``fields`` are those that need eigenvectors of both ends."""
        net, measured = self.op.net, fields.pop("left_out", ())
        return Diagnosis(
            condition=condition,
            samples=net.samples,
            outputs=net.k,
            parameters=net.parameters,
            sharpness=self.sharpness,
            layers=self.layers,
            **{"eigenvalues": None, "suggestions": (), **fields},
            left_out=(*measured, *self.course.left_out),
            whole_lambda_max=largest,
            differentiated=tuple(differentiated(net)),
            part=self.part,
            loss=self.op.loss,
            dtype=str(self.op.dtype),
            in_float64=self.in_float64,
            **self.of_optimizer,
        )


def _refuse_dead(size: float) -> None:
    """Refuse a model whose G has the rank or the largest eigenvalue 0."""
    if size == 0:
        msg = (
            "no output depends on any parameter at these inputs (lambda_max = 0), so there is "
            "nothing to diagnose; are all units dead or the inputs zero?"
        )
        raise ValueError(msg)


def _rows_of(op: NetworkGram) -> np.ndarray:
    """J / sqrt(n) (n r, p), weighted by the loss, in host memory."""
    factor = op.factor()
    return factor.T if op.side == "parameters" else factor


def _shares(layers: Sequence[LayerShare], end: str) -> str:
    """The largest shares of an end, "top" or "bottom", in words."""
    shares = sorted(layers, key=lambda layer: -getattr(layer, end))[:_TOLD]
    return ", ".join(f"{layer.name} {getattr(layer, end):.0%}" for layer in shares)


def _work_of(op: NetworkGram) -> float:
    """About how many multiplications the singular values of the Jacobian take, over 4."""
    shorter, longer = sorted(op.factor_shape)
    return float(shorter) ** 2 * longer


def _fits(op: NetworkGram, limits: Limits) -> bool:
    """Whether the Jacobian is small enough to be decomposed."""
    factorisation = op.full_factorisation()
    fits = factorisation is not None and factorisation.size_in_bytes <= limits.factor_bytes
    return min(op.factor_shape) <= limits.whole_rows and fits


def _largest(make: Callable[[], Operator], limits: Limits) -> float:
    """The largest eigenvalue, as accurate as a learning rate needs it."""
    largest = spectrum.eigenvalues(make(), k=1, which="largest", rtol=_RATE, limits=limits)
    return float(largest.values[0])
