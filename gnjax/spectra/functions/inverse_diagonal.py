"""diag((A + s I)^{-1}): the posterior variances of a Laplace approximation, each with its error.

**An error E of A.** For B = (A + s I)^{-1}, B' = (A + E + s I)^{-1} and d_i = B_ii, B - B' = B E B'
and |B e_i|^2 = (B^2)_ii <= ||B|| d_i, so that

    |d_i - d'_i| <= ||E|| (||B|| d_i ||B'|| d'_i)^{1/2} <= delta (d_i d'_i)^{1/2}

with delta = ||E|| / l for a lower bound l on the eigenvalues of both A + s I and A + E + s I. With
t = (d_i / d'_i)^{1/2} this is |t^2 - 1| <= delta t, hence t <= (delta + (delta^2 + 4)^{1/2}) / 2
and |d_i - d'_i| <= delta t d'_i: each entry is known relative to itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, UNKNOWN, Certificate, Error, certificate, unknown
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import LAPACK_ROUNDING, spectral_error
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.protocol import Operator
from gnjax.spectra.diagonal_estimate import Spread
from gnjax.spectra.functions.definite import Definite, damped, definite_of, values_in_words
from gnjax.spectra.functions.small_side import SmallSide, has_small_side, small_side
from gnjax.spectra.functions.solve import errors_of, solved_columns
from gnjax.spectra.stochastic.probes import beyond_chance, probe_stream, signs, student, together
from gnjax.spectra.watch import Progress, Watch, watching

_CANCELLATION = 64.0  # in units of eps: the rounding of 1 - |L^{-1} f|^2, measured


@dataclass(frozen=True, repr=False)
class InverseDiagonal(Result):
    """diag((A + s I)^{-1}), every entry with its error.

    Attributes:
      values: the entries (n,); for a network ``op.unravel(values)`` is a tree like its parameters.
      errors: how far each entry can be from the truth; infinite where the operator does not state
        its error. Of an estimate they contain the 95% half-width of Student's distribution.
      standard_errors: of each estimate over the random vectors; 0.0 where nothing is random.
      method: "dense", "factored" (from F^T F + s I for A = F F^T), or "estimate".
      products: how many products with A were made.
      certificate: what the errors rest on.
      finished: False where Ctrl-C ended the work.

    >>> answer = gnjax.inverse_diagonal(np.diag([4.0, 1.0]), damping=1.0)
    >>> answer.values.round(12).tolist(), answer.errors.max() < 1e-14
    ([0.2, 0.5], np.True_)
    """

    _rows = ("values", "errors", "standard_errors")

    values: np.ndarray
    errors: np.ndarray
    standard_errors: np.ndarray
    method: str
    products: int
    certificate: Certificate
    finished: bool = True

    def __str__(self) -> str:
        return values_in_words(self, f"{len(self.values):,} entries")


@one_operator
def inverse_diagonal(
    op: Operator | ArrayLike,
    *,
    damping: float = 0.0,
    method: str = "auto",
    probes: int = 100,
    rtol: float = 1e-6,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> InverseDiagonal:
    """diag((A + s I)^{-1}) for a positive definite A + s I, every entry with its error.

    With A = N G for the Gauss-Newton matrix G of N samples and the prior precision s, these are the
    variances of the parameters under a Laplace approximation.

    Args:
      op: an operator, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      damping: the number s >= 0 that is added to every eigenvalue.
      method: "exact", from the matrix or from F^T F for A = F F^T, where the smaller of both has at
        most ``limits.whole_rows`` rows; "estimate", from products g * (A + s I)^{-1} g with vectors
        g of random signs, each of which is a system solved by :func:`gnjax.solve`; or "auto", exact
        where there is room.
      probes: how many systems an estimate solves; its error falls with the square root.
      rtol: to which these are solved, see :func:`gnjax.solve`.
      seed: of the random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected (None).
        Ctrl-C then ends an estimate with those so far, and ``finished`` is False.
      limits: the limits of memory and work.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> gnjax.inverse_diagonal(op, damping=0.5).values.round(12).tolist()  # G = diag(0.5, 2)
    [1.0, 0.4]
    """
    if method not in ("auto", "exact", "estimate"):
        msg = f"method={method!r} is not one of auto, exact, estimate"
        raise ValueError(msg)
    if not is_count(probes) or probes < 2:
        msg = f"probes={probes!r} is not an integer of at least 2"
        raise ValueError(msg)
    base, shift = damped(as_operator(op, limits=limits), damping)
    if method == "exact" and not has_small_side(base, shift, limits):  # before any work
        rows = base.shape[0]
        msg = (
            f"method='exact' needs a matrix, or a factor, of at most {limits.whole_rows:,} rows on "
            f"its smaller side, and this one has {rows:,}; use method='estimate', or pass "
            f"limits=gnjax.Limits(whole_rows={rows:_}) if there is the time"
        )
        raise ValueError(msg)
    problem = definite_of(base, shift, limits)
    with watching(progress, op=problem.op):
        side = None if method == "estimate" else small_side(problem, limits)
        if side is not None:
            return _exact(problem, side)
    with watching(progress, stoppable=True, op=problem.op, seconds=limits.seconds) as watch:
        return _estimated(problem, int(probes), float(rtol), seed, limits, watch)


def _exact(problem: Definite, side: SmallSide) -> InverseDiagonal:
    """The entries from the Cholesky factor of a matrix in memory, see the top of the module."""
    values = side.inverse_diagonal()
    size, wide = problem.op.shape[0], np.dtype(float)
    level = spectral_error(size, wide) * (side.norm + problem.shift)
    errors = (LAPACK_ROUNDING.to(level), side.error)
    total = errors[0] + errors[1]
    bounds = np.full(size, np.inf)
    least = problem.least - total.value  # of A + E + s I, too
    if total.kind != UNKNOWN and least > 0:
        delta = total.value / least
        t = (delta + math.sqrt(delta**2 + 4)) / 2
        # of a difference from 1, and of the quotient by s
        cancelled = _CANCELLATION * np.finfo(float).eps / least if side.method == "factored" else 0
        bounds = raised(1.0) * (delta * t * np.abs(values) + cancelled)
    else:
        total = unknown("the error of the matrix is not below its smallest eigenvalue")
    rests_on = certificate(total.to(float(bounds.max())), *problem.evidence)
    return InverseDiagonal(values, bounds, np.zeros(size), side.method, 0, rests_on)


def _estimated(
    problem: Definite, probes: int, rtol: float, seed: int, limits: Limits, watch: Watch
) -> InverseDiagonal:
    """The mean of g * x for (A + s I) x = g over vectors g of random signs."""
    size = problem.op.shape[0]
    block, rng, spread = together(problem.op, limits), probe_stream(seed), Spread(size)
    products, shared, rests_on, finished = 0, 0.0, Certificate(), True
    while spread.count < probes and not (spread.count and watch.stopped):
        tests = signs(rng, min(block, probes - spread.count), size)
        solved = solved_columns(problem, tests.T, rtol, None, limits, watch)
        of_block, errors = errors_of(problem, solved)
        spread.add(tests, solved.x.T)
        products += solved.products
        if float(errors.max()) >= shared:
            shared, rests_on = float(errors.max()), of_block
    finished = spread.count == probes and not watch.stopped
    standard_errors = np.sqrt(spread.squares / max(spread.count - 1, 1) / spread.count)
    # A sample g_i sum_j B_ij g_j is linear in the independent signs g_i g_j.
    standard_errors = beyond_chance(standard_errors, shared, spread.count, degree=1)
    half_widths = student(spread.count) * standard_errors
    of_samples = Error(
        float(half_widths.max()), MEASURED, reason=f"the spread of {spread.count} samples"
    )
    rests_on += certificate(of_samples)
    errors = raised(1.0) * (half_widths + shared)
    return InverseDiagonal(
        spread.mean, errors, standard_errors, "estimate", products, rests_on, finished
    )
