"""diag(J (A + s I)^{-1} J^T) for rows J: how uncertain outputs are under a Laplace approximation.

For rows j + d in place of a row j, with |d| <= e, and B = (A + s I)^{-1} <= I / l, the number
j^T B j moves by |2 d^T B j + d^T B d| <= 2 e |B j| + e^2 / l. A computed x near B j with |x - B j|
<= r moves j^T x by at most r |j|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import UNKNOWN, Certificate, certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import factorisation_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.functions.definite import definite, values_in_words
from gnjax.spectra.functions.solve import errors_of, refuse_tolerance, solved_columns
from gnjax.spectra.krylov.host_products import refuse_nonfinite
from gnjax.spectra.watch import Progress, watching


@dataclass(frozen=True, repr=False)
class PredictiveVariance(Result):
    """diag(J (A + s I)^{-1} J^T), every entry with its error.

    Attributes:
      values: the variances (m,), of m outputs; sample by sample where a sample has several.
      errors: how far each can be from the truth; infinite where an operator does not state its
        error.
      method: how the system was solved, as in :class:`Solution`.
      products: how many products with A were made.
      certificate: what the errors rest on.
      finished: False where Ctrl-C ended the work, or the tolerance was not reached.

    >>> a, rows = np.diag([4.0, 2.0]), gnjax.factored(np.array([[1.0, 1.0]]))
    >>> gnjax.predictive_variance(a, rows).values.round(12).tolist()
    [0.75]
    """

    _rows = ("values", "errors")

    values: np.ndarray
    errors: np.ndarray
    method: str
    products: int
    certificate: Certificate
    finished: bool = True

    def __str__(self) -> str:
        return values_in_words(self, f"variances of {len(self.values):,} outputs")


@one_operator
def predictive_variance(
    op: Operator | ArrayLike,
    outputs: Operator,
    *,
    damping: float = 0.0,
    rtol: float = 1e-10,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> PredictiveVariance:
    """diag(J (A + s I)^{-1} J^T) for the Jacobian J of outputs at new samples.

    With A = N G for the Gauss-Newton matrix G of N samples and the prior precision s, these are the
    variances of the outputs under a Laplace approximation.

    Args:
      op: an operator A of the parameters, or a symmetric matrix in any form that
        :func:`gnjax.as_operator` takes.
      outputs: an operator J J^T with a factor J (m, p), such as ``gnjax.ntk(model, x_new)``.
      damping: the number s >= 0 that is added to every eigenvalue.
      rtol: to which systems are solved, see :func:`gnjax.solve`.
      progress: True for a bar on stderr, or a function of the products made and expected. Ctrl-C
        then ends the work with what is known, and ``finished`` is False.
      limits: the limits of memory and work.

    >>> model = (lambda w, x: x @ w, np.ones((2, 1)))
    >>> op = 2 * gnjax.gauss_newton(model, np.diag([1.0, 2.0]))  # diag(1, 4)
    >>> new = gnjax.ntk(model, np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> gnjax.predictive_variance(op, new, damping=1.0).values.round(12).tolist()
    [0.5, 0.2]
    """
    operator = as_operator(op, limits=limits)
    refuse_tolerance(rtol)
    is_square = isinstance(outputs, Operator) and outputs.shape[0] == outputs.shape[1]
    factor = factorisation_of(outputs) if is_square else None  # gnjax.ntk(model, x, x2) has none
    size = operator.shape[0]
    if factor is None or factor.shape[1] != size:
        has = "" if factor is None else f" with rows of {factor.shape[1]:,} numbers"
        msg = (
            f"outputs is an operator J J^T with rows of {size:,} numbers, one for each parameter, "
            f"such as gnjax.ntk(model, x_new); got a {type(outputs).__name__}{has}"
        )
        raise ValueError(msg)
    problem = definite(operator, damping, limits)
    rows = factor.form()
    refuse_nonfinite(rows)
    with watching(progress, stoppable=True, op=problem.op, seconds=limits.seconds) as watch:
        solved = solved_columns(problem, rows.T, float(rtol), None, limits, watch)
    refuse_nonfinite(solved.x)
    rests_on, errors = errors_of(problem, solved)
    of_rows = factor.error()
    lengths, sizes = np.linalg.norm(rows, axis=1), np.linalg.norm(solved.x, axis=0)
    values = np.einsum("ip,pi->i", rows, solved.x)
    bounds = np.full(len(values), np.inf)
    if UNKNOWN not in (of_rows.kind, rests_on.kind):
        moved = 2 * of_rows.value * (sizes + errors) + of_rows.value**2 / problem.least
        bounds = lengths * (errors + gamma(size, np.dtype(float)) * sizes) + moved
        of_rows = of_rows.to(float(moved.max(initial=0.0)))
    rests_on += certificate(of_rows)
    reached = solved.residuals <= rtol * lengths
    return PredictiveVariance(
        values, raised(1.0) * bounds, solved.method, solved.products, rests_on, bool(reached.all())
    )
