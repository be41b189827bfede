"""Both ends of a non-zero spectrum, and how the rank between them is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnjax.numerics.certificate import Certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.rank_bound import RankBound, least
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.facts import facts_of, rank_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.semidefinite import Enclosure, check_semidefinite, nonnegative
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import UNWATCHED, Watch

GIVEN, ANALYTIC, FULL, GAP, FLOOR = "given", "analytic", "full", "gap", "floor"
KNOWN = (GIVEN, ANALYTIC, FULL)
"""The sources of a rank that make an answer kappa itself, and not kappa at an assumed rank."""

FLOOR_OF_SQUARES = 3 + 2 * 2**0.5
"""sigma^2 / e^2 where sigma^2 equals its error (2 sigma + e) e, for a sigma that is known to e."""

_CLEAR_GAP = 1e3  # neighbouring eigenvalues with at least this quotient have a gap between them
_GOES_ON = 0.5  # of its error, above which an eigenvalue is no zero with its rounding


@dataclass(frozen=True)
class Problem:
    """The operator whose kappa a method computes, with the arguments of condition_number.

    Attributes:
      op: the operator, or a smaller one that it states, with the same non-zero eigenvalues.
      rank, rtol, seed, limits, preconditioner: those of :func:`gnjax.condition_number`.
      watch: shows the progress and hears Ctrl-C.
      limit: returns a bound on the rank of ``op`` that the operator does not state itself.
      most_products: after so many products with the operator Lanczos ends, whatever it has found.
    """

    op: Operator
    rank: int | None
    rtol: float
    seed: int
    limits: Limits = LIMITS
    watch: Watch = UNWATCHED
    preconditioner: np.ndarray | None = None
    limit: Callable[[], RankBound] | None = None
    most_products: float = math.inf

    @property
    def size(self) -> int:
        """The number of rows of ``op``."""
        return self.op.shape[0]

    @property
    def bound(self) -> RankBound:
        """A bound on the rank, with its evidence. It may take work, so ask where it matters."""
        bound_of_operator = rank_of(self.op)
        return bound_of_operator if self.limit is None else least(bound_of_operator, self.limit())


@dataclass(frozen=True)
class InnerGap:
    """A gap between two neighbouring non-zero eigenvalues: one is at least 1000 times the other.

    ``below`` is the number of non-zero eigenvalues below the gap, and ``above`` the eigenvalue
    above it. Where there is no gap they are 0 and None.
    """

    below: int = 0
    above: Enclosure | None = None


@dataclass(frozen=True)
class Ends:
    """The result of every method: both ends of the non-zero spectrum and how they are known.

    Attributes:
      largest, smallest: lambda_max and lambda_rank, with bounds.
      rank, rank_source: the number of non-zero eigenvalues, and what it rests on: one of GIVEN,
        ANALYTIC, FULL, GAP and FLOOR.
      floor: the smallest eigenvalue that the method could have told from zero.
      method, certificate: the name of the method, and the evidence for the bounds.
      products: how many products with the operator were made.
      finished: False where the caller stopped the work.
      gap: the widest gap in the smaller half of the non-zero eigenvalues; None where the method did
        not compute all of them.
    """

    largest: Enclosure
    smallest: Enclosure
    rank: int
    rank_source: str
    floor: float
    method: str
    certificate: Certificate
    products: int = 0
    finished: bool = True
    gap: InnerGap | None = None

    @property
    def resolved(self) -> bool:
        """Whether lambda_rank is certified to be positive, for a rank that is not assumed."""
        return self.smallest.low > 0 and self.rank_source in KNOWN


def bound_source(problem: Problem, rank: int) -> str:
    """The source of a rank that is the largest that structure allows, and proved: FULL or ANALYTIC.

    Where the structure itself is assumed, the source is GAP.
    """
    if facts_of(problem.op).assumed:
        return GAP
    return FULL if rank == problem.size else ANALYTIC


def ends_of_spectrum(problem: Problem, spectrum: Spectrum) -> Ends | None:
    """Both ends of a whole spectrum; None where no eigenvalue can be told from zero."""
    values, errors = spectrum.values, spectrum.errors
    norm = float(np.abs(values).max())
    if not np.isfinite(errors).all():
        return _uncertified(problem, spectrum, norm)
    check_semidefinite(float(values[-1]), float(values[0]), float(errors[-1]), answer="kappa")
    if values[0] <= errors[0]:
        return None
    rank, source = _rank(problem, values, errors)
    # Zeros that follow from the shapes of the factors have no error. The others can be told from
    # zero by their error or, as squares of singular values that are known to e, if they are above
    # FLOOR_OF_SQUARES times e^2; the error of a zero is e^2.
    floor = float(errors[errors > 0][-1]) if (errors > 0).any() else 0.0
    floor *= FLOOR_OF_SQUARES if spectrum.method == "factored" else 1.0
    smallest = nonnegative(values[rank - 1], errors[rank - 1])
    if source == FLOOR:  # the rank is a count, and lambda_rank may be any smaller number
        smallest = replace(smallest, low=0.0)
    return Ends(
        largest=nonnegative(values[0], errors[0]),
        smallest=smallest,
        rank=rank,
        rank_source=source,
        floor=floor,
        method=spectrum.method,
        certificate=spectrum.certificate,
        gap=_widest_gap(values[:rank], errors[:rank]),
    )


def _widest_gap(values: np.ndarray, errors: np.ndarray) -> InnerGap:
    """The widest gap in the smaller half of non-zero eigenvalues, given from the largest down."""
    first = len(values) // 2  # how many of the larger eigenvalues are left out of the search
    lows, highs = (values - errors)[first:-1], (values + errors)[first + 1 :]
    if not len(lows) or highs.min() <= 0:
        return InnerGap()
    quotients = lows / highs
    widest = int(np.argmax(quotients))
    if not quotients[widest] >= _CLEAR_GAP:
        return InnerGap()
    place = first + widest
    return InnerGap(len(values) - place - 1, nonnegative(values[place], errors[place]))


def _rank(problem: Problem, values: np.ndarray, errors: np.ndarray) -> tuple[int, str]:
    """The rank, and what it rests on: the caller, structure, a gap, or the floor.

    Without the caller's it is the largest that structure allows, if the eigenvalue at this rank is
    certified to be positive, which proves the rank. Otherwise it is the number of eigenvalues above
    their errors, which is an assumption. If an eigenvalue beyond the structural bound is certified
    to be positive, the bound is wrong and is not used. ``values`` are from the largest down.
    """
    if problem.rank is not None:
        return problem.rank, GIVEN
    is_positive = values > errors  # certified, for each eigenvalue
    if is_positive[-1] and not facts_of(problem.op).assumed:
        return problem.size, FULL  # whatever structure says
    first = int(np.argmin(is_positive))  # the largest eigenvalue that may be zero
    goes_on = not is_positive.all() and values[first] > _GOES_ON * errors[first]
    # Where eigenvalues fall through their errors the rank is not told by a bound, which takes work.
    bound_by_structure = problem.size if goes_on else problem.bound.value
    contradicted = bool(is_positive[bound_by_structure:].any())
    bound = problem.size if contradicted else bound_by_structure
    if bound and is_positive[bound - 1]:
        return bound, FULL if contradicted else bound_source(problem, bound)
    count = max(int(is_positive[:bound].sum()), 1)
    following = max(abs(values[count]), errors[count])  # no later eigenvalue is larger
    return count, GAP if values[count - 1] >= _CLEAR_GAP * following else FLOOR


def _uncertified(problem: Problem, spectrum: Spectrum, norm: float) -> Ends | None:
    """The ends of a spectrum whose errors are unknown: values as computed, without bounds.

    Without a rank from the caller, the eigenvalues above LAPACK's own rounding are counted. None
    where the matrix, of the 2-norm ``norm``, is zero.
    """
    values = spectrum.values
    noise = spectral_error(problem.size, problem.op.dtype) * norm
    if norm == 0:
        return None
    guess = 1e-6 * norm  # of the error
    check_semidefinite(float(values[-1]), float(values[0]), guess, answer="kappa")
    rank = problem.rank or max(int((values > noise).sum()), 1)
    return Ends(
        largest=Enclosure(float(values[0]), 0.0, np.inf),
        smallest=Enclosure(max(float(values[rank - 1]), 0.0), 0.0, np.inf),
        rank=rank,
        rank_source=GIVEN if problem.rank is not None else FLOOR,
        floor=float(noise),
        method=spectrum.method,
        certificate=spectrum.certificate,
    )
