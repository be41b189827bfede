"""x with (A + s I) x = b, and a bound on how far it is from the exact one.

For a computed x with the residual r = b - (A + s I) x the exact solution is x + (A + s I)^{-1} r,
so that x is wrong by at most |r| over the smallest eigenvalue of A + s I, which is at least s for a
positive semidefinite A. The residual is known up to the rounding of a product with A, and up to the
error of A that its operator states, each of which counts times |x|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, UNKNOWN, Certificate, Error, certificate
from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import spectral_error, unit_roundoff
from gnjax.numerics.validation import check_known
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import Product, error_of, facts_of
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import check_real
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.functions.conjugate_gradients import conjugate_gradients
from gnjax.spectra.functions.definite import Definite, definite, through_inverse
from gnjax.spectra.functions.small_side import corrected, small_side
from gnjax.spectra.krylov.host_products import beside_xla, host_product, refuse_nonfinite
from gnjax.spectra.watch import Progress, Watch, watching

_STEPS = 2.0  # times the number of rows: the most steps of a run of conjugate gradients


@dataclass(frozen=True, repr=False)
class Solution(Result):
    """x with (A + s I) x = b, with its error.

    Attributes:
      value: x, of the shape of b: a vector (n,), columns (n, b), or a tree like the parameters of a
        network.
      error: a bound on |x - x*| for the exact x*, the largest of all columns; infinite where the
        operator does not state its error.
      errors: the same for each column (b,).
      residual: the largest |b - (A + s I) x| / |b| of all columns.
      method: "dense" or "factored" (by a Cholesky factor of the matrix, or of the smaller F^T F for
        A = F F^T), "stated" (the operator has a formula), "conjugate gradients".
      products: how many products with the operator were made.
      certificate: what the error rests on; the errors of its parts add up to ``error``.
      finished: False where the residual is above ``rtol``, because Ctrl-C ended the work, or
        because the rounding of the products allows no smaller one.

    >>> answer = gnjax.solve(np.diag([4.0, 2.0]), np.array([1.0, 1.0]))
    >>> answer.value.tolist(), answer.error < 1e-14
    ([0.25, 0.5], True)
    """

    value: np.ndarray
    error: float
    errors: np.ndarray
    residual: float
    method: str
    products: int
    certificate: Certificate
    finished: bool = True

    def __str__(self) -> str:
        size = float(
            np.linalg.norm(np.concatenate([np.ravel(x) for x in jax.tree.leaves(self.value)]))
        )
        return (
            f"x of length {size:.6g}, to {self.error:.2g} ({self.method}, {self.products} products;"
            f" {self.certificate.brief}){'' if self.finished else '; NOT FINISHED'}"
        )


@one_operator
def solve(
    op: Operator | ArrayLike,
    b: Any,
    *,
    damping: float = 0.0,
    rtol: float = 1e-10,
    preconditioner: Operator | None = None,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> Solution:
    """x with (A + s I) x = b for a positive definite A + s I, with a bound on |x - x*|.

    The answer comes from the Cholesky factor of the matrix, or of F^T F for A = F F^T, where the
    smaller of both has at most ``limits.whole_rows`` rows. For n samples with k outputs the
    Gauss-Newton matrix of a network needs n k rows, however many parameters there are. Beyond that
    it comes from conjugate gradients, which multiply all columns of b at once.

    Refused is what is not positive definite: a Gauss-Newton matrix of more parameters than outputs
    without damping, a Hessian with an eigenvalue below -s.

    Args:
      op: an operator A, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      b: a vector (n,), columns (n, b), or a tree like the parameters of the network; x is the same.
        It is taken as exact: the errors hold nothing of its own rounding, such as that of a
        gradient computed in float32.
      damping: the number s >= 0 that is added to every eigenvalue. ``gnjax.solve(op + s, b)`` is
        the same as ``gnjax.solve(op, b, damping=s)``.
      rtol: conjugate gradients end when |b - (A + s I) x| is at most ``rtol`` times |b|. The error
        of x is bounded by that over the smallest eigenvalue, and by what rounding adds.
      preconditioner: an operator P near A + s I that knows its inverse: a metric, such as
        ``gnjax.metrics.kfac(op, damping=s)``, or ``gnjax.diagonal(..)``. Only conjugate gradients
        use it. The nearer P is, the fewer ``products`` they need; one that is far off costs more
        than none. x, its errors and ``rtol`` mean the same with it.
      progress: True for a bar on stderr, or a function of the products made and expected (None).
        Ctrl-C then ends conjugate gradients with the best x so far, and ``finished`` is False.
      limits: the limits of memory and work.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> answer = gnjax.solve(op, np.ones((2, 1)), damping=0.5)  # a tree goes in and comes out
    >>> answer.value.ravel().round(12).tolist(), answer.certificate.kind
    ([1.0, 0.4], 'measured')
    """
    operator = as_operator(op, limits=limits)
    refuse_tolerance(rtol)
    right = _right_side(operator, b)
    inverse = _inverse_of(preconditioner, operator.shape[0])
    problem = definite(operator, damping, limits)
    with watching(progress, stoppable=True, op=problem.op, seconds=limits.seconds) as watch:
        solved = solved_columns(problem, right.columns, float(rtol), inverse, limits, watch)
    return _solution(problem, solved, right, float(rtol), operator)


def refuse_tolerance(rtol: float) -> None:
    """Refuse what is no tolerance of a system."""
    if not isinstance(rtol, int | float | np.floating) or not 0 < rtol < 1:
        msg = f"rtol={rtol!r} is not a number between 0 and 1; 1e-10 is the default"
        raise ValueError(msg)


@dataclass(frozen=True)
class Solved:
    """Columns x (n, b), their residuals, and how far (A + s I) x is from exact, relative to |x|."""

    x: np.ndarray
    residuals: np.ndarray  # (b,), lengths
    errors: tuple[Error, ...]
    method: str
    products: int = 0


def solved_columns(
    problem: Definite,
    b: np.ndarray,
    rtol: float,
    inverse: Product | None,
    limits: Limits,
    watch: Watch,
) -> Solved:
    """x by the way that is cheapest: a formula, a small matrix, or conjugate gradients."""
    op, shift = problem.op, problem.shift
    formula = facts_of(op).solve
    side = None if formula is not None else small_side(problem, limits)
    if side is not None:
        x, residuals = corrected(side, b)
        norm = side.norm + shift
        rounding = _rounding(op.shape[0], norm, np.dtype(float))
        return Solved(x, residuals, (rounding, side.error), side.method)
    counted = _Counted(watch(host_product(op)))
    if formula is not None:
        x, residuals = _by_formula(formula(shift), counted, b, shift)
        method = "stated"
    else:
        method = "conjugate gradients"
        with beside_xla():  # BLAS on one thread, so that XLA has the cores
            rows = conjugate_gradients(
                counted,
                np.ascontiguousarray(b.T),
                shift,
                rtol=rtol,
                most=int(_STEPS * op.shape[0]) + 100,
                precondition=inverse,
                stop=watch.is_stopped,
            )
        x, residuals = rows.values.T, np.linalg.norm(rows.residuals, axis=1)
    norm = operator_norm(op, limits)
    rounding = _rounding(op.shape[0], norm + shift, op.dtype)
    return Solved(x, residuals, (rounding, error_of(op, norm)), method, counted.count)


class _Counted:
    """The same products, counted."""

    def __init__(self, product: HostProduct) -> None:
        self.product, self.count = product, 0

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        self.count += len(rows)
        return self.product(rows)


def _by_formula(
    inverse: Product, product: HostProduct, b: np.ndarray, shift: float
) -> tuple[np.ndarray, np.ndarray]:
    """x by the operator's own inverse, corrected once, with the lengths of the residuals."""
    x = np.asarray(inverse(b), np.float64)
    residuals = b - product(x.T).T - shift * x
    better = x + np.asarray(inverse(residuals), np.float64)
    left = b - product(better.T).T - shift * better
    improved = np.linalg.norm(left, axis=0) < np.linalg.norm(residuals, axis=0)
    x, residuals = np.where(improved, better, x), np.where(improved, left, residuals)
    return x, np.linalg.norm(residuals, axis=0)


def _rounding(size: int, norm: float, dtype: Any) -> Error:
    """How far a residual may be from exact by the rounding of its product, relative to |x|."""
    level = raised(spectral_error(size, dtype) * norm)
    return Error(level, MEASURED, reason="rounding of the products")


def _solution(
    problem: Definite, solved: Solved, right: _RightSide, rtol: float, operator: Any
) -> Solution:
    """The answer, with the shape of b: every error over the smallest eigenvalue."""
    refuse_nonfinite(solved.x)
    rests_on, errors = errors_of(problem, solved)
    if right.tree is not None:  # whose leaves have the precision of the parameters
        narrowed = unit_roundoff(operator.dtype) * np.linalg.norm(solved.x, axis=0)
        of_leaves = Error(float(narrowed.max()), reason="rounding of the leaves of x")
        rests_on += certificate(of_leaves)
        errors = raised(1.0) * (errors + narrowed)
    lengths = np.linalg.norm(right.columns, axis=0)
    ratios = solved.residuals / np.where(lengths > 0, lengths, 1.0)
    return Solution(
        value=right.shaped(solved.x, operator),
        error=float(errors.max()),
        errors=errors,
        residual=float(ratios.max()),
        method=solved.method,
        products=solved.products,
        certificate=rests_on,
        finished=bool((ratios <= rtol).all()),
    )


def errors_of(problem: Definite, solved: Solved) -> tuple[Certificate, np.ndarray]:
    """What bounds the distance of the columns x from the exact ones, and the bounds (b,)."""
    sizes = np.linalg.norm(solved.x, axis=0)
    of_residuals = Error(float(solved.residuals.max()), reason="the residual of x")
    parts = [through_inverse(of_residuals, 1.0, problem.least)]
    parts += [through_inverse(e, float(sizes.max()), problem.least) for e in solved.errors]
    rests_on = certificate(*parts, *problem.evidence)
    if rests_on.kind == UNKNOWN:
        return rests_on, np.full(len(sizes), np.inf)
    relative = sum(error.value for error in solved.errors)  # of the products
    errors = (solved.residuals + relative * sizes) / problem.least
    return rests_on, raised(1.0) * errors


class _RightSide(NamedTuple):
    """The right sides as columns (n, b) in float64; and how they came: their shape, or a tree."""

    columns: np.ndarray
    shape: tuple[int, ...]
    tree: Any

    def shaped(self, x: np.ndarray, op: Any) -> Any:
        """The columns x (n, b) in the form of b."""
        if self.tree is None:
            return x.reshape(self.shape)
        leaves = jax.tree.leaves(op.unravel(x[:, 0]))
        return jax.tree.unflatten(jax.tree.structure(self.tree), leaves)


def _right_side(op: Operator, b: Any) -> _RightSide:
    """The right sides of A x = b; refused is what does not fit A, or is not finite or not real."""
    check_known("a right side", b)
    size = op.shape[0]
    acts_on_parameters = facts_of(op).network is not None and hasattr(op, "ravel")
    is_array = jax.tree_util.all_leaves([b]) or not any(map(np.ndim, jax.tree.leaves(b)))
    shape: tuple[int, ...] = np.shape(b) if is_array else ()
    if len(shape) in (1, 2) and shape[0] == size and 0 not in shape:
        array = np.asarray(b)
        check_real(array)
        right = _RightSide(np.asarray(array, np.float64).reshape(size, -1), shape, None)
    elif acts_on_parameters and (not is_array or _is_leaf(op, shape)):
        ravel: Callable[[Any], Any] = op.ravel  # type: ignore[attr-defined]
        right = _RightSide(np.asarray(ravel(b), np.float64)[:, None], (), b)
    else:
        given = "a tree, and A acts on no network's parameters"
        if is_array:
            given = f"shape {shape}" if hasattr(b, "shape") or shape else f"a {type(b).__name__}"
        msg = (
            f"A x = b for an operator of shape {tuple(op.shape)} takes a vector b ({size},) or "
            f"columns ({size}, b), got {given}"
        )
        raise ValueError(msg)
    if not np.isfinite(right.columns).all():
        msg = "b contains NaN or Inf; a solution needs finite numbers"
        raise ValueError(msg)
    return right


def _is_leaf(op: Operator, shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape is the whole tree of the network's parameters."""
    net = facts_of(op).network
    return net is not None and [np.shape(leaf) for leaf in net.leaves] == [shape]


def _inverse_of(preconditioner: Any, size: int) -> HostProduct | None:
    """r -> P^{-1} r on rows, for an operator P with a formula for its inverse."""
    if preconditioner is None:
        return None
    formula = facts_of(preconditioner).solve if isinstance(preconditioner, Operator) else None
    if formula is None:
        msg = (
            "a preconditioner is an operator P that knows its inverse, such as "
            "gnjax.metrics.kfac(op, damping=s), "
            "gnjax.metrics.optimizer_metric(op, state, optimizer) or gnjax.diagonal(entries); "
            f"got a {type(preconditioner).__name__}"
        )
        raise ValueError(msg)
    if preconditioner.shape[0] != size:
        msg = f"the preconditioner has {preconditioner.shape[0]} rows, and A has {size}"
        raise ValueError(msg)
    inverse = formula(0.0)
    return lambda rows: np.asarray(inverse(rows.T), np.float64).T
