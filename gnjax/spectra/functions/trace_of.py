"""tr f(A): from all eigenvalues of the smaller side, or from random vectors.

For A = J^T J (p, p) with fewer rows of J than columns the eigenvalues are those of J J^T (m, m) and
p - m zeros, each of which counts as f(s) for f(A + s I). Eigenvalues beyond the bound on the rank
are zeros, too, so that they have no error.

From random vectors: for v uniform on the sphere, m v^T f(A) v has the mean tr f(A), and Lanczos
from v gives its Gauss quadrature. With a node at a lower bound of the spectrum it is a
Gauss-Radau quadrature. Where the derivatives of f of even order have one sign and those of odd
order the other one, as for log y and 1 / y, the exact number lies between both (Golub and Meurant,
1994).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, UNKNOWN, Certificate, Error, certificate, unknown
from gnjax.numerics.evidence import with_evidence
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rank_bound import SHAPES
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import facts_of, positivity_of, rank_of, symmetry_of, twin_of
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.functions.bracket import NOISE, sample
from gnjax.spectra.functions.definite import (
    checked_shift,
    damped,
    definite_of,
    refuse_indefinite,
)
from gnjax.spectra.functions.largest_aside import Drawing
from gnjax.spectra.functions.scalar_functions import LOG, ScalarFunction, scalar_function, share_of
from gnjax.spectra.krylov.host_products import beside_xla, host_product
from gnjax.spectra.stochastic.probes import FEWEST, half_width, standard_error
from gnjax.spectra.stochastic.tolerance import looks
from gnjax.spectra.watch import Progress, Watch, watching
from gnjax.spectra.whole import check_whole, error_and_level, whole_spectrum

_FIRST = 20  # random vectors at the first look; the looks double
_ASIDE = 2  # times the steps from a vector: the most eigenvectors that are set aside

Function = str | Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, repr=False)
class FunctionTrace(Result):
    """tr f(A + s I) with its error.

    Attributes:
      value: the trace.
      error: how far it can be from the truth. Where nothing is random it is a bound. From random
        vectors it contains a half-width of 95%, that of Student's distribution or a wider one where
        the samples are skewed, and the certificate says so.
      standard_error: of the estimate over the random vectors; 0.0 where nothing is random.
      function: f in words.
      method: "exact", or "quadrature" from random vectors.
      products: how many products with the operator, or with its smaller twin, were made.
      certificate: what the error rests on.
      finished: False where the tolerance was not reached, or Ctrl-C ended the work.

    >>> print(gnjax.logdet(np.diag([4.0, 2.0]), damping=1.0))
    log = 2.70805 +- 1.1e-14 (exact, 0 products; measured)
    """

    _also = ("interval",)

    value: float
    error: float
    standard_error: float
    function: str
    method: str
    products: int
    certificate: Certificate
    finished: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """The value minus and plus its error."""
        return self.value - self.error, self.value + self.error

    def __str__(self) -> str:
        return (
            f"{self.function} = {self.value:.6g} +- {self.error:.2g} ({self.method}, "
            f"{self.products} products; {self.certificate.brief})"
            f"{'' if self.finished else '; NOT FINISHED'}"
        )


@with_evidence
def trace_of(
    f: Function,
    op: Operator | ArrayLike,
    *,
    damping: float = 0.0,
    method: str = "auto",
    rtol: float = 0.01,
    probes: int = 100,
    steps: int = 50,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> FunctionTrace:
    """tr f(A + s I), the sum of f over all eigenvalues.

    Args:
      f: "log", "inverse" or "sqrt"; or a function of your own of an array of eigenvalues, such as
        ``np.exp``. How far an eigenvalue's error moves a function of your own is taken from both
        ends of its interval, between which f shall rise or fall: the error is then "measured".
      op: an operator A, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      damping: the number s >= 0 that is added to every eigenvalue.
      method: "exact", from all eigenvalues of the smaller side; "quadrature", from random vectors,
        each of which takes ``steps`` products; or "auto", which is exact where the smaller side has
        at most ``limits.whole_rows`` rows.
      rtol: random vectors are added until the error is at most ``rtol`` times the value. Where the
        first ones say that many more are needed, the largest eigenvectors, up to twice ``steps`` of
        them, are taken out and are no longer random.
      probes: the largest number of random vectors, at least 10.
      steps: of Lanczos from each of them. For "log", "inverse", "sqrt" and the effective dimension
        the error of the quadrature is bounded; for a function of your own it is measured.
      seed: of the random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected (None).
        Ctrl-C then ends the work with the vectors so far, and ``finished`` is False.
      limits: the limits of memory and work.

    >>> answer = gnjax.trace_of("inverse", np.diag([4.0, 2.0, 1.0]))
    >>> answer.value, answer.error < 1e-13
    (1.75, True)
    >>> gnjax.trace_of(np.exp, np.zeros((3, 3))).value
    3.0
    """
    base, shift = damped(as_operator(op, limits=limits), damping)
    options = _Options(method, rtol, probes, steps, seed, progress, limits)
    return _trace(base, shift, scalar_function(f), options)


@one_operator
def logdet(
    op: Operator | ArrayLike,
    *,
    damping: float = 0.0,
    method: str = "auto",
    rtol: float = 0.01,
    probes: int = 100,
    steps: int = 50,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> FunctionTrace:
    """log det (A + s I) of a positive definite A + s I.

    With n k outputs and p parameters, a Gauss-Newton matrix has p - n k zeros, which count as
    log s each. The other arguments are those of :func:`trace_of`.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> answer = gnjax.logdet(op, damping=0.5)  # G = diag(0.5, 2)
    >>> bool(abs(answer.value - np.log(1.0 * 2.5)) <= answer.error < 1e-12)
    True
    """
    base, shift = damped(as_operator(op, limits=limits), damping)
    options = _Options(method, rtol, probes, steps, seed, progress, limits)
    return _trace(base, shift, LOG, options)


@one_operator
def effective_dimension(
    op: Operator | ArrayLike,
    *,
    damping: float,
    method: str = "auto",
    rtol: float = 0.01,
    probes: int = 100,
    steps: int = 50,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> FunctionTrace:
    """sum_i lambda_i / (lambda_i + s): how many directions the data decide, for a semidefinite A.

    The other arguments are those of :func:`trace_of`.

    >>> gnjax.effective_dimension(np.diag([9.0, 1.0, 0.0]), damping=1.0).value
    1.4
    """
    base, shift = damped(as_operator(op, limits=limits), 0.0)
    number = checked_shift(damping)
    if not number:
        msg = "damping=0: the effective dimension is then the rank; pass a positive number"
        raise ValueError(msg)
    options = _Options(method, rtol, probes, steps, seed, progress, limits)
    return _trace(base, shift, share_of(number), options)


@dataclass(frozen=True)
class _Options:
    """How a trace is to be computed, see :func:`trace_of`."""

    method: str
    rtol: float
    probes: int
    steps: int
    seed: int
    progress: Progress
    limits: Limits

    def __post_init__(self) -> None:
        """Refuse what is no method, no tolerance and no count."""
        if self.method not in ("auto", "exact", "quadrature"):
            msg = f"method={self.method!r} is not one of auto, exact, quadrature"
            raise ValueError(msg)
        if not isinstance(self.rtol, int | float | np.floating) or not 0 < self.rtol < 1:
            msg = f"rtol={self.rtol!r} is not a number between 0 and 1; 0.01 is the default"
            raise ValueError(msg)
        for name, number, least in (("probes", self.probes, FEWEST), ("steps", self.steps, 2)):
            if not is_count(number) or number < least:
                msg = f"{name}={number!r} is not an integer of at least {least}"
                raise ValueError(msg)


def _trace(op: Operator, shift: float, f: ScalarFunction, options: _Options) -> FunctionTrace:
    """tr f(A + s I): exact on a small side, and otherwise from random vectors."""
    is_stated = facts_of(op).eigenvalues is not None
    if options.method == "exact":
        check_whole(twin_of(op), options.limits, "use method='quadrature'")
    if not is_stated:
        check_near_one(op)
    is_small = is_stated or twin_of(op).shape[0] <= options.limits.whole_rows
    if options.method == "exact" or (options.method == "auto" and is_small):
        with watching(options.progress, op=op):
            return _exact(op, shift, f, options.limits)
    with watching(options.progress, stoppable=True, op=op, seconds=options.limits.seconds) as watch:
        return _from_quadratures(op, shift, f, options, watch)


def _exact(op: Operator, shift: float, f: ScalarFunction, limits: Limits) -> FunctionTrace:
    """sum_i f(lambda_i + s), from all eigenvalues of the twin and the zeros that it leaves out."""
    known = _eigenvalues(op, limits)
    if f.positive:
        _check_positive(known, shift)
    of_low, of_values, of_high = (f.values(y + shift) for y in known[:3])
    of_zero = f.values(np.array([shift]))[0] if known.zeros else 0.0
    _refuse_undefined(f, known, shift, np.append(of_values, of_zero))
    value = math.fsum(of_values) + known.zeros * float(of_zero)
    moved = np.maximum(np.abs(of_high - of_values), np.abs(of_low - of_values))
    rounding = f.rounding(of_values).sum() + known.zeros * float(f.rounding(np.array(of_zero)))
    rounding += gamma(4, np.dtype(float)) * abs(known.zeros * float(of_zero))
    width = raised(2.0**-40 * moved.sum() + moved.sum() + rounding)
    error = known.error
    if not f.monotone and known.error.kind != UNKNOWN:
        error += Error(0.0, MEASURED, reason=f"{f.name} at both ends of each eigenvalue's interval")
    error = error.to(float(width))
    rests_on = certificate(error, *known.evidence)
    return FunctionTrace(value, error.value, 0.0, f.name, "exact", 0, rests_on)


def _from_quadratures(
    op: Operator, shift: float, f: ScalarFunction, options: _Options, watch: Watch
) -> FunctionTrace:
    """tr f(A + s I) from random vectors, until the error is small enough.

    The work is done on the twin, which leaves zeros of A out. It is longer than for A itself in no
    case, and its samples spread less. Where the first vectors say that many more are needed, others
    are drawn outside of the largest eigenvectors.
    """
    limits, small, probes = options.limits, twin_of(op), int(options.probes)
    size, zeros = small.shape[0], op.shape[0] - small.shape[0]
    least: float = -math.inf
    evidence: tuple[Error, ...] = (symmetry_of(op),)
    if f.positive or f.bends:
        least, evidence = _lower_bound(op, shift, f, limits)
    norm = operator_norm(small, limits)
    error, floor = error_and_level(small, norm)
    drawing = Drawing(
        watch(host_product(small)),
        size,
        lambda rule: sample(rule, f, shift, least, floor),
        probes,
        int(options.steps),
        NOISE * floor,
        options.seed,
        limits,
        watch.is_stopped,
    )
    first = min(_FIRST, probes)
    counts = looks(probes - first, options.rtol, first=_FIRST) if probes > first else []
    of_zeros = zeros * float(f.values(np.array([shift]))[0]) if zeros else 0.0

    def answered() -> FunctionTrace:
        return _estimate(drawing, of_zeros, error, f, evidence, 1 + len(counts))

    def finished(answer: FunctionTrace) -> bool:
        return answer.error <= options.rtol * abs(answer.value) and not drawing.cut

    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        drawing.draw(first)
        before = answer = answered()
        if _pays(answer, options.rtol, counts) and not drawing.cut:
            drawing.set_largest_aside(_ASIDE * int(options.steps))
        at_start = len(drawing.samples)
        for count in counts:
            if finished(answer) or drawing.cut:
                break
            drawing.draw(at_start + count - len(drawing.samples))
            answer = answered()
    # All looks hold together, so that the first one may be taken, too.
    best = min(answer, before, key=lambda each: each.error)
    return replace(best, products=drawing.products, finished=finished(best))


def _pays(answer: FunctionTrace, rtol: float, counts: list[int]) -> bool:
    """Whether setting the largest eigenvectors aside pays after the first random vectors.

    It takes half as many products as these, and theirs are lost. So it pays where three times as
    many are needed, and where enough are left.
    """
    needed = (2 * answer.standard_error) ** 2 > 3 * (rtol * answer.value) ** 2
    return needed and bool(counts) and counts[-1] >= _FIRST


def _lower_bound(
    op: Operator, shift: float, f: ScalarFunction, limits: Limits
) -> tuple[float, tuple[Error, ...]]:
    """A lower bound on the eigenvalues of A + s I, with what it rests on."""
    positive = positivity_of(op)
    if not f.positive and positive is not None:
        return shift, (positive, symmetry_of(op))
    problem = definite_of(op, shift, limits)
    # 0.0 says that no bound is known, as the error of A is not; the evidence says so, too
    return problem.least or -math.inf, problem.evidence


def _estimate(
    drawing: Drawing,
    of_zeros: float,
    error: Error,
    f: ScalarFunction,
    evidence: tuple[Error, ...],
    looks_in_all: int,
) -> FunctionTrace:
    """The mean of the samples times their dimension, what is aside, and f of the twin's zeros.

    The half-widths of all looks at the samples hold together, so that it may end at any of them.
    """
    count, room = len(drawing.samples), drawing.size - len(drawing.of_aside)
    if not count:  # Ctrl-C came before the first one
        nothing = certificate(unknown("no random vector was drawn"))
        return FunctionTrace(
            math.nan, math.inf, math.inf, f.name, "quadrature", drawing.products, nothing
        )
    values, gaps, moved = (room * np.array(column) for column in zip(*drawing.samples, strict=True))
    aside = np.array(drawing.of_aside, float).reshape(-1, 3)
    value = float(values.mean()) + math.fsum(aside[:, 0]) + of_zeros
    spread = standard_error(values)
    of_vectors = Error(
        half_width(values, looks_in_all),
        MEASURED,
        reason=f"the spread of {count} random vectors",
    )
    of_quadrature = Error(
        float(gaps.mean()) + float(aside[:, 1].sum()),
        *((MEASURED, 0.0, "quadratures of fewer steps") if not f.bends else ()),
    )
    # The rows aside are orthonormal up to rounding.
    rounding = spectral_error(drawing.size, np.dtype(float)) * float(np.abs(aside[:, 0]).sum())
    of_matrix = error.to(float(moved.mean()) + float(aside[:, 2].sum()) + rounding)
    parts = of_vectors, of_quadrature, of_matrix
    rests_on = certificate(*parts, *evidence)
    total = raised(sum(part.value for part in parts))
    return FunctionTrace(value, total, spread, f.name, "quadrature", drawing.products, rests_on)


class _Known(NamedTuple):
    """The eigenvalues of the smaller side of A with the ends of their intervals, and the zeros.

    ``zeros`` eigenvalues of A more are exactly zero. ``error`` says what the intervals rest on, and
    is unknown where they are not known; ``evidence`` has facts that they need besides.
    """

    low: np.ndarray
    values: np.ndarray
    high: np.ndarray
    zeros: int
    error: Error
    evidence: tuple[Error, ...]


def _eigenvalues(op: Operator, limits: Limits) -> _Known:
    """What is known of all eigenvalues of A.

    Those of a semidefinite A are not negative, and of a matrix of rank r all but the r largest are
    zero.
    """
    small = twin_of(op)
    spectrum = whole_spectrum(small, limits)
    parts = spectrum.certificate.parts
    error = reduce(add, parts, Error(0.0))
    errors = np.zeros(len(spectrum)) if error.kind == UNKNOWN else spectrum.errors
    low, values, high = (spectrum.values + sign * errors for sign in (-1.0, 0.0, 1.0))
    positive, rank = positivity_of(op), rank_of(small)
    evidence: tuple[Error, ...] = ()
    if positive is not None and error.kind != UNKNOWN:
        evidence = (positive,)
        low, values, high = (np.maximum(bounds, 0.0) for bounds in (low, values, high))
        if rank.value < len(values) and not facts_of(small).assumed:
            evidence = (positive, rank.evidence)
            for bounds in (low, values, high):
                bounds[rank.value :] = 0.0
    zeros = op.shape[0] - len(values)
    evidence = (*evidence, SHAPES) if zeros else evidence
    return _Known(low, values, high, zeros, error, (*evidence, symmetry_of(op)))


def _check_positive(known: _Known, shift: float) -> None:
    """Refuse a matrix A + s I that is not certainly positive definite."""
    if known.zeros and not shift:
        rows = len(known.values)
        msg = (
            f"the matrix of {rows + known.zeros:,} rows has at most the rank {rows:,}, so that it "
            "has no inverse and no logarithm; pass damping=s, for A + s I"
        )
        raise ValueError(msg)
    at = int(np.argmin(known.low))
    if known.low[at] + shift <= 0:
        refuse_indefinite(known.values[at], known.high[at] - known.values[at], shift)


def _refuse_undefined(
    f: ScalarFunction, known: _Known, shift: float, of_values: np.ndarray
) -> None:
    """Refuse an f that is not finite at an eigenvalue."""
    if not np.isfinite(of_values).all():
        msg = (
            f"{f.name} is not finite at an eigenvalue of A + {shift:g} I; those of A run from "
            f"{float(known.values.min()):.3g} to {float(known.values.max()):.3g}"
            + (f", and {known.zeros} are zero" if known.zeros else "")
        )
        raise ValueError(msg)
