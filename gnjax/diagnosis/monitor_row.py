"""One row of a monitor: the curvature at one step of training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Certificate

NO_STEP = "the optimiser has made no step yet, and has no metric"
NO_STATE = "optimizer= came without metric=, which is the optimiser's state"


@dataclass(frozen=True, repr=False)
class MonitorRow(Result):
    """The curvature at one step. Quantities that were not asked for are None.

    ``row["name"]`` reads a field too.

    Attributes:
      step: the step of the training.
      sharpness: the largest eigenvalue of the Hessian that was found. Some eigenvalue is within
        ``sharpness_error`` of it, and the largest one is at least ``at_least``. It is not certified
        that no other eigenvalue is larger; ``gnjax.eigenvalues(hessian, k=1)`` certifies that.
      gauss_newton: the same for the Gauss-Newton matrix, with ``gauss_newton_error``.
      preconditioned: the same for P^{-1/2} H P^{-1/2} with the metric P, with
        ``preconditioned_error``.
      directional: u^T H u / u^T u along the update u, with its error.
      trace: an estimate of the trace of the Hessian from random vectors, with its standard error.
      kappa: the condition number of the Gauss-Newton matrix, between ``kappa_low`` and
        ``kappa_high``; where that is infinite, kappa is a lower bound.
      threshold: 2 / rate; gradient descent is unstable where the sharpness exceeds it. It is no
        limit of ``preconditioned``, which depends on the optimiser's means of gradients, too.
      preconditioned_threshold: the optimiser is unstable where ``preconditioned`` exceeds it, if P
        is held fixed: 2 in gradient descent, 3.8 for Adam with b1 = 0.9. The optimiser is asked how
        its later updates respond to a gradient; None where it is not given.
      without: why the row has no preconditioned value although a metric or an optimiser was given;
        else "".
      at_least: a lower bound on the largest eigenvalue of the Hessian.
      products: how many products with the Hessian and with the Gauss-Newton matrix were made.
      certificate: what the errors rest on.

    >>> model = lambda w, x: x * w, np.array([[1.0, 1.0]])
    >>> row = gnjax.Monitor(np.array([[1.0, 2.0]]), np.zeros((1, 2)))(0, model, rate=0.1)
    >>> round(row.sharpness, 9), row["threshold"], row.kappa  # H = diag(1, 4)
    (4.0, 20.0, 4.0)
    """

    step: int
    sharpness: float
    sharpness_error: float
    at_least: float
    products: int
    certificate: Certificate
    gauss_newton: float | None = None
    gauss_newton_error: float | None = None
    preconditioned: float | None = None
    preconditioned_error: float | None = None
    directional: float | None = None
    directional_error: float | None = None
    trace: float | None = None
    trace_standard_error: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    threshold: float | None = None
    preconditioned_threshold: float | None = None
    without: str = ""

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        """The names of the fields, so that ``dict(row)`` is a row of a table."""
        return tuple(field.name for field in dataclasses.fields(self))

    def numbers(self) -> dict[str, float]:
        """The numbers of the row by their names, without its step, for a logger."""
        others = ("step", "certificate", "without")
        named = ((name, self[name]) for name in self.keys() if name not in others)
        return {name: float(value) for name, value in named if value is not None}

    def __str__(self) -> str:
        """One line: the step, the sharpness, 2 / rate and other quantities that were measured."""
        parts = [f"step {self.step}: sharpness {self.sharpness:.6g} +- {self.sharpness_error:.2g}"]
        if self.threshold is not None:
            # not of the optimiser whose metric is measured
            of_method = "" if self.preconditioned is None else " for gradient descent"
            parts.append(f"2 / rate{of_method} {self.threshold:.6g}")
        names = ("gauss_newton", "preconditioned", "directional", "trace", "kappa")
        others = ((name.replace("_", "-"), self[name]) for name in names if self[name] is not None)
        parts += [f"{name} {value:.6g}" for name, value in others]
        if self.preconditioned_threshold is not None:
            parts.append(f"limit of preconditioned {self.preconditioned_threshold:.4g}")
        if self.without:
            parts.append(f"no preconditioned: {self.without}")
        return f"{', '.join(parts)} ({self.products} products, {self.certificate.brief})"
