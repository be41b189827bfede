"""sum_l A_l (x) B_l on its range, as an operator whose size is the rank that structure allows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import stored_bound
from gnjax.numerics.rounding import LAPACK_ROUNDING
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts, error_of
from gnjax.papers.closed_form.staircase import adapt
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.kronecker.packed import TermGroups, packed_product
from gnjax.spectra.whole import host_matrix


@dataclass(frozen=True, repr=False)
class OnRange(Algebra):
    """A sum of Kronecker products G on its range, a staircase of basis vectors.

    Attributes:
      whole: G.
      operator: G in other bases, in which all entries outside of the staircase are zero.
      groups: (rows, columns) of the runs of rows of equal length in the staircase.
      rotated: whether the bases came from singular vectors, and not from leaving out rows.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (6, 3, 5), "kaiming_normal")
    >>> op = gnjax.papers.linear_gauss_newton(weights)
    >>> op.shape, op.facts().on_range().shape
    ((30, 30), (24, 24))
    """

    whole: SumOfKroneckers
    operator: SumOfKroneckers
    groups: TermGroups
    rotated: bool = False

    def facts(self) -> Facts:
        return Facts(error=self.error, symmetric=True, forms_cheaply=True, formed_by_products=False)

    @property
    def shape(self) -> tuple[int, int]:
        size = sum(rows * columns for rows, columns in self.groups)
        return size, size

    @property
    def dtype(self) -> jnp.dtype:
        return self.whole.dtype

    def mv(self, v: jax.Array) -> jax.Array:
        rows = jnp.atleast_2d(jnp.asarray(v).T)
        return packed_product(self.operator, self.groups, rows).T.reshape(v.shape)

    def as_matrix(self) -> jax.Array:
        """The dense matrix (n, n), whose rows are the entries of the staircase, row after row."""
        lengths = np.repeat([c for _, c in self.groups], [r for r, _ in self.groups])
        d = self.operator.rights.shape[-1]
        inside = np.concatenate([row * d + np.arange(size) for row, size in enumerate(lengths)])
        matrix, _ = host_matrix(self.operator)
        whole = len(inside) == len(matrix)
        return jnp.asarray(matrix if whole else matrix[np.ix_(inside, inside)])

    def error(self, norm: float) -> Error:
        """The error of the restricted sum, with the evidence of the whole one's."""
        error = error_of(self.whole, norm).to(error_of(self.operator, norm).value)
        return error + LAPACK_ROUNDING if self.rotated else error


def reduce(op: SumOfKroneckers, factors: KroneckerFactors) -> OnRange:
    """G = sum_l A_l (x) B_l on a space that contains its range, of the size that the ranks allow.

    Its larger side, A or B, is put on the right, where the preconditioner works best: A (x) B and
    B (x) A have the same eigenvalues. The column spaces of the factors are nested, so that the
    first left rank and the last right rank are the smallest.
    """
    k, d = op.lefts.shape[-1], op.rights.shape[-1]
    if (min(factors.left_ranks[0], k), factors.right_ranks[-1]) == (k, d):  # the whole space
        if k <= d:
            return OnRange(op, op, ((k, d),))
        return OnRange(op, SumOfKroneckers(op.rights, op.lefts, op.stored_error), ((d, k),))
    if factors.left_ranks[-1] == 0 or factors.right_ranks[0] == 0:
        return OnRange(op, op, ())  # the sum is zero
    return _restricted(op, factors)


def _restricted(op: SumOfKroneckers, factors: KroneckerFactors) -> OnRange:
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
    return OnRange(op, operator, groups, stairs.left_rounding + stairs.right_rounding > 0)


def _padded_grams(factors: tuple[np.ndarray, ...]) -> np.ndarray:
    """F F^T of every factor F, with zeros behind so that all have one size: (L, size, size)."""
    size = max(len(f) for f in factors)
    grams = np.zeros((len(factors), size, size), factors[0].dtype)
    for gram, factor in zip(grams, factors, strict=True):
        gram[: len(factor), : len(factor)] = factor @ factor.T
    return grams
