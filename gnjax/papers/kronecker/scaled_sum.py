"""Sums of Kronecker products far from norm 1, times a power of two that is divided among terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gnjax.numerics.outward import frobenius_norm, raised, stored_bound
from gnjax.numerics.scale import largest_exponent, raised_power, reach, times_power
from gnjax.papers.closed_form.from_weights import from_factors
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.papers.kronecker.operator import SumOfKroneckers, sum_error


def magnitude(op: SumOfKroneckers) -> int | None:
    """e with 2^e near the largest entry of a term, from the factors where they are known."""
    return max((a + b for a, b in _exponents(op) if a is not None and b is not None), default=None)


def uneven(op: SumOfKroneckers) -> bool:
    """Whether the scales of A_l and of B_l are far from 1, and undo each other."""
    return any(abs(side or 0) > reach(op.dtype) for term in _exponents(op) for side in term)


def _exponents(op: SumOfKroneckers) -> list[tuple[int | None, int | None]]:
    """The exponents of A_l and B_l, from those of S_l and T_l if known; None for zero matrices."""
    factors: KroneckerFactors | None = getattr(op, "factors", None)
    times = 1 if factors is None else 2
    sides = (op.lefts, op.rights) if factors is None else (factors.lefts, factors.rights)
    pairs = ([largest_exponent(side) for side in term] for term in zip(*sides, strict=True))
    multiples = ([None if e is None else times * e for e in pair] for pair in pairs)
    return [(a, b) for a, b in multiples]


def kroneckers_times_power_of_two(op: SumOfKroneckers, exponent: int) -> SumOfKroneckers:
    """Every A_l times a power and every B_l times another; from the factors where they are known.

    The products A_l = S_l S_l^T may underflow where the factors do not.
    """
    factors: KroneckerFactors | None = getattr(op, "factors", None)
    if factors is not None:
        return from_factors(_factors(factors, exponent // 2))
    down = -(largest_exponent(op.rights) or 0)
    lefts, left_lost = times_power(op.lefts, exponent - down)
    rights, right_lost = times_power(op.rights, down)
    norms = [[frobenius_norm(term) for term in np.asarray(side)] for side in (lefts, rights)]
    lost = [[bound] * len(lefts) for bound in (left_lost, right_lost)]
    error = raised_power(float(op.stored_error), exponent)
    error += sum_error(norms[0], norms[1], lost[0], lost[1], op.dtype)
    return SumOfKroneckers(lefts, rights, stored_bound(raised(error), op.dtype))


def _factors(factors: KroneckerFactors, exponent: int) -> KroneckerFactors:
    """2^a S_l and 2^b T_l with a + b = ``exponent`` for all l; S_L = I and T_1 = I stay."""
    lefts: list[Any] = []
    rights: list[Any] = []
    left_errors: list[float] = []
    right_errors: list[float] = []
    last = len(factors.lefts) - 1
    for index, (s, t) in enumerate(zip(factors.lefts, factors.rights, strict=True)):
        down = exponent if index == last else -(largest_exponent(t) or 0)
        down = 0 if index == 0 and factors.whitened else down
        for side, error, power, multiples, errors in (
            (s, factors.left_errors[index], exponent - down, lefts, left_errors),
            (t, factors.right_errors[index], down, rights, right_errors),
        ):
            multiple, lost = times_power(side, power)
            multiples.append(multiple)
            errors.append(raised_power(float(error), power) + lost)
    dtype = factors.rights[0].dtype
    return replace(
        factors,
        lefts=tuple(lefts),
        rights=tuple(rights),
        left_errors=stored_bound(left_errors, dtype),
        right_errors=stored_bound(right_errors, dtype),
    )
