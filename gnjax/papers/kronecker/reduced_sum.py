"""sum_l A_l (x) B_l restricted to its range, which is a staircase of basis vectors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gnjax.numerics.host import on_device
from gnjax.numerics.outward import stored_bound
from gnjax.papers.closed_form.staircase import adapt
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.kronecker.packed import TermGroups


@dataclass(frozen=True)
class Reduced:
    """sum_l A_l (x) B_l on its range, of dimension sum of rows x columns over ``groups``.

    ``rotated`` says whether the basis came from singular vectors, and not from leaving out rows.
    """

    operator: SumOfKroneckers
    groups: TermGroups
    rotated: bool = False

    @property
    def size(self) -> int:
        return sum(rows * columns for rows, columns in self.groups)


def reduce(op: SumOfKroneckers, factors: KroneckerFactors) -> Reduced:
    """sum_l A_l (x) B_l on a space that contains its range, of the size that the ranks allow.

    Its larger side, A or B, is put on the right, where the preconditioner works best: A (x) B and
    B (x) A have the same eigenvalues. The column spaces of the factors are nested, so that the
    first left rank and the last right rank are the smallest.
    """
    k, d = op.lefts.shape[-1], op.rights.shape[-1]
    if (min(factors.left_ranks[0], k), factors.right_ranks[-1]) == (k, d):  # the whole space
        if k <= d:
            return Reduced(op, ((k, d),))
        return Reduced(SumOfKroneckers(op.rights, op.lefts, op.stored_error), ((d, k),))
    if factors.left_ranks[-1] == 0 or factors.right_ranks[0] == 0:
        return Reduced(op, ())  # the sum is zero
    return _restricted(op, factors)


def _restricted(op: SumOfKroneckers, factors: KroneckerFactors) -> Reduced:
    """G = sum_l A_l (x) B_l in bases in which only a staircase of entries can be non-zero."""
    stairs = adapt(factors)
    lefts = _padded_grams(stairs.lefts)
    rights = _padded_grams(stairs.rights)
    rotation_error = stairs.error(*(np.linalg.norm(side, axis=(1, 2)) for side in (lefts, rights)))
    lengths = stairs.lengths
    if len(lefts[0]) > len(rights[0]):  # the staircase is transposed
        lefts, rights = rights, lefts
        lengths = np.array([(lengths > column).sum() for column in range(lengths.max())])
    groups = tuple(  # the runs of rows of equal length, as (rows, columns)
        (len(list(equal)), int(columns)) for columns, equal in groupby(lengths) if columns
    )
    error = stored_bound(float(op.stored_error) + rotation_error, op.dtype)
    operator = SumOfKroneckers(on_device(lefts), on_device(rights), error)
    return Reduced(operator, groups, stairs.left_rounding + stairs.right_rounding > 0)


def _padded_grams(factors: tuple[np.ndarray, ...]) -> np.ndarray:
    """F F^T of every factor F, with zeros behind so that all have one size: (L, size, size)."""
    size = max(len(f) for f in factors)
    grams = np.zeros((len(factors), size, size), factors[0].dtype)
    for gram, factor in zip(grams, factors, strict=True):
        gram[: len(factor), : len(factor)] = factor @ factor.T
    return grams
