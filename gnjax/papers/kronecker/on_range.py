"""sum_l A_l (x) B_l on its range, as an operator whose size is the rank that structure allows."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gnjax.numerics.certificate import Error
from gnjax.numerics.rounding import LAPACK_ROUNDING
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts, error_of
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.kronecker.packed import packed_product
from gnjax.papers.kronecker.reduced_sum import Reduced, packed_matrix


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
        return jnp.asarray(packed_matrix(self.reduced))

    def error(self, norm: float) -> Error:
        """How far an eigenvalue can be from that of the exact matrix, for the 2-norm ``norm``.

        It is the error of the restricted sum, with the evidence of the whole one's. If the basis of
        the range came from singular vectors, LAPACK's rounding is a part of the evidence.
        """
        error_on_range = error_of(self.reduced.operator, norm).value
        error = error_of(self.whole, norm).to(error_on_range)
        return error + LAPACK_ROUNDING if self.reduced.rotated else error
