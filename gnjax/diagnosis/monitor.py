"""The sharpness along a training loop; each Lanczos run starts from the last eigenvector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.conditioning.condition_number import condition_number
from gnjax.diagnosis.monitor_products import (
    InverseRoot,
    curvature_along,
    curvature_product,
    half_random,
    inverse_root,
    quadratic_forms,
    scaled_product,
)
from gnjax.diagnosis.monitor_row import NO_STATE, NO_STEP, MonitorRow
from gnjax.networks.arguments.batches import is_batches
from gnjax.networks.arguments.frameworks import InputTree, Model, PyTree
from gnjax.networks.construct import at_parameters_of
from gnjax.networks.losses.sample_losses import UNNAMED, Loss, loss_in_words
from gnjax.networks.model import is_model
from gnjax.networks.network import HESSIAN
from gnjax.networks.parameters import Only
from gnjax.networks.rounding import is_small, product_error, product_probes
from gnjax.numerics.answers.tables import frame_of, row
from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate, unknown
from gnjax.numerics.stages import stage
from gnjax.numerics.validation import check_finite_number, check_known
from gnjax.operators.curvature import gauss_newton, hessian
from gnjax.operators.facts import symmetry_of
from gnjax.operators.metrics.metric import SAID
from gnjax.operators.metrics.optimisers import limit_of_optimizer
from gnjax.operators.of_networks.described import said
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.of_networks.linearised import Linearised, fits
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.spectra.krylov.tracked import Tracked, tracked
from gnjax.spectra.stochastic.probes import beyond_chance, standard_error
from gnjax.spectra.watch import watching

if TYPE_CHECKING:
    import optax
    from pandas import DataFrame

_SMALL = 100  # kappa is computed by default if the smaller side of G has at most so many rows
_RENEWED = 10  # at every tenth row the start is half random, and rounding is measured again
_ROUNDING = 8.0  # the rounding of a run's sums is this times eps sqrt(p) times the scale
_RECURRENCE = "the residual, with the rounding of the run"


@dataclass(frozen=True)
class _Rounding:
    """The rounding error of a matrix, with the row and the scale at which it was measured."""

    error: Error
    scale: float
    row: int


class Monitor:
    """Measure the sharpness and other quantities of curvature during training.

    Call ``monitor(step, model)`` after each step of training. If ``step`` is a multiple of
    ``every``, it measures the model and appends a row to ``monitor.history``; at other steps it
    returns None at once. Lanczos starts from the eigenvectors of the row before, and
    everything is compiled once as long as the structure of the model stays the same.

    The samples are fixed. Some hundreds are usually enough, and the cost of a row grows with their
    number. At the first row and at every tenth one after it the start is half a random vector, so
    that an eigenvalue that has become the largest is seen, and the rounding of the network is
    measured.

    Args:
      x, y: the samples on which the curvature is measured, see :func:`gnjax.hessian`.
      loss: see :func:`gnjax.hessian`, also for ``weights``, ``has_aux``, ``coupled``, ``only``,
        ``mask`` and ``batch_size``.
      every: the number of steps from one row to the next.
      rtol: the tolerance of residuals: an eigenvalue lies within about rtol times the norm of each
        value.
      gauss_newton: whether to compute the largest eigenvalue of the Gauss-Newton matrix.
      kappa: whether to compute its condition number, certified as by
        :func:`gnjax.condition_number`. That takes much longer than the rest. By default it is
        computed where the smaller side of G has at most 100 rows.
      probes: the number of random vectors for the trace of the Hessian; with 0 it is left out.
      steps: the largest number of products in one run of Lanczos. For each product, one vector with
        an entry for every parameter is held in memory.
      warm_steps: the largest number of products in a run that starts from the eigenvector of the
        row before; by default ``steps``. A row costs least with 2. Its value is then still at most
        the largest eigenvalue, up to rounding. Its error is the residual, which may be above
        ``rtol``.
      on_row: a function that is called with every row, to log it: ``row.numbers()`` is its numbers
        by their names.

    >>> model = gnjax.models.MLP((4, 16, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (20, 4))
    >>> y = jax.random.normal(jax.random.key(2), (20, 2))
    >>> monitor = gnjax.Monitor(x, y, every=2)
    >>> for step in range(4):
    ...     row = monitor(step, model, rate=0.1)
    >>> [row.step for row in monitor.history], monitor.history[-1].threshold
    ([0, 2], 20.0)
    >>> true = float(gnjax.eigenvalues(gnjax.hessian(model, x, y), k=1).values[0])
    >>> abs(monitor.history[-1].sharpness - true) < monitor.history[-1].sharpness_error
    True
    """

    def __init__(
        self,
        x: InputTree,
        y: PyTree | None = None,
        *,
        loss: Loss = UNNAMED,
        every: int = 1,
        rtol: float = 2e-2,
        gauss_newton: bool = True,
        kappa: bool | None = None,
        probes: int = 0,
        steps: int = 30,
        warm_steps: int | None = None,
        on_row: Callable[[MonitorRow], object] | None = None,
        weights: ArrayLike | None = None,
        has_aux: bool = False,
        coupled: bool | None = None,
        only: Only | None = None,
        mask: PyTree | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Check the arguments, which the class describes, and keep them; nothing is computed."""
        warm = steps if warm_steps is None else warm_steps
        _check(x, every=every, rtol=rtol, probes=probes, steps=steps, warm_steps=warm)
        if not (on_row is None or callable(on_row)):
            msg = f"on_row={on_row!r} is no function; give one that takes a row, such as print"
            raise ValueError(msg)
        self._on_row = on_row
        self.history: list[MonitorRow] = []
        self._x, self._every, self._has_aux = x, every, has_aux
        self._wants_gram, self._wants_kappa = gauss_newton or bool(kappa), kappa
        self._rtol, self._probes = float(rtol), probes
        self._steps, self._warm_steps = steps, min(warm, steps)
        # for gnjax.hessian and gnjax.gauss_newton
        self._options: dict[str, Any] = {
            "y": y,
            "loss": loss,
            "weights": weights,
            "has_aux": has_aux,
            "coupled": coupled,
            "only": only,
            "mask": mask,
            "batch_size": batch_size,
        }
        # what is made at the first row, and kept from one row to the next
        self._hessian: NetworkHessian | None = None
        self._gram: NetworkGram | None = None
        self._linearises = False
        self._vectors: dict[str, jax.Array] = {}
        self._roundings: dict[str, _Rounding] = {}
        self._asked: tuple[Any, float | None] | None = None  # an optimiser, and its limit

    def __repr__(self) -> str:
        last_row = f", the last: {self.history[-1]}" if self.history else ""
        of_loss = said(loss_in_words(self._options["loss"]))
        return f"<Monitor: {of_loss}, {len(self.history)} rows{last_row}>"

    def to_pandas(self) -> DataFrame:
        """The rows as a pandas data frame; what was never asked for has no column."""
        return frame_of([row(measured) for measured in self.history])

    def __call__(
        self,
        step: int,
        model: Model,
        *,
        metric: PyTree | None = None,
        optimizer: optax.GradientTransformation | None = None,
        update: PyTree | None = None,
        rate: float | None = None,
    ) -> MonitorRow | None:
        """The row of this step, which is also appended to ``history``; None between rows.

        Args:
          step: the number of the step.
          model: the model in evaluation mode, see :func:`gnjax.functional`.
          metric: a tree of positive entries P like the parameters; or the state of an optimiser
            with ``optimizer`` beside it, or an ``nnx.Optimizer``, from which
            :func:`gnjax.metrics.optimizer_metric` makes one. Before the first step of the
            optimiser there is no P, and the row has no preconditioned sharpness.
          optimizer: the optimiser of optax whose state ``metric`` is. Without it the metric is a
            guess, and the row's certificate unknown.
          update: the step of the optimiser, a tree like the parameters.
          rate: the learning rate.
        """
        if is_model(step):
            msg = "the number of the step comes first and the model second, monitor(step, model)"
            raise ValueError(msg)
        if rate is not None and check_finite_number("rate", rate) <= 0:
            msg = f"rate={rate} is the learning rate and must be positive"
            raise ValueError(msg)
        if int(step) % self._every:
            return None
        first = "" if self.history else ", compiling its products"
        with watching(None), stage(f"row of the monitor at step {int(step)}{first}"):
            row = self._measured(int(step), model, metric, optimizer, update, rate)
        self.history.append(row)
        if self._on_row is not None:
            self._on_row(row)
        return row

    def _measured(
        self,
        step: int,
        model: Model,
        metric: PyTree | None,
        optimizer: optax.GradientTransformation | None,
        update: PyTree | None,
        rate: float | None,
    ) -> MonitorRow:
        """The row of a step, from the arguments of the call."""
        # 1. The matrices at the parameters of this step: H, G if wanted, and P^{-1/2} H P^{-1/2}.
        self._renew_operators(model)
        op = self._hessian
        assert op is not None
        check_known("a monitor", op)
        root = None if metric is None else inverse_root(op, metric, optimizer)
        row_number = len(self.history)
        linearised = self._linearised(op)
        # 2. The largest eigenvalue of each, by Lanczos from the eigenvector of the row before.
        runs = self._tracked(linearised, root, row_number)
        errors = {name: self._error(name, run, root, row_number) for name, run in runs.items()}
        # 3. u^T H u / u^T u along the update u, and z^T H z for random vectors z, for the trace.
        # The number of the row is their seed, so that each row has vectors of its own.
        curvature = None if update is None else float(curvature_along(linearised, op.ravel(update)))
        trace_samples = (
            None
            if not self._probes
            else quadratic_forms(linearised, np.uint32(row_number), self._probes)
        )
        # 4. The row. Gradient descent with this rate is stable for a sharpness of up to 2 / rate.
        rounding = [self._roundings["hessian"].error] if "hessian" in self._roundings else []
        rests_on = certificate(*errors.values(), *rounding, symmetry_of(op))
        row = _row(step, runs, errors, rests_on, curvature, trace_samples)
        row = replace(
            row,
            threshold=None if rate is None else 2 / float(rate),
            preconditioned_threshold=self._limit(metric, optimizer) if root else None,
            without="" if root else _why_no_metric(metric, optimizer),
        )
        return self._with_condition(row)

    def _limit(self, metric: PyTree, optimizer: Any) -> float | None:
        """The limit of ``preconditioned`` for the optimiser, which is asked once."""
        asked = getattr(metric, "tx", optimizer)
        if self._asked is None or self._asked[0] is not asked:
            self._asked = asked, limit_of_optimizer(self._hessian, metric, optimizer)
        return self._asked[1]

    def _linearised(self, op: NetworkHessian | NetworkGram) -> Any:
        """The operator linearised once for all products of a row, where that fits in memory."""
        return Linearised(op, op.linear_maps()) if self._linearises else op

    def _tracked(self, op: Any, root: InverseRoot | None, row_number: int) -> dict[str, Tracked]:
        """Lanczos runs for the largest eigenvalue of H, of G and of P^{-1/2} H P^{-1/2}, by name.

        H is ``op``, and ``root`` is P^{-1/2} where the third matrix is wanted. The run of H starts
        from its eigenvector of the last row, that of G from the one of H just found, and the third
        from its own of the last row. At every tenth row the starts are half random and the runs may
        take all steps, so that an eigenvalue which has become the largest is seen.
        """
        vector = self._vectors.get("hessian")
        is_cold = vector is None or row_number % _RENEWED == 0
        track_fully = partial(tracked, rtol=self._rtol, steps=self._steps)
        track = track_fully if is_cold else partial(track_fully, steps=self._warm_steps)

        def start(last: jax.Array) -> jax.Array:
            """The last eigenvector, or half of it and half of a random vector."""
            return half_random(np.uint32(row_number), last) if is_cold else last

        if vector is None:
            vector = jax.random.normal(jax.random.key(0), (op.shape[0],), op.dtype)
        runs = {"hessian": track(partial(curvature_product, op), start(vector))}
        hessian_vector = runs["hessian"].vector
        if self._gram is not None:
            gram = self._linearised(self._gram)
            runs["gauss_newton"] = track(partial(curvature_product, gram), start(hessian_vector))
        if root is not None:
            vector = self._vectors.get("preconditioned", hessian_vector)
            if "preconditioned" not in self._vectors:  # the first row with a metric
                track = track_fully
            product = partial(scaled_product, op, root.entries)
            runs["preconditioned"] = track(product, start(vector))
        self._vectors = {name: run.vector for name, run in runs.items()}
        return runs

    def _renew_operators(self, model: Any) -> None:
        """Make H, and G if it is wanted, of this model.

        Of a model with the structure of the last one they have its network at other parameters, so
        that nothing is compiled anew. Otherwise the last vectors and roundings are forgotten.
        """
        net = None
        if self._hessian is not None:
            net = at_parameters_of(
                self._hessian.net,
                model,
                has_aux=self._has_aux,
                coupled=self._options["coupled"],
                batch_size=self._options["batch_size"],
            )
        if net is None:
            op = hessian(model, self._x, **self._options)
            gram = gauss_newton(model, self._x, **self._options) if self._wants_gram else None
            assert isinstance(op, NetworkHessian)  # x is one batch
            assert gram is None or isinstance(gram, NetworkGram)
            self._hessian, self._gram, self._linearises = op, gram, fits(op)
            self._vectors, self._roundings = {}, {}
            return
        assert self._hessian is not None
        self._hessian = NetworkHessian(net, functional=False)
        if self._gram is not None:
            gram_net = replace(self._gram.net, leaves=net.leaves, apply=net.apply)
            self._gram = replace(self._gram, net=gram_net)

    def _error(self, name: str, run: Tracked, root: InverseRoot | None, row_number: int) -> Error:
        """How far the value of a run can be from the nearest eigenvalue of the matrix ``name``.

        It is the residual, plus the rounding of the run, plus that of the products. The last is
        measured at every tenth row, and grows with the matrix in between.
        """
        norm = run.scale  # the largest size of a Ritz value
        if not (math.isfinite(run.value) and math.isfinite(norm)):
            return unknown("products with the matrix are not finite")
        eps = float(jnp.finfo(run.vector.dtype).eps)
        run_rounding = _ROUNDING * eps * math.sqrt(run.vector.size) * norm
        residual = Error(run.residual + run_rounding, MEASURED, reason=_RECURRENCE)
        rounding = self._roundings.get(name)
        if (
            rounding is None
            or row_number - rounding.row >= _RENEWED
            or (norm > 0 and rounding.scale == 0)
        ):
            measured = self._measured_rounding(name, None if root is None else root.entries)
            rounding = _Rounding(measured, norm, row_number)
            self._roundings[name] = rounding
        growth = max(1.0, norm / rounding.scale) if rounding.scale else 1.0
        of_metric = root.evidence if root and name == "preconditioned" else SAID
        return residual + rounding.error.scaled(growth) + of_metric

    def _measured_rounding(self, name: str, scale: jax.Array | None) -> Error:
        """The rounding of products with the matrix ``name``, where ``scale`` is that of P^{-1/2}.

        For a large network it is the usual evidence, by products of the program that makes those
        of the row, and by some samples, which H and P^{-1/2} H P^{-1/2} share.
        """
        op = self._gram if name == "gauss_newton" else self._hessian
        assert op is not None
        of_metric = scale if name == "preconditioned" else None
        if is_small(op.net, HESSIAN):
            work = HESSIAN * op.net.written * op.net.batch
            scaling = None if of_metric is None else partial(jnp.multiply, of_metric)
            compiled = Partial(curvature_product, op)
            return product_error(compiled, op.shape[0], op.dtype, work=work, scaling=scaling)

        def product(of: Any) -> Callable[[jax.Array], jax.Array]:
            linearised = self._linearised(of)
            if of_metric is None:
                return partial(curvature_product, linearised)
            return partial(scaled_product, linearised, of_metric)

        with stage("evidence: rounding"):
            probes, multiply = product_probes(op.shape[0], op.dtype, 1), product(op)
            images = np.stack([np.asarray(multiply(v)) for v in probes.T], axis=1)
            return op.looked_at(images, product(op.moved())).error

    def _with_condition(self, row: MonitorRow) -> MonitorRow:
        """The row with kappa of G and its certificate; the row as it is where none is wanted."""
        op = self._gram
        if op is None or self._wants_kappa is False:
            return row
        if self._wants_kappa is None and min(op.factor_shape) > _SMALL:
            return row
        condition = condition_number(op)
        low, high = condition.interval
        rests_on = row.certificate + condition.certificate
        return replace(
            row, kappa=condition.value, kappa_low=low, kappa_high=high, certificate=rests_on
        )


def _why_no_metric(metric: PyTree | None, optimizer: Any) -> str:
    """Why a row has no preconditioned value, in words; "" where nobody asked for one."""
    if metric is not None:
        return NO_STEP
    return "" if optimizer is None else NO_STATE


def _check(x: Any, *, every: int, rtol: float, probes: int, steps: int, warm_steps: int) -> None:
    """Refuse arguments of :class:`Monitor` that are batches or a model, or out of their range."""
    if is_batches(x):
        msg = "a monitor measures on one batch, and x is a sequence of batches; pass one of them"
        raise ValueError(msg)
    if is_model(x):
        msg = (
            "a monitor is made of samples, gnjax.Monitor(x, y), and takes the model at every step, "
            "monitor(step, model); here x is a model"
        )
        raise ValueError(msg)
    counts = {"every": (every, 1), "probes": (probes, 0)}
    counts |= {"steps": (steps, 2), "warm_steps": (warm_steps, 2)}
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            msg = f"{name}={value!r} is not an integer of at least {least}"
            raise ValueError(msg)
    if not 0 < rtol < 1:
        msg = f"rtol={rtol!r} is not between 0 and 1"
        raise ValueError(msg)


def _row(
    step: int,
    runs: dict[str, Tracked],
    errors: dict[str, Error],
    rests_on: Certificate,
    curvature: float | None,
    trace_samples: jax.Array | None,
) -> MonitorRow:
    """The row of a step, from the Lanczos run of each matrix and the error of its value.

    ``curvature`` is u^T H u / u^T u along the update u, and ``trace_samples`` are z^T H z for
    random vectors z; None where they are not wanted. ``rests_on`` is the certificate of the row.
    """
    hessian_run = runs["hessian"]
    # An error without its residual is the rounding of a quotient x^T H x / x^T x, such as that of
    # the update. The largest eigenvalue is at least such a quotient.
    rounding = errors["hessian"].value - hessian_run.residual
    products = sum(run.products for run in runs.values())
    values: dict[str, Any] = {}
    for name in ("gauss_newton", "preconditioned"):
        if name in runs:
            values |= {name: runs[name].value, f"{name}_error": errors[name].value}
    if curvature is not None:
        products += 1
        values |= {"directional": curvature, "directional_error": rounding}
    if trace_samples is not None:
        traces = np.asarray(trace_samples, float)
        products += len(traces)
        # Of a random vector of signs, whose squared length is the number of its entries.
        of_a_sample = rounding * hessian_run.vector.size
        spread = beyond_chance(standard_error(traces), of_a_sample, len(traces), degree=2)
        values |= {"trace": float(traces.mean()), "trace_standard_error": float(spread)}
    return MonitorRow(
        step=step,
        sharpness=hessian_run.value,
        sharpness_error=errors["hessian"].value,
        at_least=hessian_run.value - rounding,
        products=products,
        certificate=rests_on,
        **values,
    )
