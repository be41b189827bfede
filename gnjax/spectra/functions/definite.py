"""A + s I as a positive definite matrix: what is known of its smallest eigenvalue, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from gnjax.numerics.certificate import UNKNOWN, Error, unknown
from gnjax.numerics.limits import Limits
from gnjax.numerics.outward import lowered, raised
from gnjax.numerics.validation import check_finite_number
from gnjax.operators.facts import (
    facts_of,
    positivity_of,
    rank_of,
    symmetry_of,
    twin_of,
    unshifted_of,
)
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import eigenvalues
from gnjax.spectra.whole import whole_spectrum


@dataclass(frozen=True)
class Definite:
    """A + s I for the operator A = ``op`` and a number s, positive definite.

    Attributes:
      op: A.
      shift: s.
      least: a lower bound on the smallest eigenvalue of A + s I, above 0; 0.0 where the error of A
        is unknown, so that nothing is known.
      evidence: what the bound rests on, as errors of size 0.
    """

    op: Operator
    shift: float
    least: float
    evidence: tuple[Error, ...]


def checked_shift(damping: Any) -> float:
    """The damping as a float; refused is what is no finite number, or negative."""
    number = check_finite_number("damping", damping)
    if number < 0:
        msg = (
            f"damping={damping} is negative; it is a number s of at least 0 that is added to every "
            "eigenvalue"
        )
        raise ValueError(msg)
    return number


def damped(operator: Operator, damping: Any) -> tuple[Operator, float]:
    """A and s for an operator and a damping; the shift of an operator B + t I goes into s."""
    added = checked_shift(damping)
    base, shift = unshifted_of(operator)
    return base, shift + added


def definite(operator: Operator, damping: Any, limits: Limits) -> Definite:
    """A + s I with a bound on its smallest eigenvalue; refused if it is not positive definite.

    For a semidefinite A and s > 0 the bound is s. Otherwise the smallest eigenvalue of A is
    computed, from the whole spectrum or by Lanczos where the matrix is large.
    """
    return definite_of(*damped(operator, damping), limits)


def definite_of(base: Operator, shift: float, limits: Limits) -> Definite:
    """The same for A = ``base`` and s = ``shift``."""
    check_near_one(base)
    positive, symmetry = positivity_of(base), symmetry_of(base)
    if positive is not None and shift > 0:
        return Definite(base, shift, shift, (positive, symmetry))
    if positive is not None:
        _refuse_singular(base)
    if base.shape[0] > limits.whole_rows and facts_of(base).eigenvalues is None:
        spectrum = eigenvalues(base, k=1, which="smallest", limits=limits)
    else:
        spectrum = whole_spectrum(base, limits)
    evidence = tuple(part.to(0.0) for part in spectrum.certificate.parts)
    if spectrum.certificate.kind == UNKNOWN:
        refuse_indefinite(float(spectrum.values[-1]), 0.0, shift)
        return Definite(base, shift, 0.0, (*evidence, symmetry))
    least = refuse_indefinite(float(spectrum.values[-1]), float(spectrum.errors[-1]), shift)
    return Definite(base, shift, least, (*evidence, symmetry))


def _refuse_singular(op: Operator) -> None:
    """Refuse a semidefinite A without damping that its structure makes singular."""
    size, rank = op.shape[0], min(rank_of(op).value, twin_of(op).shape[0])
    if rank < size and not facts_of(op).assumed:
        msg = (
            f"the matrix of {size:,} rows has at most the rank {rank:,}, so that it has no inverse "
            "and no logarithm; pass damping=s, for A + s I"
        )
        raise ValueError(msg)


def refuse_indefinite(value: float, error: float, shift: float) -> float:
    """A lower bound on the smallest eigenvalue of A + s I; refused if it is not positive.

    That of A is ``value``, up to ``error``.
    """
    least = value - error + shift
    if least > 0:
        return lowered(least)
    is_indefinite = value + error + shift < 0
    state = "is not positive definite" if is_indefinite else "is singular as far as is known"
    needed = max(error - value, np.finfo(float).tiny)
    msg = (
        f"A + {shift:g} I {state}: the smallest eigenvalue of A is {value:.6g} +- {error:.2g}; "
        f"pass a damping above {_rounded_up(needed)}"
    )
    raise ValueError(msg)


def _rounded_up(number: float) -> str:
    """A positive number in three digits, and never a smaller one, which would be refused again."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(number)):.3g}"


def through_inverse(error: Error, length: float, least: float) -> Error:
    """A bound on |(A + s I)^{-1} E x| for ||E|| <= ``error`` and |x| = ``length``.

    ``least`` is a lower bound on the smallest eigenvalue of A + s I, or 0.0 if none is known.
    """
    if error.kind == UNKNOWN or error.value * length == 0:
        return error
    if not least:
        return unknown("no lower bound on the smallest eigenvalue is known")
    return error.to(raised(error.value * length / least))


def values_in_words(answer: Any, values: str) -> str:
    """One line about an answer with a value for each entry or output, which ``values`` counts."""
    return (
        f"{values} from {answer.values.min():.6g} to {answer.values.max():.6g}, each to "
        f"{answer.errors.max():.2g} ({answer.method}, {answer.products} products; "
        f"{answer.certificate.brief}){'' if answer.finished else '; NOT FINISHED'}"
    )
