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

The dimensions themselves are not known in floating point. What the zeros and the widths of the
layers prove are upper bounds u_l >= dim U_l and v_l >= dim V_l (see
:mod:`gnjax.papers.closed_form.patterns`), which grow and shrink with l as the dimensions do.
Then sum_l (u_l - u_{l-1}) v_l is an upper bound on the rank: the sum grows with every v_l because
u_l - u_{l-1} >= 0, and with every u_l because it is sum_l u_l (v_l - v_{l+1}), v_{L+1} = 0. And G
vanishes outside the staircase of any nested spaces of these dimensions that contain the U_l and
V_l, so that a smallest eigenvalue inside it that is proved not to be zero proves the rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
import scipy
from numpy.typing import NDArray

from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.factorisation import compact

if TYPE_CHECKING:
    from gnjax.papers.kronecker.factors import KroneckerFactors

_Array = NDArray[np.floating]

_CLOSE = 8.0  # a space may lose at most this times the rounding of an SVD


@dataclass(frozen=True)
class Staircase:
    """The factors in bases adapted to the flags; outside the pairs that ``lengths`` names, G is 0.

    Attributes:
      lefts: Q^T S_l, (u_l, a_l), for an orthogonal Q.
      rights: R^T T_l, (v_l, a_{l-1}), for an orthogonal R.
      lengths: (u_L,): pairs (i, j) with j < lengths[i] are in the staircase.
      left_distances, right_distances: (L,), bounds on ||S_l - Q Q^T S_l||_F and
        ||T_l - R R^T T_l||_F, the parts of the stored factors outside the spaces; 0 where exact.
      left_rounding, right_rounding: what the rotations round, as a share of ||A_l|| and ||B_l||; 0
        where rows are only left out.
    """

    lefts: tuple[_Array, ...]
    rights: tuple[_Array, ...]
    lengths: NDArray[np.integer]
    left_distances: _Array
    right_distances: _Array
    left_rounding: float
    right_rounding: float

    def error(self, left_norms: _Array, right_norms: _Array) -> float:
        """How far sum_l A_l (x) B_l is from its restriction, for ||A_l||_F and ||B_l||_F."""
        a = _gram_distance(left_norms, self.left_distances, self.left_rounding)
        b = _gram_distance(right_norms, self.right_distances, self.right_rounding)
        return raised(float((a * right_norms + left_norms * b + a * b).sum()))


def _gram_distance(norms: _Array, distances: _Array, rounding: float) -> _Array:
    """How far each A_l = S_l S_l^T moves, from ||A_l||_F and the distance that S_l moves."""
    norms = np.asarray(norms, np.float64)
    return (2 * np.sqrt(norms) + distances) * distances + rounding * norms


def adapt(factors: KroneckerFactors) -> Staircase:
    """The factors S_l and T_l in orthonormal bases of R^k and R^d that follow their column spaces.

    The column space of S_l lies in the span of the first u_l vectors of the left basis, and that of
    T_l in that of the first v_l of the right one, for the bounds u_l and v_l on their ranks. Rows
    that are exactly zero are left out exactly; other directions are found by rotations.
    """
    lefts, left_distances, left_rounding = _adapted(factors.lefts[::-1], factors.left_ranks[::-1])
    rights, right_distances, right_rounding = _adapted(factors.rights, factors.right_ranks)
    rows = np.arange(factors.left_ranks[-1])
    # The first l whose S_l reaches row i: with T_l it decides how far the row goes.
    first_level = np.searchsorted(np.asarray(factors.left_ranks), rows + 1)
    return Staircase(
        lefts[::-1],
        rights,
        np.asarray(factors.right_ranks)[first_level],
        left_distances[::-1],
        right_distances,
        left_rounding,
        right_rounding,
    )


def _adapted(
    factors: tuple[jax.Array, ...], ranks: tuple[int, ...]
) -> tuple[tuple[_Array, ...], _Array, float]:
    """Factors (n, a_l) in one orthonormal basis; the first ranks[l] vectors span their columns.

    Where a rank drops, rows of zeros are left out first. If that is not enough, the remaining rows
    are rotated so that the column spaces of all later factors lie in the first ranks[l] rows.

    Returns:
      the factors in the new coordinates (ranks[l], a_l), the Frobenius norms of what was left out
      (L,), and a bound on the rounding of the rotations relative to the Gram matrices.
    """
    coordinates = _longest_lived_first([np.asarray(f) for f in factors])
    size, rotations = len(coordinates[0]), 0
    dropped = np.zeros(len(factors))
    for level, rank in enumerate(ranks):
        later = [c[:size] for c in coordinates[level:]]
        in_use = np.flatnonzero(np.any([rows.any(axis=1) for rows in later], axis=0))
        size = max(rank, int(in_use[-1]) + 1 if len(in_use) else 0)
        later = [c[:size] for c in later]
        if rank < size:
            rotation = _rotation(later, rank)
            rotations += 1
            for before in range(level):
                rows = coordinates[before]
                coordinates[before] = np.vstack([rotation.T @ rows[:size], rows[size:]])
            later = [rotation.T @ rows for rows in later]
            dropped[level:] += [_norm(rows[rank:]) for rows in later]
            size = rank
        coordinates[level:] = [rows[:size] for rows in later]
    rounding = 2 * rotations * spectral_error(len(factors[0]), factors[0].dtype)
    return tuple(coordinates), dropped, rounding


def _longest_lived_first(factors: list[_Array]) -> list[_Array]:
    """The factors with their rows in a new order: the later a row is zero for good, the earlier."""
    nonzero = np.stack([f.any(axis=1) for f in factors])  # (L, rows)
    lives = np.where(nonzero, np.arange(1, len(factors) + 1)[:, None], 0).max(axis=0)
    order = np.argsort(-lives, kind="stable")
    if (order == np.arange(len(order))).all():
        return factors
    return [f[order] for f in factors]


def _rotation(factors: list[_Array], rank: int) -> _Array:
    """An orthogonal matrix whose first columns span the column spaces of all the factors.

    The left singular vectors of the first factor, which has the largest space, are tried first. If
    they are too inaccurate for the later ones, they are those of all factors side by side, each
    scaled to norm 1.
    """
    rotation = _left_vectors(factors[0])
    tolerance = _CLOSE * spectral_error(max(factors[0].shape), factors[0].dtype)
    norms = [_norm(f) for f in factors]
    outside = rotation[:, rank:].T
    if all(_norm(outside @ f) <= tolerance * n for f, n in zip(factors, norms, strict=True)):
        return rotation
    shares = [f / n for f, n in zip(factors, norms, strict=True) if n > 0]
    return _left_vectors(np.concatenate(shares, axis=1))


def _left_vectors(matrix: _Array) -> _Array:
    """All left singular vectors, including those for singular values of zero."""
    return scipy.linalg.svd(compact(matrix), check_finite=False)[0]


def _norm(matrix: _Array) -> float:
    return float(np.linalg.norm(matrix.astype(np.float64, copy=False)))
