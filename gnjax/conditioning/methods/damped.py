"""A + s I for a semidefinite A and s > 0, from both ends of the spectrum of A.

The eigenvalues are lambda_i(A) + s, and lambda_n(A) is at least zero, so the smallest eigenvalue is
certified to be at least s. It is exactly s where the structure of A does not allow full rank, as
for a Gauss-Newton matrix with more parameters than outputs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gnjax.conditioning.ends import (
    FULL,
    GIVEN,
    Ends,
    Problem,
)
from gnjax.conditioning.methods import dense, krylov
from gnjax.conditioning.methods.method import Method
from gnjax.numerics.certificate import UNKNOWN, Certificate, Error, certificate
from gnjax.numerics.outward import above, below
from gnjax.numerics.rank_bound import SHAPES
from gnjax.operators.facts import facts_of, positivity_of, rank_of, twin_of, unshifted_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.semidefinite import Enclosure, check_semidefinite, nonnegative
from gnjax.spectra.whole import whole_spectrum, why_not_dense

_ZERO = Enclosure(0.0, 0.0, 0.0)


def _refuses(problem: Problem) -> str:
    """Why the method does not apply, or ""."""
    base, shift = unshifted_of(problem.op)
    if not (shift > 0 and positivity_of(base)):
        return (
            "method='damped' needs an operator A + s with s > 0 and an A that is positive "
            "semidefinite by its structure; use 'auto'"
        )
    if problem.rank not in (None, problem.size):
        return f"method='damped' answers for the full rank {problem.size}, got rank={problem.rank}"
    if why_not_dense(twin_of(base).shape[0], problem.limits):
        small = twin_of(base)
        return krylov.METHOD.of(small).refuses(replace(problem, op=small, rank=None))
    return ""


def _ends(problem: Problem) -> Ends | None:
    """Both ends of A + s I, from bounds on both ends of A, each moved by s.

    The ends of A are computed of its twin, from its whole spectrum, or by Lanczos where it is too
    large for that. Lanczos bounds the smallest eigenvalue of A from above alone, and A is
    semidefinite, so that 0 is the lower bound.
    """
    base, shift = unshifted_of(problem.op)
    small = twin_of(base)
    if why_not_dense(small.shape[0], problem.limits):
        krylov_ends = krylov.METHOD.of(small).ends(replace(problem, op=small, rank=None))
        if krylov_ends is None:
            return dense.METHOD.ends(problem)
        top, bottom = krylov_ends.largest, Enclosure(0.0, 0.0, krylov_ends.smallest.high)
        rests_on = krylov_ends.certificate
        products, finished = krylov_ends.products, krylov_ends.finished
    else:
        top, bottom, rests_on = _of_spectrum(small, problem)
        products, finished = 0, True
    positive = positivity_of(base)
    assert positive is not None
    rests_on += certificate(positive)
    singular = _why_singular(base, small.shape[0], bottom, problem.size)
    if singular is not None:  # the smallest eigenvalue of A is 0, that of A + s I is s
        bottom = _ZERO
        rests_on += certificate(singular)
    if rests_on.kind == UNKNOWN:  # after the shift the bounds are 0 and infinity
        bottom = Enclosure(bottom.value, -shift, math.inf)
    return Ends(
        largest=_shifted(top, shift),
        smallest=_shifted(bottom, shift),
        rank=problem.size,
        rank_source=FULL if problem.rank is None else GIVEN,
        floor=bottom.high - bottom.low,
        method="damped",
        certificate=rests_on,
        products=products,
        finished=finished,
    )


def _why_singular(base: Operator, rows: int, bottom: Enclosure, size: int) -> Error | None:
    """The evidence that A, of ``size`` rows, is singular; None where structure does not prove it.

    ``bottom`` is the smallest eigenvalue of A's twin, of ``rows`` rows.
    """
    if facts_of(base).assumed:  # its structure is an assumption, and proves nothing
        return None
    if rows < size:
        return SHAPES
    if bottom.low > 0:  # A is certified to be regular
        return None
    bound = rank_of(base)
    return bound.evidence if bound.value < size else None


def _of_spectrum(small: Operator, problem: Problem) -> tuple[Enclosure, Enclosure, Certificate]:
    """The largest and the smallest eigenvalue of a semidefinite A, from all of its eigenvalues."""
    spectrum = whole_spectrum(small, problem.limits)
    values, errors = spectrum.values, spectrum.errors
    check_semidefinite(float(values[-1]), float(values[0]), float(errors[-1]), answer="kappa")
    top, bottom = (nonnegative(values[i], errors[i]) for i in (0, -1))
    return top, bottom, spectrum.certificate


def _shifted(end: Enclosure, shift: float) -> Enclosure:
    """The eigenvalue lambda + s with bounds, rounded outwards, from lambda and the shift s."""
    return Enclosure(end.value + shift, below(end.low + shift), above(end.high + shift))


METHOD = Method(
    "damped",
    "the ends of the spectrum of A, moved by s; its smallest eigenvalue is at least s",
    "A + s I with s > 0 and a semidefinite A",
    _refuses,
    lambda problem: 0.0,
    _ends,
    sharp=True,
)
