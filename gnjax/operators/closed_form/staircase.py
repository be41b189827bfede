"""The range of a linear network's Gauss-Newton matrix, and its rank.

Theorem. Let U_l = col(S_l) and V_l = col(T_l) with U_1 <= U_2 <= .. <= U_L and
V_1 >= V_2 >= .. >= V_L, as for S_l = W^{L:l+1} and T_l = Sigma^{1/2} W^{1:l-1}. Then
G = sum_l (S_l S_l^T) (x) (T_l T_l^T) has

    range G = sum_l U_l (x) V_l,    rank G = sum_l (dim U_l - dim U_{l-1}) dim V_l,  U_0 = 0.

Proof. The range of a sum of positive semidefinite matrices is the sum of the ranges. Take
orthonormal bases (e_i) of R^k and (f_j) of R^d adapted to the two flags, so that U_l is spanned
by the first dim U_l of the e_i and V_l by the first dim V_l of the f_j. Then e_i (x) f_j lies in
the range exactly when j <= dim V_l for the smallest l with i <= dim U_l: a staircase of pairs.

In those bases G vanishes outside the staircase and is positive definite inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from gnjax.operators.base import KroneckerFactors


def numerical_rank(singular_values: np.ndarray, size: int, eps: float) -> int:
    """How many singular values exceed what rounding of the entries can have made of zero."""
    if singular_values.size == 0 or singular_values[0] == 0:
        return 0
    return int((singular_values > max(8.0, size**0.5) * eps * singular_values[0]).sum())


def analytic_rank(factors: KroneckerFactors) -> int:
    """sum_l (dim U_l - dim U_{l-1}) dim V_l."""
    rises = np.diff((0, *factors.left_ranks))
    return int(np.dot(rises, factors.right_ranks))


@dataclass(frozen=True)
class Staircase:
    """The factors in bases adapted to the flags; outside the pairs that ``kept`` names, G is 0."""

    lefts: tuple[np.ndarray, ...]  # (dim U_l, a_l)
    rights: tuple[np.ndarray, ...]  # (dim V_l, a_{l-1})
    kept: np.ndarray  # (dim U_L,): pairs (i, j) with j < kept[i] are in the range


def adapt(factors: KroneckerFactors) -> Staircase:
    """Rotate both sides into bases adapted to the flags, dropping what no flag reaches."""
    lefts = _adapted(factors.lefts[::-1], factors.left_ranks[::-1])[::-1]
    rights = _adapted(factors.rights, factors.right_ranks)
    rows = np.arange(factors.left_ranks[-1])
    first_level = np.searchsorted(np.asarray(factors.left_ranks), rows + 1)
    return Staircase(lefts, rights, np.asarray(factors.right_ranks)[first_level])


def _adapted(factors: tuple[jax.Array, ...], ranks: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Coordinates in one orthonormal basis whose first ranks[l] vectors span col(factors[l]).

    The spaces shrink along the tuple. Where a rank drops, the singular vectors of the factor in
    the coordinates of the space before it complete the basis; else nothing is rotated.
    """
    coordinates = [np.asarray(f) for f in factors]
    size = coordinates[0].shape[0]
    for level, rank in enumerate(ranks):
        if rank < size:
            rotation, _, _ = scipy.linalg.svd(coordinates[level][:size])
            for later in range(len(coordinates)):
                rows = coordinates[later]
                if later < level:
                    coordinates[later] = np.vstack([rotation.T @ rows[:size], rows[size:]])
                else:
                    coordinates[later] = rotation[:, :rank].T @ rows[:size]
            size = rank
    return tuple(coordinates)
