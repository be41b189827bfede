"""Operators whose numbers are far from 1 are refused, as their squares have no room in a dtype."""

from __future__ import annotations

import math

import jax.numpy as jnp

from gnjax.numerics.scale import reach
from gnjax.operators.facts import facts_of, is_uneven, magnitude_of
from gnjax.operators.protocol import Operator

_ADVICE = (
    "multiply the matrix, its factor or the loss by a power of two: kappa stays as it is, and "
    "eigenvalues are multiplied by the same"
)


def check_near_one(op: Operator) -> None:
    """Refuse an operator if squares of its numbers, or of their errors, may under- or overflow.

    That is so for a norm beyond 1e92 or below 1e-92 in float64, and beyond 1e19 or below 1e-19 in
    float32. Where nothing is stated, one product with a random vector tells the norm. A matrix of
    zeros is near enough.
    """
    exponent, _ = magnitude_of(op)
    room = reach(op.dtype)  # norms from 2^-room to 2^room are answered
    dtype, limit = jnp.dtype(op.dtype).name, round(room * math.log10(2))
    precise = "" if dtype == "float64" else ", or compute in float64 after gnjax.enable_x64()"
    if exponent is not None and abs(exponent) > room:
        msg = (
            f"the norm of the operator is about 1e{exponent * math.log10(2):+.0f}, and in {dtype} "
            f"answers are computed from 1e-{limit} to 1e+{limit}; {_ADVICE}{precise}"
        )
        raise ValueError(msg)
    if is_uneven(op):
        msg = (
            f"the operator is made of numbers beyond 1e+{limit} or below 1e-{limit}, although its "
            f"norm is nearer to 1, and in {dtype} their squares have no room; divide the large "
            f"parts and multiply the small ones by a power of two{precise}"
        )
        raise ValueError(msg)


def check_stated_near_one(op: Operator) -> None:
    """:func:`check_near_one` without a product: only where the operator states its magnitude."""
    if facts_of(op).magnitude is not None:
        check_near_one(op)
