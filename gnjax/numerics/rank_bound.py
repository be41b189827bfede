"""Bounds on the rank of a matrix, each with its evidence (``docs/reference/evidence.md``)."""

from __future__ import annotations

from dataclasses import dataclass

from gnjax.numerics.certificate import KINDS, Error

SHAPES = Error(0.0, reason="the rank that the shapes allow")
"""The evidence that a matrix has no higher rank than rows or columns, equal ones counted once."""


@dataclass(frozen=True)
class RankBound:
    """A number that the rank of a matrix does not exceed.

    Attributes:
      value: the number.
      evidence: what it rests on, as an error of size 0 with a kind and a reason.
    """

    value: int
    evidence: Error = SHAPES


def least(*bounds: RankBound) -> RankBound:
    """The smallest of the bounds; of equal ones that with the strongest evidence."""
    return min(bounds, key=lambda bound: (bound.value, KINDS.index(bound.evidence.kind)))
