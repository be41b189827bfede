"""The pseudo-condition number lambda_max / lambda_rank of a positive semidefinite operator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.conditioning.ends import ANALYTIC, FULL, Enclosure, Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods import METHODS, Method
from gnjax.conditioning.positive import least_eigenvalue, matrix_on_range
from gnjax.numerics.certificate import PROVED, UNKNOWN, Certificate, Error, certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import above, below
from gnjax.numerics.result import Result
from gnjax.operators.base import Operator
from gnjax.operators.facts import error_of, factorisation_of, kroneckers_of, twin_of
from gnjax.spectra.eigenvalues import as_operator, is_count
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import Progress, watching
from gnjax.spectra.whole import dense_spectrum

_CERTIFICATES = ("ritz", "inertia")
_WHOLE = certificate(Error(0.0, reason="every eigenvalue lies within its error of zero"))


@dataclass(frozen=True, repr=False)
class ConditionNumber(Result):
    """kappa = lambda_max / lambda_rank, with everything needed to trust it or not.

    Attributes:
      value: lambda_max / lambda_rank; where even that is not known, a lower bound of it (nan for
        the zero matrix).
      interval: encloses kappa, as surely as ``certificate`` says. Where the rank is assumed the
        true kappa may be any larger number, and the interval has no upper end.
      at_rank: encloses lambda_max / lambda_rank for the ``rank`` of this answer. It is ``interval``
        where the rank is known.
      rank: the number of non-zero eigenvalues, and ``rank_source`` how it is known. Three sources
        make the answer kappa itself: "given" by the caller; "full", every eigenvalue is certified
        to be positive; "analytic", the structure allows no higher rank and the eigenvalue there is
        certified to be positive. Two are assumptions: "gap", the next eigenvalue is 1000 times
        smaller or at the floor; "floor", eigenvalues reach down into the floor, so that the count
        is not the rank.
      resolved: lambda_rank is certified to be positive and the rank is not an assumption.
      floor: the smallest eigenvalue that this computation could have told from zero.
      method: the name of the method, as in the table of the documentation.
      certificate: what the interval rests on: see :class:`gnjax.Certificate`.
      size: of the operator.
      products: operator applications, 0 for methods that need none.
      finished: False where the work was interrupted; the interval holds all the same.

    >>> kappa = gnjax.condition_number(np.diag([4.0, 2.0, 1.0]))
    >>> print(kappa)
    kappa = 4 in [4, 4] (rank 3 of 3, full; dense, measured)
    >>> low, high = kappa.interval
    >>> low <= 4 <= high, kappa.resolved
    (True, True)
    """

    value: float
    lambda_max: float
    lambda_min: float
    interval: tuple[float, float]
    at_rank: tuple[float, float]
    rank: int
    rank_source: str
    resolved: bool
    floor: float
    method: str
    certificate: Certificate
    size: int
    products: int = 0
    finished: bool = True

    @property
    def confidence(self) -> float:
        """The probability that is claimed: 1 where all is proved, nan where none is claimed."""
        return self.certificate.confidence

    @property
    def bounded(self) -> bool:
        """Whether kappa at the stated rank, known or assumed, has a bound from above."""
        return self.at_rank[1] < math.inf

    @property
    def log10(self) -> float:
        return math.log10(self.value) if self.value > 0 else math.nan

    def __str__(self) -> str:
        low, high = self.at_rank
        known = (
            f"(rank {self.rank} of {self.size}, {self.rank_source}; "
            f"{self.method}, {self.certificate.brief}{'' if self.finished else ', INTERRUPTED'})"
        )
        if math.isnan(self.value):
            return f"kappa is not defined: no eigenvalue can be told from zero {known}"
        if self.certificate.kind == UNKNOWN:
            return f"kappa about {self.value:.6g} {known}"
        within = f"{self.value:.6g} in [{low:.6g}, {high:.6g}] {known}"
        if self.resolved:
            return f"kappa = {within}"
        if self.bounded:
            text = f"kappa at numerical rank {self.rank} = {within}"
            return f"{text}, NOT RESOLVED: the rank is assumed"
        return f"kappa >= {within}, NOT RESOLVED: lambda_min is below the floor"


def condition_number(
    op: Operator | ArrayLike,
    *,
    rank: int | None = None,
    rtol: float = 1e-3,
    method: str = "auto",
    certify: str = "ritz",
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> ConditionNumber:
    """kappa = lambda_max / (smallest non-zero lambda), with a certified interval.

    The work is done on the smaller of the operator and its twin with the same non-zero
    eigenvalues, such as the output side of a Gauss-Newton matrix.

    Args:
      op: an operator, or a symmetric positive semidefinite matrix.
      rank: the number of non-zero eigenvalues, where you know better than the library.
      rtol: the relative width of the interval that iterative methods work towards.
      method: "auto" takes the cheapest that applies; the documentation has a table of all.
      certify: what bounds an iterative answer from outside: "ritz", the chance that a random start
        misses an eigenvalue, or "inertia", a proof by two Cholesky factorisations.
      seed: of the random start.
      progress: True for a bar on stderr, or a function of the products made and expected (None),
        for Lanczos on products. Ctrl-C then ends it with what it has, which is not ``finished``.
      limits: of memory and work.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> op = gnjax.linear_gauss_newton(weights)
    >>> print(gnjax.condition_number(op))
    kappa = 12.9117 in [12.9117, 12.9117] (rank 12 of 12, full; closed_form, measured)
    >>> gnjax.condition_number(op, certify="inertia").certificate.kind
    'proved'
    """
    operator = as_operator(op)
    size = operator.shape[0]
    _check_arguments(size, rank, rtol, method, certify, seed)
    with watching(progress, stoppable=True) as watch:
        given = None if rank is None else int(rank)
        problem = Problem(twin_of(operator), given, float(rtol), int(seed), limits, watch)
        return _solved(problem, method, certify, size)


def condition_of_spectrum(op: Operator, whole: Spectrum, size: int) -> ConditionNumber:
    """kappa of a semidefinite matrix of ``size`` rows with the twin ``op``, all of whose
    eigenvalues are known already."""
    ends = ends_of_spectrum(Problem(op, None, 1e-3, 0), whole)
    return _zero(whole.method, size) if ends is None else _assembled(ends, size)


def _solved(problem: Problem, method: str, certify: str, size: int) -> ConditionNumber:
    rank = problem.rank
    if rank is not None and rank > problem.size:
        msg = (
            f"rank={rank} cannot be: the operator of size {size} has the non-zero eigenvalues of "
            f"one of size {problem.size}"
        )
        raise ValueError(msg)
    chosen = _cheapest(problem) if method == "auto" else _asked_for(problem, method)
    ends = chosen.ends(problem)
    if ends is not None and not ends.finished:
        return _assembled(ends, size)
    if method == "auto" and ends is not None and not chosen.sharp and _open(ends, problem.rtol):
        ends = _sharper(problem, ends)
    if ends is not None and certify == "inertia" and ends.certificate.kind != PROVED:
        ends = _by_inertia(problem, ends)
    return _zero(chosen.name, size) if ends is None else _assembled(ends, size)


def _check_arguments(size: int, rank: Any, rtol: Any, method: str, certify: str, seed: Any) -> None:
    if rank is not None and (not is_count(rank) or not 1 <= rank <= size):
        msg = f"rank={rank!r} is not an integer between 1 and the size of the operator, {size}"
        raise ValueError(msg)
    if not isinstance(rtol, int | float | np.floating) or not 0 < rtol < 1:
        msg = f"rtol={rtol!r} is not a number between 0 and 1; 1e-3 is the default"
        raise ValueError(msg)
    if not is_count(seed) or seed < 0:
        msg = f"seed={seed!r} is not an integer of at least 0"
        raise ValueError(msg)
    for name, value, allowed in (
        ("method", method, ("auto", *METHODS)),
        ("certify", certify, _CERTIFICATES),
    ):
        if value not in allowed:
            msg = f"{name}={value!r} is not one of {', '.join(allowed)}"
            raise ValueError(msg)


def _asked_for(problem: Problem, name: str) -> Method:
    method = METHODS[name]
    refused = method.refuses(problem)
    if refused:
        raise ValueError(refused)
    return method


def _cheapest(problem: Problem) -> Method:
    """The cheapest method that applies.

    Methods that use structure come first: closed forms, Lanczos on sums of Kronecker products, and
    the singular values of a factor, which give all digits, where they take no more than
    ``limits.factor_work``. Of a larger factor of up to ``limits.factor_rows`` rows or columns, the
    matrix comes first, ten times sooner, and the factor where that leaves kappa open. The others
    work on the matrix.
    """
    applying = [method for method in METHODS.values() if not method.refuses(problem)]
    if not applying:
        reasons = "; ".join(method.refuses(problem) for method in METHODS.values())
        msg = f"no method applies: {reasons}"
        raise ValueError(msg)
    structured = kroneckers_of(problem.op) is not None
    preferred = [
        method
        for method in applying
        if method.name == "closed_form"
        or (method.name == "krylov" and structured)
        or (method.name == _by_factor(problem))
    ]
    return min(preferred or applying, key=lambda method: method.cost(problem))


def _by_factor(problem: Problem) -> str:
    """The method for an operator with a small factor, by the work of its singular values."""
    if not _small_factor(problem):
        return ""
    work = METHODS["factored"].cost(problem)
    return "factored" if work <= problem.limits.factor_work else "dense"


def _small_factor(problem: Problem) -> bool:
    factor = factorisation_of(problem.op)
    return factor is not None and min(factor.shape) <= problem.limits.factor_rows


def _open(ends: Ends, rtol: float) -> bool:
    """Whether kappa is not resolved, or not as narrowly as asked for."""
    both = (ends.largest, ends.smallest)
    if not ends.resolved or any(end.value <= 0 for end in both):
        return True
    return not sum((end.high - end.low) / end.value for end in both) <= rtol


def _sharper(problem: Problem, ends: Ends) -> Ends:
    """Both ends from the singular values of a small factor, which resolve smaller eigenvalues."""
    method = METHODS["factored"]
    if method.refuses(problem) or not _small_factor(problem):
        return ends
    found = method.ends(problem)
    return ends if found is None else found


def _by_inertia(problem: Problem, ends: Ends) -> Ends:
    """Prove both ends: M - s I has a Cholesky factor for s just below lambda_min, t I - M above.

    Where a factorisation fails, an eigenvalue was missed, and the dense method finds it.
    """
    if not ends.resolved or ends.rank != problem.rank_bound:
        return ends
    matrix, stored, asymmetry = matrix_on_range(problem)
    share = problem.rtol / 4
    least = least_eigenvalue(matrix, ends.smallest.value, share)
    negative = least_eigenvalue(-matrix, -ends.largest.value, share)
    if least is None or negative is None:
        found = ends_of_spectrum(problem, dense_spectrum(problem.op, problem.limits))
        return ends if found is None else found
    error = error_of(stored, -negative.low) + asymmetry
    top = Enclosure(-negative.value, -negative.high, -negative.low).widened(error.value)
    bottom = least.widened(error.value)
    bottom = replace(bottom, low=max(bottom.low, 0.0))
    proof = Error(0.0, PROVED, 0.0, "Cholesky factors and Rayleigh quotients, with their rounding")
    return replace(ends, largest=top, smallest=bottom, certificate=certificate(error, proof))


def _assembled(ends: Ends, size: int) -> ConditionNumber:
    """Quotients of the enclosures, rounded outwards."""
    low = below(ends.largest.low / ends.smallest.high) if ends.smallest.high > 0 else 1.0
    low = max(low, 1.0)
    positive = ends.smallest.low > 0
    high = above(ends.largest.high / ends.smallest.low) if positive else math.inf
    exact = ends.smallest.value > 0 and (positive or ends.certificate.kind == UNKNOWN)
    value = max(ends.largest.value / ends.smallest.value, 1.0) if exact else low
    return ConditionNumber(
        value=float(value),
        lambda_max=float(ends.largest.value),
        lambda_min=float(ends.smallest.value),
        interval=(float(low), float(high) if ends.resolved else math.inf),
        at_rank=(float(low), float(high)),
        rank=ends.rank,
        rank_source=ANALYTIC if ends.rank_source == FULL and ends.rank < size else ends.rank_source,
        resolved=ends.resolved,
        floor=float(ends.floor),
        method=ends.method,
        certificate=ends.certificate,
        size=size,
        products=ends.products,
        finished=ends.finished,
    )


def _zero(method: str, size: int) -> ConditionNumber:
    """No eigenvalue can be told from zero, so there is nothing to divide by."""
    return ConditionNumber(
        value=math.nan,
        lambda_max=0.0,
        lambda_min=0.0,
        interval=(math.nan, math.nan),
        at_rank=(math.nan, math.nan),
        rank=0,
        rank_source="floor",
        resolved=False,
        floor=0.0,
        method=method,
        certificate=_WHOLE,
        size=size,
    )
