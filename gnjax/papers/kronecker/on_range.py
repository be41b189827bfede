"""sum_l A_l (x) B_l on its range, as an operator whose size is the rank that structure allows."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.rounding import LAPACK_ROUNDING
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts, error_of
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.kronecker.packed import packed_product
from gnjax.papers.kronecker.reduced_sum import Reduced
from gnjax.spectra.whole import host_matrix


@dataclass(frozen=True, repr=False)
class OnRange(Algebra):
    """The matrix ``whole`` in the basis of the staircase ``reduced``, with its non-zero spectrum.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (6, 3, 5), "kaiming_normal")
    >>> op = gnjax.papers.linear_gauss_newton(weights)
    >>> op.shape, op.facts().on_range().shape
    ((30, 30), (24, 24))
    """

    whole: SumOfKroneckers
    reduced: Reduced

    def facts(self) -> Facts:
        return Facts(error=self.error, symmetric=True, forms_cheaply=True, formed_by_products=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.reduced.size, self.reduced.size

    @property
    def dtype(self) -> jnp.dtype:
        return self.whole.dtype

    def mv(self, v: jax.Array) -> jax.Array:
        rows = jnp.atleast_2d(jnp.asarray(v).T)
        return packed_product(self.reduced.operator, self.reduced.groups, rows).T.reshape(v.shape)

    def as_matrix(self) -> jax.Array:
        """The dense matrix (n, n), whose rows are the entries of the staircase, row after row."""
        groups, d = self.reduced.groups, self.reduced.operator.rights.shape[-1]
        lengths = np.repeat([columns for _, columns in groups], [rows for rows, _ in groups])
        inside = np.concatenate([row * d + np.arange(size) for row, size in enumerate(lengths)])
        matrix, _ = host_matrix(self.reduced.operator)
        whole = len(inside) == len(matrix)
        return jnp.asarray(matrix if whole else matrix[np.ix_(inside, inside)])

    def error(self, norm: float) -> Error:
        """The error of the restricted sum, with the evidence of the whole one's."""
        error_on_range = error_of(self.reduced.operator, norm).value
        error = error_of(self.whole, norm).to(error_on_range)
        return error + LAPACK_ROUNDING if self.reduced.rotated else error
