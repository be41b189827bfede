"""Sums and multiples of operators, w_1 A_1 + .. + w_m A_m + s I, which are operators again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.outward import raised
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import gamma
from gnjax.numerics.scale import exponent_of, reach
from gnjax.numerics.validation import check_finite_number
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.facts import (
    Facts,
    Product,
    error_of,
    factorisation_of,
    facts_of,
    is_uneven,
    magnitude_of,
    positivity_of,
    rank_of,
    symmetry_of,
    twin_of,
)
from gnjax.operators.prepare import devices_of, prepared_product
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import ParameterTrees, check_real, takes_trees

_STREAM = 6271
_NORM_COLUMNS = 8
_NORM_STEPS = 10
_NORM_SAFETY = 1.5  # a factor, as subspace iteration approaches the norm from below
_SMALL = 64  # the norm of a matrix with at most so many rows is computed from the matrix


class Algebra:
    """The arithmetic of operators, as a base class for an operator of your own as well.

    It gives ``a * op``, ``op / a``, ``-op``, ``op1 + op2``, ``op1 - op2``, ``op + s`` (s times the
    identity: damping), ``op @ v``, a repr of one line, the matrix by ``np.asarray(op)``, and what
    scipy needs to take the operator.
    It asks for ``shape``, ``dtype``, ``mv`` and ``as_matrix`` alone.

    >>> class Ones(gnjax.Algebra):
    ...     '''The matrix of ones.'''
    ...     shape, dtype = (3, 3), np.dtype("float64")
    ...     def facts(self):
    ...         return gnjax.operators.Facts(symmetric=True, error=0.0)
    ...     def mv(self, v):
    ...         return 0 * v + v.sum(0)
    ...     def as_matrix(self):
    ...         return np.ones((3, 3))
    >>> damped = 2 * Ones() + 0.5
    >>> damped, (damped @ np.ones(3)).tolist()
    (<LinearCombination: 3 x 3, float64>, [6.5, 6.5, 6.5])
    """

    __array_ufunc__ = None  # numpy leaves ``array * op`` and ``array @ op`` to the operator
    __array_priority__ = 1000.0  # and so does scipy

    def __repr__(self: Operator) -> str:
        """One line: an operator may hold arrays of millions of numbers."""
        rows, columns = self.shape
        return f"<{type(self).__name__}: {rows} x {columns}, {jnp.dtype(self.dtype).name}>"

    def __array__(
        self: Operator, dtype: np.dtype | None = None, copy: bool | None = None
    ) -> np.ndarray:
        """The matrix, for ``np.asarray(op)``; refused where limits allow no matrix of its size."""
        rows = self.shape[0]
        if rows > LIMITS.matrix_rows:
            msg = (
                f"np.asarray of a {type(self).__name__} forms its {rows:,} x {rows:,} matrix of "
                f"{8e-9 * rows**2:.3g} GB, and limits allow {LIMITS.matrix_rows:,} rows; pass the "
                "operator itself to the functions of gnjax, multiply with op @ v, or call "
                "op.as_matrix() if the machine has the memory"
            )
            raise ValueError(msg)
        if copy is False:
            msg = "the matrix of an operator is a new array; leave out copy=False"
            raise ValueError(msg)
        return np.asarray(self.as_matrix(), dtype)

    def __mul__(self: Operator, factor: Any) -> LinearCombination:
        return _multiple(self, check_finite_number("the factor of an operator", factor))

    __rmul__ = __mul__

    def __truediv__(self: Operator, divisor: Any) -> LinearCombination:
        number = check_finite_number("the divisor of an operator", divisor)
        if number == 0:
            msg = "an operator cannot be divided by zero"
            raise ValueError(msg)
        return _multiple(self, 1 / number)

    def __neg__(self: Operator) -> LinearCombination:
        return _multiple(self, -1.0)

    def __add__(self: Operator, other: Any) -> LinearCombination:
        return _sum(self, other)

    __radd__ = __add__

    def __sub__(self: Operator, other: Any) -> LinearCombination:
        return -_sum(_multiple(self, -1.0), other)  # not -other: it wraps for unsigned

    def __rsub__(self: Operator, other: Any) -> LinearCombination:
        return _sum(_multiple(self, -1.0), other)

    def __matmul__(self: Operator, v: ArrayLike) -> jax.Array:
        """A v for a vector (n,) or a block of columns (n, b)."""
        return _product(self, v)

    def __rmatmul__(self: Operator, v: ArrayLike) -> jax.Array:
        """v A = (A v^T)^T, as A is symmetric."""
        return _product(self, jnp.asarray(v).T).T

    def matvec(self: Operator, v: ArrayLike) -> np.ndarray:
        """A v in host memory, as scipy asks for it."""
        return np.asarray(_product(self, v))

    rmatvec = matmat = rmatmat = matvec


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class LinearCombination(Algebra, ParameterTrees):
    """w_1 A_1 + .. + w_m A_m + s I for operators A_i of one size and numbers w_i and s.

    Its dtype is the narrowest of theirs: it knows its products no better than that.
    """

    terms: tuple[Operator, ...]
    weights: tuple[float, ...]
    shift: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0].shape

    @property
    def dtype(self) -> jnp.dtype:
        return max((term.dtype for term in self.terms), key=lambda dtype: jnp.finfo(dtype).eps)

    def facts(self) -> Facts:
        """What follows for sum_i w_i A_i + s I from the facts of the terms A_i.

        For A + s I ``unshifted`` has A itself, which has more structure than a sum. With a shift
        the rank is n, so that no cut-off has decided it.
        """
        stated = [facts_of(term) for term in self.terms]
        traces = [facts.trace for facts in stated if facts.trace]
        is_shifted_operator = len(self.terms) == 1 and float(self.weights[0]) == 1  # A + s I
        unshifted = self.terms[0] if is_shifted_operator else replace(self, shift=0.0)
        return Facts(
            error=self.error,
            rank=self._rank,
            assumed=not self.shift and any(facts.assumed for facts in stated),
            symmetric=all(facts.symmetric for facts in stated)
            and reduce(add, map(symmetry_of, self.terms)),
            positive=self._positive() or False,
            factor=self.factorisation,
            twin=self._twin,
            unshifted=(unshifted, float(self.shift)),
            trace=partial(self._trace, traces) if len(traces) == len(stated) else None,
            forms_cheaply=all(facts.forms_cheaply for facts in stated),
            formed_by_products=any(facts.formed_by_products for facts in stated),
            magnitude=self._magnitude,
            uneven=self._uneven,
            product=self._product,
            devices=lambda: next(filter(None, map(devices_of, self.terms)), ()),
            network=next(filter(None, (facts.network for facts in stated)), None),
        )

    def _positive(self) -> Error | None:
        """The evidence that the sum is positive semidefinite: that of all terms; None without."""
        evidence = [positivity_of(term) for term in self.terms]
        if float(self.shift) < 0 or min(map(float, self.weights)) < 0 or None in evidence:
            return None
        return reduce(add, filter(None, evidence))

    def _rank(self) -> RankBound:
        """A bound on the rank: rank(A + B) <= rank A + rank B, and n with a shift."""
        size = self.shape[0]
        weighted = zip(self.weights, self.terms, strict=True)
        rank = size if self.shift else sum(rank_of(term).value for w, term in weighted if w)
        if rank >= size:
            return RankBound(size)
        return RankBound(rank, reduce(add, (rank_of(term).evidence for term in self.terms)))

    def _magnitude(self) -> int | None:
        """The exponent e with 2^e near the norm of the largest term; None if all are zero."""
        exponents = [exponent_of(float(self.shift))]
        for weight, term in zip(self.weights, self.terms, strict=True):
            of_term, of_weight = magnitude_of(term)[0], exponent_of(float(weight))
            exponents.append(None if of_term is None or of_weight is None else of_term + of_weight)
        return max((exponent for exponent in exponents if exponent is not None), default=None)

    def _uneven(self) -> bool:
        """Whether an A_i has a norm, or is made of numbers, far from 1.

        The norm of the sum does not show that, as a weight may compensate for it.
        """
        exponents = [magnitude_of(term)[0] for term in self.terms]
        is_far = any(abs(exponent or 0) > reach(self.dtype) for exponent in exponents)
        return is_far or any(map(is_uneven, self.terms))

    def _twin(self) -> Operator:
        """The twin of the sum: w A' for a single term w A with w > 0 and the twin A' of A."""
        if len(self.terms) > 1 or self.shift or not float(self.weights[0]) > 0:
            return self
        twin = twin_of(self.terms[0])
        scaled = facts_of(twin).scaled
        if scaled is not None:
            return scaled(float(self.weights[0]))
        return self if twin is self.terms[0] else replace(self, terms=(twin,))

    def factorisation(self) -> Factorisation | None:
        """The factor F = [w_1^{1/2} J_1, .., w_m^{1/2} J_m] with F F^T = sum_i w_i A_i.

        None if a term A_i = J_i J_i^T states no factor, if a w_i is negative, or with a shift.
        """
        factors = [factorisation_of(term) for term in self.terms]
        factorisations = [factor for factor in factors if factor is not None]
        if self.shift or min(self.weights) < 0 or len(factorisations) < len(factors):
            return None
        roots = [float(w) ** 0.5 for w in self.weights]
        columns = sum(factor.shape[1] for factor in factorisations)
        pairs = list(zip(roots, factorisations, strict=True))

        @cache
        def form() -> np.ndarray:
            return np.concatenate([root * factor.form() for root, factor in pairs], axis=1)

        def error() -> Error:
            """The errors of all factors, and the rounding of the roots and of their products.

            A product with a root of 1 is exact.
            """
            total = sum((factor.error().scaled(root) for root, factor in pairs), Error(0.0))
            norm = float(np.linalg.norm(form())) if set(roots) != {1.0} else 0.0
            # Two roundings of an entry, that of its root and that of the product, and room.
            rounding = raised(gamma(4, np.dtype(float)) * norm)
            return total + Error(rounding, reason="rounding of a scaled factor")

        return Factorisation((self.shape[0], columns), form, error)

    def _trace(self, traces: list[Callable[[], tuple[float, Error]]]) -> tuple[float, Error]:
        """sum_i w_i tr A_i + n s, with the errors of the traces and the rounding of the sum.

        A sum of m products is wrong by at most gamma_m times the sum of their absolute values. That
        sum is rounded as well, which gamma_{m+2} covers.
        """
        terms = [(float(self.shift) * self.shape[0], Error(0.0))]
        for weight, trace in zip(self.weights, traces, strict=True):
            value, error = trace()
            terms.append((float(weight) * value, error.scaled(float(weight))))
        absolute_sum = sum(abs(value) for value, _ in terms)
        rounding = gamma(len(terms) + 2, np.dtype(float)) * absolute_sum
        total = Error(rounding, reason="rounding of a sum")
        return sum(v for v, _ in terms), sum((error for _, error in terms), total)

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """sum_i w_i A_i v + s v, each A_i v in the precision of A_i."""
        return self.combined([term.mv(on_device(v, term.dtype)) for term in self.terms], v)

    def _product(self) -> Product:
        """v -> A v for many products, from the fastest products of the terms."""
        products = [prepared_product(term) for term in self.terms]
        return lambda v: self.combined([product(v) for product in products], v)

    def as_matrix(self) -> jax.Array:
        """sum_i w_i A_i + s I from the matrices of the terms."""
        matrices = [term.as_matrix() for term in self.terms]
        return _combined(self.dtype, self.weights, matrices, self.shift, None)

    def combined(self, images: list[jax.Array], v: jax.Array) -> jax.Array:
        """sum_i w_i (A_i v) + s v from the images A_i v."""
        return _combined(self.dtype, self.weights, images, self.shift, v)

    def error(self, norm: float) -> Error:
        """sum_i |w_i| times the error of A_i, and the rounding of the sum.

        Rounding changes each entry of a term by a relative error of at most gamma, and so the term
        by at most gamma times its Frobenius norm, which is at most n^{1/2} times its 2-norm.
        """
        total, norms = Error(0.0), [abs(float(self.shift))]  # the norms of all terms
        positive = self._positive()
        if len(self.terms) > 1 and positive is not None:
            total += positive  # on which the norms of the terms rest, see _norms
        for weight, term, size in zip(self.weights, self.terms, self._norms(norm), strict=True):
            if weight:
                total += error_of(term, size).scaled(float(weight))
                norms.append(abs(float(weight)) * size)
        share = gamma(len(norms) + 4, self.dtype) * self.shape[0] ** 0.5
        return total + Error(raised(share * sum(norms)), reason="rounding of a sum of operators")

    def _norms(self, norm: float) -> list[float]:
        """A number for each ||A_i||_2 that is not much below it; ``norm`` is that of the whole sum.

        If all terms w_i A_i are semidefinite, the norm of sum_i w_i A_i is at least that of each
        term, and at most ||sum_i w_i A_i + s I|| + |s|. In any other sum terms can cancel, so their
        norms are computed from their own products.
        """
        is_semidefinite = self._positive() is not None  # the evidence that every term is so
        if len(self.terms) == 1 or is_semidefinite:
            norm_of_terms = abs(float(norm)) + abs(float(self.shift))
            return [norm_of_terms / abs(float(w)) if w else 0.0 for w in self.weights]
        return [_norm(term) for term in self.terms]


@partial(jax.jit, static_argnums=0)
def _combined(
    dtype: jnp.dtype, weights: tuple[float, ...], images: list[Any], shift: float, v: Any
) -> jax.Array:
    """sum_i w_i image_i + s v for the images A_i v; where v is None, the images are the A_i."""
    block = jnp.eye(len(images[0]), dtype=dtype) if v is None else jnp.asarray(v, dtype)
    total = jnp.asarray(shift, dtype) * block
    for weight, image in zip(weights, images, strict=True):
        total += jnp.asarray(weight, dtype) * jnp.asarray(image, dtype)
    return total


def _product(op: Operator, v: Any) -> jax.Array:
    """A v for a vector or a block of columns; refuses operators and trees."""
    if isinstance(v, Operator):
        msg = (
            "the product of two operators is not symmetric in general, so that it is no operator; "
            "multiply vectors one after the other: op1 @ (op2 @ v)"
        )
        raise ValueError(msg)
    has_only_numbers = isinstance(v, list | tuple) and not any(map(np.ndim, jax.tree.leaves(v)))
    if not jax.tree_util.all_leaves([v]) and not has_only_numbers:
        msg = "op @ v is for arrays; op.mv(tree) multiplies a tree like the parameters of a network"
        raise ValueError(msg)
    columns = v if isinstance(v, np.ndarray) else jnp.asarray(v)
    size = op.shape[0]
    if columns.ndim not in (1, 2) or columns.shape[0] != size:
        msg = (
            f"an operator of shape {op.shape} multiplies vectors ({size},) and blocks of columns "
            f"({size}, b), got shape {columns.shape}"
        )
        raise ValueError(msg)
    check_real(columns)
    return op.mv(on_device(columns, op.dtype))


def _multiple(op: Operator, factor: float) -> LinearCombination:
    """``factor`` times A; the multiple of a combination is one of the same terms."""
    if isinstance(op, LinearCombination):
        weights = tuple(factor * weight for weight in op.weights)
        return LinearCombination(op.terms, weights, factor * op.shift)
    return LinearCombination((op,), (factor,))


def _sum(op: Operator, other: Any) -> LinearCombination:
    """A + B, or A + s I for a number s, for A = ``op`` and B or s = ``other``."""
    first = _multiple(op, 1.0)  # A as a combination, of one term or of its own terms
    if not isinstance(other, Operator):
        if np.ndim(other):
            is_array = hasattr(other, "__array__") or isinstance(other, list | tuple)
            msg = (
                "an operator adds operators and numbers (a number s is s times the identity), got "
                f"a matrix of shape {np.shape(other)}; write op + "
                f"gnjax.{'dense' if is_array else 'as_operator'}(matrix)"
            )
            raise ValueError(msg)
        number = check_finite_number("what is added to an operator", other)
        return replace(first, shift=first.shift + number)
    if tuple(op.shape) != tuple(other.shape):
        msg = f"operators of one shape can be added, got {op.shape} and {other.shape}"
        raise ValueError(msg)
    second = _multiple(other, 1.0)
    terms = (*first.terms, *second.terms)
    weights = (*first.weights, *second.weights)
    return LinearCombination(terms, weights, first.shift + second.shift)


def _norm(op: Operator) -> float:
    """An estimate of ||A||_2, hardly ever more than a few per cent too small.

    It is exact for a small matrix. Otherwise it is found by subspace iteration from random columns:
    for orthonormal columns Q, ||A Q|| approaches ||A|| from below, and it is multiplied by a factor
    of safety. ||Q^T A Q|| would stay far below ||A|| where eigenvalues of both signs balance.
    """
    size = op.shape[0]
    if size <= _SMALL:
        return float(np.linalg.norm(np.asarray(op.as_matrix(), float), 2))
    columns = np.random.default_rng(_STREAM).standard_normal((size, _NORM_COLUMNS))
    for _ in range(_NORM_STEPS):
        columns = np.linalg.qr(columns)[0]
        columns = np.asarray(op.mv(on_device(columns, op.dtype)), float)  # A Q
    return _NORM_SAFETY * float(np.linalg.norm(columns, 2))
