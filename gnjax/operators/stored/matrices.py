"""Stored matrices M and J J^T as operators, with the facts that they state.

Every operator here is a frozen pytree, so it passes through ``jax.jit`` as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import PROVED, Error
from gnjax.numerics.host import by_numpy, on_cpu, on_device, times
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import (
    conversion_error,
    frobenius_norm,
    raised,
    stored_bound,
    symmetric_part,
    underflow,
)
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import gamma
from gnjax.numerics.scale import largest_exponent
from gnjax.numerics.validation import check_matrix, check_symmetric_matrix
from gnjax.operators.algebra import Algebra
from gnjax.operators.factorisation import Factorisation, gram_error, rows_in_parts
from gnjax.operators.facts import STATED_RANK, Facts
from gnjax.operators.stored.diagonal import trace_of_diagonal

ASYMMETRY = 1e-6  # relative to the largest entry: more than rounding in float32
_ROWS = 1024  # of a factor on an accelerator, which are read at once and stay there


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Dense(Algebra):
    """The symmetric matrix ``matrix``, stored, up to ``stored_error`` in the 2-norm.

    >>> op = gnjax.dense([[2.0, 1.0], [1.0, 2.0]])
    >>> op.mv(np.array([1.0, 0.0])).tolist()
    [2.0, 1.0]
    """

    matrix: jax.Array
    stored_error: jax.Array
    evidence: str = field(default=PROVED, metadata={"static": True})
    failure: float = field(default=0.0, metadata={"static": True})
    assumed: bool = field(default=False, metadata={"static": True})  # its rank was cut off
    reason: str = field(default="rounding of a stored matrix", metadata={"static": True})

    def facts(self) -> Facts:
        """What is known about a stored matrix."""
        return Facts(
            error=lambda _: Error(
                float(self.stored_error), self.evidence, self.failure, self.reason
            ),
            rank=partial(_filled_lines, self.matrix, self.stored_error),
            assumed=self.assumed,
            symmetric=True,
            trace=lambda: trace_of_diagonal(np.diagonal(np.asarray(self.matrix))),
            forms_cheaply=True,
            formed_by_products=False,
            magnitude=partial(largest_exponent, self.matrix),
            product=lambda: self.mv,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        return self.matrix.dtype

    @jax.jit
    def mv(self, v: jax.Array) -> jax.Array:
        return jnp.matmul(self.matrix, v, precision="highest")

    def as_matrix(self) -> jax.Array:
        return self.matrix


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Factored(Algebra):
    """J J^T for a factor J (n, p); extreme eigenvalues come from singular values of J.

    ``stored_error`` bounds ||stored - J||_2; ``evidence`` and ``failure`` say how that is known.

    >>> op = gnjax.factored([[1.0, 2.0], [2.0, 4.0], [0.0, 1.0]])
    >>> op.shape, op.facts().rank().value
    ((3, 3), 2)
    """

    factor: jax.Array
    stored_error: jax.Array
    evidence: str = field(default=PROVED, metadata={"static": True})
    failure: float = field(default=0.0, metadata={"static": True})
    assumed: bool = field(default=False, metadata={"static": True})  # a rank was cut off
    reason: str = field(default="rounding of a stored factor", metadata={"static": True})

    def facts(self) -> Facts:
        """What is known about J J^T for a stored J; its twin is J^T J where that is smaller."""
        rows, columns = self.factor.shape
        return Facts(
            error=self._error,
            rank=partial(_filled_lines, self.factor, self.stored_error),
            assumed=self.assumed,
            symmetric=True,
            factor=self._factorisation,
            twin=lambda: (
                self
                if rows <= columns
                else replace(self, factor=on_device(by_numpy(self.factor).T))
            ),
            trace=self._trace,
            forms_cheaply=True,
            formed_by_products=False,
            forming_work=lambda: rows**2 * columns / 2,
            magnitude=self._magnitude,
            product=lambda: self.mv,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.factor.shape[0], self.factor.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        return self.factor.dtype

    @jax.jit
    def mv(self, v: jax.Array) -> jax.Array:
        """J J^T v."""
        pulled_back = jnp.matmul(self.factor.T, v, precision="highest")
        return jnp.matmul(self.factor, pulled_back, precision="highest")

    def as_matrix(self) -> jax.Array:
        """J J^T."""
        return times(self.factor, self.factor, transposed=True)

    def _magnitude(self) -> int | None:
        """The exponent of the square of the largest entry of J, near ||J J^T||; None for zeros."""
        exponent = largest_exponent(self.factor)
        return None if exponent is None else 2 * exponent

    def _trace(self) -> tuple[float, Error]:
        """tr J J^T = ||J||_F^2, and the rounding of this sum."""
        squares = np.asarray(self.factor, np.float64) ** 2
        value = float(squares.sum())
        rounding = gamma(squares.size + 2, jnp.dtype(jnp.float64)) * value
        return value, Error(rounding, reason="rounding of a sum")

    def _factorisation(self) -> Factorisation:
        """The stored J as the factor of J J^T: formed in host memory, in float64.

        Some rows at a time are slices on the accelerator, if J is there and in float64 already.
        """
        rows, columns = self.factor.shape
        stays_on_device = not on_cpu(self.factor) and self.dtype == np.float64
        return Factorisation(
            (rows, columns),
            lambda: np.asarray(self.factor, np.float64),
            self._factor_error,
            (lambda: rows_in_parts(self.factor, _ROWS)) if stays_on_device else None,
        )

    def _factor_error(self) -> Error:
        """The bound on ||stored J - J||_2."""
        return Error(float(self.stored_error), self.evidence, self.failure, self.reason)

    def _error(self, norm: float) -> Error:
        """The error of J J^T from that of J, and from the rounding of the product.

        Each entry of J J^T is a sum of p terms for J (n, p), so that the rounding is at most
        gamma_p |J| |J|^T, whose norm is at most ||J||_F^2.
        """
        rows, columns = self.factor.shape
        norm_of_factor = frobenius_norm(self.factor)
        squared = raised(norm_of_factor * norm_of_factor)
        rounding = gamma(columns + 2, self.dtype) * squared
        if norm_of_factor:  # products of zeros do not underflow
            rounding += underflow(columns, rows * rows, self.dtype)
        product = Error(raised(rounding), PROVED, 0.0, "rounding of J J^T")
        return gram_error(max(norm, squared), self._factor_error()) + product


def _filled_lines(matrix: jax.Array, error: jax.Array) -> RankBound:
    """A bound on the rank: the number of rows or of columns that are not zero, whichever is less.

    With an ``error`` above 0 a zero may stand for another number, so that all count.
    """
    filled = min(matrix.shape)
    if not float(error):
        host = np.asarray(matrix)
        filled = min(int(np.any(host, axis=axis).sum()) for axis in (0, 1))
    return RankBound(filled, STATED_RANK)


def dense(matrix: ArrayLike, *, error: Error | None = None, limits: Limits = LIMITS) -> Dense:
    """The operator of a symmetric matrix; of (M + M^T) / 2 where M is symmetric up to rounding.

    Refuses what is not square, real, finite and symmetric to a millionth of its largest entry, and
    what has more than ``limits.matrix_rows`` rows. ``error`` bounds, in the 2-norm, how far the
    matrix as given is from the one that is meant.

    >>> op = gnjax.dense([[2.0, 1.0], [1.0, 2.0]])
    >>> print(gnjax.condition_number(op))
    kappa = 3 in [3, 3] (rank 2 of 2, full; dense, measured)
    """
    shape = getattr(matrix, "shape", ())
    rows = max(shape, default=0)
    if len(shape) == 2 and rows > limits.matrix_rows:  # before it is copied or looked at
        msg = (
            f"a matrix of {rows:,} rows needs {8e-9 * rows**2:,.0f} GB in float64, and limits "
            f"allow {limits.matrix_rows:,} rows; pass limits=gnjax.Limits(matrix_rows={rows:_}) if "
            "the machine has the memory, or an operator that multiplies without a matrix"
        )
        raise ValueError(msg)
    array = check_matrix("matrix", matrix)
    if array.shape[0] != array.shape[1]:
        msg = (
            f"an operator needs a square matrix, got shape {array.shape}; of a Jacobian J pass "
            "J @ J.T or J.T @ J"
        )
        raise ValueError(msg)
    check_symmetric_matrix("matrix", array, ASYMMETRY)
    part, rounding = symmetric_part(matrix, array)
    if error is None:
        return Dense(part, stored_bound(rounding, part.dtype))
    total = error + Error(rounding)
    bound = stored_bound(raised(total.value), part.dtype)
    return Dense(part, bound, total.kind, total.failure, reason=total.reason)


def factored(factor: ArrayLike, *, error: Error | None = None) -> Factored:
    """The operator J J^T of a factor J (n, p).

    ``error`` bounds, in the 2-norm, how far the factor as given is from the J that is meant.

    >>> factor = np.diag(10.0 ** -np.arange(12))  # the eigenvalues are its squares
    >>> kappa = gnjax.condition_number(gnjax.factored(factor))
    >>> kappa.resolved, round(kappa.log10, 6)
    (True, 22.0)
    """
    array = check_matrix("factor", factor)
    rounding = conversion_error(factor, array)
    if error is None:
        return Factored(array, stored_bound(rounding, array.dtype))
    total = error + Error(rounding)
    sum_of_both = raised(total.value) if rounding else total.value  # above the sum's own rounding
    bound = stored_bound(sum_of_both, array.dtype)
    return Factored(array, bound, total.kind, total.failure, reason=total.reason)
