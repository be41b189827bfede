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
from gnjax.spectra.whole import host_matrix


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
        """The dimension of the range."""
        return sum(rows * columns for rows, columns in self.groups)


def reduce(op: SumOfKroneckers, factors: KroneckerFactors) -> Reduced:
    """sum_l A_l (x) B_l on a space that contains its range, of the size that the ranks allow.

    The A_l are (k, k) and the B_l (d, d), with the factors S_l and T_l. Their column spaces are
    nested, so that the first left rank and the last right rank are the smallest.
    """
    _, k, _ = op.lefts.shape
    d = op.rights.shape[-1]
    if (min(factors.left_ranks[0], k), factors.right_ranks[-1]) == (k, d):
        return _larger_side_right(op, ((k, d),))  # the whole space: no null space is known
    if factors.left_ranks[-1] == 0 or factors.right_ranks[0] == 0:
        return Reduced(op, ())  # the sum is zero
    return _restricted(op, factors)


def _larger_side_right(op: SumOfKroneckers, groups: TermGroups) -> Reduced:
    """Swap A and B if A is larger: the preconditioner works best with the larger one on the right.

    A (x) B and B (x) A have the same eigenvalues.
    """
    if op.lefts.shape[-1] <= op.rights.shape[-1]:
        return Reduced(op, groups)
    swapped = SumOfKroneckers(op.rights, op.lefts, op.stored_error)
    return Reduced(swapped, tuple((columns, rows) for rows, columns in groups))


def _restricted(op: SumOfKroneckers, factors: KroneckerFactors) -> Reduced:
    """G = sum_l A_l (x) B_l in bases in which only a staircase of entries can be non-zero.

    Pairs (i, j) of basis vectors with j < lengths[i] hold the range. The larger of both sides is
    put on the right, where the preconditioner works best; the staircase is then transposed.
    """
    stairs = adapt(factors)
    lefts = _padded_grams(stairs.lefts)
    rights = _padded_grams(stairs.rights)
    rotation_error = stairs.error(*(np.linalg.norm(side, axis=(1, 2)) for side in (lefts, rights)))
    lengths = stairs.lengths
    if len(lefts[0]) > len(rights[0]):
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


def packed_matrix(reduced: Reduced) -> np.ndarray:
    """The dense matrix of the sum on its range (n, n), in the order of packed vectors.

    These have the entries (i, j) of a staircase, row after row: row i has as many columns as its
    group says.
    """
    d = reduced.operator.rights.shape[-1]
    rows = np.repeat([c for _, c in reduced.groups], [r for r, _ in reduced.groups])
    inside = np.concatenate([row * d + np.arange(columns) for row, columns in enumerate(rows)])
    matrix, _ = host_matrix(reduced.operator)
    return matrix if len(inside) == len(matrix) else matrix[np.ix_(inside, inside)]
