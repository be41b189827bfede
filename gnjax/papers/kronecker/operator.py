"""Sums of Kronecker products, sum_l A_l (x) B_l, as operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error
from gnjax.numerics.host import by_numpy, on_device, stacked
from gnjax.numerics.outward import (
    frobenius_norm,
    raised,
    stored_bound,
    symmetric_part,
    underflow,
)
from gnjax.numerics.rounding import gamma
from gnjax.numerics.scale import largest_exponent, reach
from gnjax.numerics.validation import check_matrix, check_symmetric_matrix
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts
from gnjax.operators.stored.matrices import ASYMMETRY


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class SumOfKroneckers(Algebra):
    """sum_l A_l (x) B_l with every A_l (k, k) and B_l (d, d) positive semidefinite (Eqs 4, 5).

    Not a Kronecker sum, which is A (x) I + I (x) B. A vector of length k d is a (k, d) matrix M row
    by row, on which the operator acts as M -> sum_l A_l M B_l.

    >>> lefts, rights = [np.eye(2), np.ones((2, 2))], [np.eye(3), np.ones((3, 3))]
    >>> op = gnjax.papers.sum_of_kroneckers(lefts, rights)
    >>> op.lefts.shape, op.rights.shape  # A_1, A_2 and B_1, B_2
    ((2, 2, 2), (2, 3, 3))
    """

    lefts: jax.Array  # (L, k, k)
    rights: jax.Array  # (L, d, d)
    stored_error: jax.Array | float

    def facts(self) -> Facts:
        """What is known of the operator: how it is multiplied and scaled, its error and trace."""
        return Facts(
            error=self.error,
            symmetric=True,
            scaled=self.scaled,
            trace=self._trace,
            forms_cheaply=True,
            formed_by_products=False,
            magnitude=self._magnitude,
            uneven=self._uneven,
            product=lambda: partial(_product, self.lefts, self.rights),
        )

    def _magnitude(self) -> int | None:
        """e with 2^e near the largest entry of a term A_l (x) B_l."""
        pairs = self._exponents()
        return max((a + b for a, b in pairs if a is not None and b is not None), default=None)

    def _uneven(self) -> bool:
        """Whether the scales of an A_l and of its B_l are far from 1, and undo each other."""
        return any(
            abs(side or 0) > reach(self.dtype) for term in self._exponents() for side in term
        )

    def _exponents(self) -> list[tuple[int | None, int | None]]:
        """e with 2^e near A_l, and the same for B_l, for every l; None for a matrix of zeros."""
        return [
            (largest_exponent(left), largest_exponent(right))
            for left, right in zip(self.lefts, self.rights, strict=True)
        ]

    def _trace(self) -> tuple[float, Error]:
        """The trace sum_l tr A_l tr B_l, and its rounding in float64."""
        sides = [np.asarray(side, np.float64) for side in (self.lefts, self.rights)]
        lefts, rights = (np.trace(side, axis1=1, axis2=2) for side in sides)
        outer, inner = (np.abs(np.diagonal(s, axis1=1, axis2=2)).sum(axis=1) for s in sides)
        terms = sum(side.shape[-1] for side in sides) + len(lefts) + 2
        rounding = gamma(terms, jnp.dtype(jnp.float64)) * float(outer @ inner)
        return float(lefts @ rights), Error(rounding, reason="rounding of a sum")

    def error(self, norm: float) -> Error:
        """||stored - exact||_2, with the rounding of the sum when it is formed."""
        del norm
        return Error(float(self.stored_error), reason="rounding of the terms")

    @property
    def shape(self) -> tuple[int, int]:
        size = self.lefts.shape[-1] * self.rights.shape[-1]
        return size, size

    @property
    def dtype(self) -> jnp.dtype:
        return self.rights.dtype

    def scaled(self, factor: float) -> SumOfKroneckers:
        """``factor`` times the operator, for a positive factor: it multiplies every B_l.

        The error grows in proportion, by the rounding of the factor and of its product with each
        entry (relative to sum_l ||A_l||_F ||B_l||_F), and by what underflows.
        """
        multiple = np.asarray(factor, self.dtype)
        rounding = gamma(2, self.dtype)
        pairs = zip(np.asarray(self.lefts), np.asarray(self.rights), strict=True)
        norms = [(frobenius_norm(left), frobenius_norm(right)) for left, right in pairs]
        size = sum(left * right for left, right in norms)
        error = factor * (float(self.stored_error) * (1 + rounding) + rounding * size)
        error += underflow(1, self.rights.size, self.dtype) * sum(left for left, _ in norms)
        return SumOfKroneckers(
            self.lefts,
            on_device(multiple * by_numpy(self.rights)),
            stored_bound(raised(error), self.dtype),
        )

    def mv(self, v: jax.Array) -> jax.Array:
        return _product(self.lefts, self.rights, v)

    def as_matrix(self) -> jax.Array:
        return _formed(self.lefts, self.rights)


@jax.jit
def _product(lefts: jax.Array, rights: jax.Array, v: jax.Array) -> jax.Array:
    """sum_l A_l (x) B_l on columns v (k d, b), or on one vector (k d,).

    All B_l are applied by one (L d, d) by (d, k b) product.
    """
    depth, k, _ = lefts.shape
    d = rights.shape[-1]
    columns = v.reshape(k, d, -1).transpose(1, 0, 2)  # (d, k, b)
    stacked_rights = rights.reshape(depth * d, d)
    images = jnp.matmul(stacked_rights, columns.reshape(d, -1), precision="highest")
    images = images.reshape(depth, d, k, -1)
    mixed = jnp.einsum("lij,ldjb->idb", lefts, images, precision="highest")
    return mixed.reshape(v.shape)


@jax.jit
def _formed(lefts: jax.Array, rights: jax.Array) -> jax.Array:
    size = lefts.shape[-1] * rights.shape[-1]
    matrix = jnp.einsum("lij,lpq->ipjq", lefts, rights, precision="highest")
    return matrix.reshape(size, size)


def product_rounding(op: SumOfKroneckers) -> float:
    """A bound on the rounding of one product of sum_l A_l (x) B_l with a unit vector.

    It is gamma_n sum_l ||A_l||_F ||B_l||_F for the n = L k + d terms that an entry sums.
    """
    depth, k, _ = op.lefts.shape
    terms = zip(np.asarray(op.lefts), np.asarray(op.rights), strict=True)
    norms = sum(frobenius_norm(left) * frobenius_norm(right) for left, right in terms)
    return raised(gamma(depth * k + op.rights.shape[-1], op.dtype) * norms)


def sum_of_kroneckers(lefts: Sequence[ArrayLike], rights: Sequence[ArrayLike]) -> SumOfKroneckers:
    """sum_l lefts[l] (x) rights[l] from symmetric positive semidefinite matrices.

    Its error bounds what storing them in the working precision rounds, and the sum. A matrix that
    is not quite symmetric stands for its symmetric part.

    >>> left, right = np.diag([2.0, 1.0]), np.diag([3.0, 2.0, 1.0])
    >>> op = gnjax.papers.sum_of_kroneckers([left, np.eye(2)], [right, np.eye(3)])
    >>> np.allclose(op.as_matrix(), np.kron(left, right) + np.eye(6))
    True
    """
    if len(lefts) != len(rights) or len(lefts) == 0:
        msg = f"one right for each left, at least one: got {len(lefts)} lefts, {len(rights)} rights"
        raise ValueError(msg)
    a, a_errors = _symmetric_terms("lefts", lefts)
    b, b_errors = _symmetric_terms("rights", rights)
    norms = [frobenius_norm(m) for m in a], [frobenius_norm(m) for m in b]
    error = sum_error(*norms, a_errors, b_errors, a[0].dtype)
    return SumOfKroneckers(stacked(a), stacked(b), stored_bound(error, a[0].dtype))


def _symmetric_terms(
    name: str, matrices: Sequence[ArrayLike]
) -> tuple[tuple[jax.Array, ...], tuple[float, ...]]:
    """The symmetric parts of ``matrices``, and how far each as stored is from the original's."""
    arrays = [check_matrix(name, matrix) for matrix in matrices]
    for matrix in arrays:
        if matrix.shape != arrays[0].shape or matrix.ndim != 2 or len(set(matrix.shape)) != 1:
            msg = f"{name} must be square matrices of one size, got {matrix.shape}"
            raise ValueError(msg)
        check_symmetric_matrix(name, matrix, ASYMMETRY)
    parts = [symmetric_part(m, array) for m, array in zip(matrices, arrays, strict=True)]
    return tuple(part for part, _ in parts), tuple(error for _, error in parts)


def sum_error(
    lefts: Sequence[float],
    rights: Sequence[float],
    left_errors: Sequence[float],
    right_errors: Sequence[float],
    dtype: jnp.dtype,
) -> float:
    """A bound on the error of sum_l A_l (x) B_l, from the norms and errors of stored A_l and B_l.

    With the Frobenius norms ``lefts`` and ``rights`` and the errors a_l and b_l, A_l (x) B_l moves
    by a_l ||B_l|| + (||A_l|| + a_l) b_l. To this comes the rounding of the terms and of their sum,
    which forming the matrix adds.
    """
    total = 0.0
    for left, right, a, b in zip(lefts, rights, left_errors, right_errors, strict=True):
        total += (left + a) * b + a * right + gamma(len(lefts) + 1, dtype) * left * right
    return raised(total)
