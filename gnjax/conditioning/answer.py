"""A condition number as an answer, made from the largest and the smallest non-zero eigenvalue."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnjax.conditioning.ends import ANALYTIC, FULL, Ends, Problem
from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import UNKNOWN, Certificate, Error, certificate
from gnjax.numerics.outward import above, below
from gnjax.numerics.rank_bound import SHAPES

_NOTHING_ABOVE_ZERO = certificate(
    Error(0.0, reason="every eigenvalue lies within its error of zero")
)
_NARROW = 1.01  # of an interval up to this quotient of its ends the lower end alone is printed


@dataclass(frozen=True, repr=False)
class ConditionNumber(Result):
    """kappa = lambda_max / lambda_rank, with its interval and what the interval rests on.

    Attributes:
      value: lambda_max / lambda_rank, or a lower bound of it where no more is known (nan for the
        zero matrix).
      lambda_max, lambda_min: the largest eigenvalue and the smallest non-zero one, lambda_rank;
        0 or infinite where they are beyond the numbers of float64, on which kappa does not depend.
      interval: contains kappa, as surely as ``certificate`` says. Where the rank is assumed the
        true kappa may be any larger number, and the interval has no upper end.
      at_rank: contains lambda_max / lambda_rank for the ``rank`` of this answer. It equals
        ``interval`` where the rank is known.
      rank: the number of non-zero eigenvalues.
      rank_source: how the rank is known. With three sources the answer is kappa itself: "given", by
        the caller; "full", every eigenvalue is certified to be positive; "analytic", the structure
        allows no higher rank (how that is known is a part of ``certificate``) and the eigenvalue at
        this rank is certified to be positive. Two
        sources are assumptions: "gap", the next eigenvalue is 1000 times smaller or cannot be told
        from zero; "floor", the eigenvalues decrease to the floor without a gap, so that the number
        of those above it need not be the rank, or an iteration ended before it had seen all of
        them, and the rank is the largest that structure allows.
      resolved: whether lambda_rank is certified to be positive and the rank is not an assumption.
      floor: the smallest eigenvalue that this computation could have told from zero.
      method: the name of the method, as in the table of the documentation.
      certificate: what the interval rests on, see :class:`gnjax.Certificate`.
      size: the number of rows of the operator.
      products: how many products with the operator were made; 0 for methods that need none.
      finished: False where the work was interrupted; the interval holds nevertheless.
      below_gap: how many of the smallest non-zero eigenvalues lie below a gap, so that each of the
        others is at least 1000 times as large: of several such gaps in the smaller half of the
        spectrum the widest. 0 where there is none; None where the method does not compute all
        eigenvalues. A few such eigenvalues often have one cause, as a small constant in the model.
      above_gap: contains kappa without them, lambda_max divided by the eigenvalue above the gap;
        None where there is no gap.

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
    below_gap: int | None = None
    above_gap: tuple[float, float] | None = None

    @property
    def confidence(self) -> float:
        """The probability with which the interval is claimed to hold.

        It is 1 where everything is proved, and nan where no probability can be claimed.
        """
        return self.certificate.confidence

    @property
    def bounded(self) -> bool:
        """Whether kappa at the stated rank, known or assumed, has an upper bound."""
        return self.at_rank[1] < math.inf

    @property
    def log10(self) -> float:
        """The decimal logarithm of ``value``; nan where kappa is not defined."""
        return math.log10(self.value) if self.value > 0 else math.nan

    def __str__(self) -> str:
        """One line: the value, the interval ``at_rank``, the rank, the method and the evidence.

        A gap inside the non-zero spectrum is told at the end, with kappa without the eigenvalues
        below it. "kappa =" says that the answer is resolved, and "kappa at numerical rank" that the
        rank is assumed. "kappa >= v in [v, inf]" says that lambda_rank cannot be told from zero:
        the value v is then the lower bound of the interval, which has no upper end.
        """
        low, high = self.at_rank
        details = (
            f"(rank {self.rank} of {self.size}, {self.rank_source}; "
            f"{self.method}, {self.certificate.brief}{'' if self.finished else ', INTERRUPTED'})"
        )
        if self.below_gap:
            details += f"; {', '.join(without_smallest(self))}"
        if math.isnan(self.value):
            return f"kappa is not defined: no eigenvalue can be told from zero {details}"
        if self.certificate.kind == UNKNOWN:
            return f"kappa about {self.value:.6g} {details}"
        within = f"{self.value:.6g} in [{low:.6g}, {high:.6g}] {details}"
        if self.resolved:
            return f"kappa = {within}"
        if self.bounded:
            text = f"kappa at numerical rank {self.rank} = {within}"
            return f"{text}, NOT RESOLVED: the rank is assumed"
        return f"kappa >= {within}, NOT RESOLVED: lambda_min cannot be told from zero"


ASSUMED = "* at an assumed rank: a gap in the spectrum is taken for its end, so kappa may be larger"
"""What the mark * behind a kappa means (:func:`short`), to be told below a table or a picture."""


def is_assumed(condition: ConditionNumber | None) -> bool:
    """Whether kappa has an upper bound only because the rank is assumed from a gap."""
    return condition is not None and condition.bounded and not condition.resolved


def short(condition: ConditionNumber, digits: int = 3) -> str:
    """The value alone, for tables and pictures, with a sign of what is not known about it.

    An assumed rank has the mark *, which :data:`ASSUMED` explains, and a lower bound has ">=".
    """
    if condition.rank == 0 or math.isnan(condition.value):
        return "zero"
    relation = "" if condition.bounded else ">="
    return f"{relation}{condition.value:.{digits}g}{'*' if is_assumed(condition) else ''}"


def without_smallest(condition: ConditionNumber) -> tuple[str, str]:
    """Which eigenvalues lie below a gap in the spectrum, and kappa without them, both in words."""
    assert condition.above_gap is not None
    low, high = condition.above_gap
    count = f"{condition.below_gap} eigenvalues" if condition.below_gap != 1 else "eigenvalue"
    kappa = f"{low:.3g}" if high <= _NARROW * low else f"in [{low:.3g}, {high:.3g}]"
    return f"without the smallest {count}, below a gap", kappa


def answer_of(problem: Problem, ends: Ends, size: int) -> ConditionNumber:
    """kappa = lambda_max / lambda_rank of the caller's matrix from both ends of its spectrum.

    The caller's matrix has ``size`` rows. The method worked with ``problem.op``, which is that
    matrix or a smaller one with the same non-zero eigenvalues (J J^T for J^T J). The quotients of
    the bounds on both ends, rounded outwards, enclose kappa for ``ends.rank``: ``at_rank``. If the
    upper quotient is infinite or the rank is an assumption, ``interval`` has no upper end.
    """
    # The smaller matrix has full rank (FULL). For the caller's larger one that is no full rank:
    # it is the largest rank that the structure, here the smaller shape, allows.
    source = ANALYTIC if ends.rank_source == FULL and ends.rank < size else ends.rank_source
    rests_on = ends.certificate
    if source == ANALYTIC:
        # A matrix of problem.size rows has no higher rank, so its shape is the evidence. For a
        # smaller rank the evidence is what the operator states about its bound.
        rests_on += certificate(SHAPES if ends.rank == problem.size else problem.bound.evidence)
    low = below(ends.largest.low / ends.smallest.high) if ends.smallest.high > 0 else 1.0
    low = max(low, 1.0)  # no kappa is below 1
    is_positive = ends.smallest.low > 0
    high = above(ends.largest.high / ends.smallest.low) if is_positive else math.inf
    # The quotient of the computed values is told where the smaller is certified to be positive, or
    # where nothing is known about errors. Otherwise the lower bound of kappa is told.
    tells_quotient = ends.smallest.value > 0 and (is_positive or ends.certificate.kind == UNKNOWN)
    value = max(ends.largest.value / ends.smallest.value, 1.0) if tells_quotient else low
    value = value if math.isfinite(value) else low
    above_gap = None
    if ends.gap is not None and (least := ends.gap.above) is not None:
        above_gap = below(ends.largest.low / least.high), above(ends.largest.high / least.low)
    resolved = ends.resolved and math.isfinite(high)  # kappa itself may be beyond float64
    return ConditionNumber(
        value=float(value),
        lambda_max=float(ends.largest.value),
        lambda_min=float(ends.smallest.value),
        interval=(float(low), float(high) if resolved else math.inf),
        at_rank=(float(low), float(high)),
        rank=ends.rank,
        rank_source=source,
        resolved=resolved,
        floor=float(ends.floor),
        method=ends.method,
        certificate=rests_on,
        size=size,
        products=ends.products,
        finished=ends.finished,
        below_gap=None if ends.gap is None else ends.gap.below,
        above_gap=above_gap,
    )


def undefined(method: str, size: int, rests_on: Certificate, floor: float) -> ConditionNumber:
    """The answer where no eigenvalue can be told from zero, so that kappa is not defined.

    ``rests_on`` is the evidence for the errors of the eigenvalues, and an eigenvalue above
    ``floor`` would have been told from zero.
    """
    return ConditionNumber(
        value=math.nan,
        lambda_max=0.0,
        lambda_min=0.0,
        interval=(math.nan, math.nan),
        at_rank=(math.nan, math.nan),
        rank=0,
        rank_source="floor",
        resolved=False,
        floor=floor,
        method=method,
        certificate=rests_on + _NOTHING_ABOVE_ZERO,
        size=size,
    )
