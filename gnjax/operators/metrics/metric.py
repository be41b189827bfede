"""A metric P on the parameters of a network: a block diagonal matrix, and its inverse root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import raised
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.numerics.scale import exponent_of
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts, Product
from gnjax.operators.metrics.scaling import Root, Scaling, orthogonality

SAID = Error(0.0, reason="the numbers that were given are those of P")
_EIGENVALUE_ROUNDING = 1e-13  # relative to the largest eigenvalue, for each row


@dataclass(frozen=True)
class Factor:
    """A symmetric matrix (m, m) for each of g groups, with its eigenvalues and eigenvectors.

    Attributes:
      matrix: (g, m, m), or the diagonals (g, m) of diagonal matrices.
      eigenvalues: (g, m).
      basis: the eigenvectors as columns (g, m, m); None where they are unit vectors.
    """

    matrix: np.ndarray
    eigenvalues: np.ndarray  # (g, m)
    basis: np.ndarray | None

    def stored_basis(self, dtype: jnp.dtype) -> jax.Array | None:
        """The eigenvectors (g, m, m) on the device in ``dtype``; None where they are unit ones."""
        return None if self.basis is None else on_device(self.basis, dtype)


def symmetric_factor(matrix: np.ndarray) -> Factor:
    """The factor of semidefinite matrices (g, m, m), or of diagonal ones with the entries (g, m).

    Eigenvalues that rounding has made negative are cut off.
    """
    if matrix.ndim == 2:
        return Factor(matrix, matrix, None)
    symmetric = (matrix + matrix.swapaxes(1, 2)) / 2
    values, basis = np.linalg.eigh(symmetric)
    return Factor(symmetric, values.clip(0), basis)


ONE = symmetric_factor(np.ones((1, 1)))


@dataclass(frozen=True)
class Block:
    """A block of P: the eigenvectors U (x) V of two factors, and eigenvalues, for every group g.

    Attributes:
      kind: in words, such as "Kronecker block of dense1/kernel + dense1/bias (4 x 3)".
      name: the parameters that the block has, such as "dense1/kernel + dense1/bias".
      indices: (g, i, o), where entry (i, o) of the matrix is in the vector of parameters.
      left: A with the eigenvectors U.
      right: B with the eigenvectors V.
      values: (g, i, o), the eigenvalues of the block in that basis.
    """

    kind: str
    name: str
    indices: np.ndarray
    left: Factor
    right: Factor
    values: np.ndarray

    def __str__(self) -> str:
        return self.kind

    def root(self, dtype: jnp.dtype, damping: float) -> Root:
        """W diag(values + damping)^{-1/2} W^T with W = U (x) V, in the precision ``dtype``.

        Refused is a block with an eigenvalue that is not positive, or not more than rounding.
        """
        damped = self.values + damping
        # An eigenvalue is computed with an error of about this constant times the rows of the block
        # times the largest eigenvalue. Those of a diagonal block are its entries, without an error.
        _, i, o = self.indices.shape
        rows = 0 if self._is_diagonal else i * o
        rounding = _EIGENVALUE_ROUNDING * rows * np.abs(damped).max()
        is_positive = np.isfinite(damped) & (damped > rounding)
        if not is_positive.all():
            # for the message: a millionth of the largest eigenvalue
            suggested = 1e-6 * float(np.abs(damped[np.isfinite(damped)]).max(initial=0)) or 1e-8
            msg = (
                f"P is not positive definite: {int((~is_positive).sum())} of the {damped.size} "
                f"eigenvalues of its {self.kind} are not positive numbers above rounding, the "
                f"least is {damped.min():.2g}; pass damping={suggested:.1g}, say"
            )
            raise ValueError(msg)
        return self.with_eigenvalues(dtype, damped**-0.5)

    def with_eigenvalues(self, dtype: jnp.dtype, values: np.ndarray) -> Root:
        """W diag(values) W^T with the eigenvectors of the block, in the precision ``dtype``."""
        bases = self.left.stored_basis(dtype), self.right.stored_basis(dtype)
        return Root(on_device(self.indices), *bases, on_device(values, dtype))

    def as_matrix(self) -> np.ndarray:
        """The block (g i o, g i o) in the order of ``indices``, zero between different groups."""
        if self._is_diagonal:
            return np.diag(self.values.ravel())
        groups, i, o = self.indices.shape
        matrix = np.zeros((groups, i, o, groups, i, o))
        for g in range(groups):
            left = np.eye(i) if self.left.basis is None else self.left.basis[g]
            right = np.eye(o) if self.right.basis is None else self.right.basis[g]
            basis = np.einsum("ax,by->abxy", left, right).reshape(i * o, i * o)
            group_matrix = (basis * self.values[g].ravel()) @ basis.T
            matrix[g, :, :, g] = group_matrix.reshape(i, o, i, o)
        return matrix.reshape(self.indices.size, self.indices.size)

    @property
    def _is_diagonal(self) -> bool:
        """Whether all eigenvectors are unit vectors."""
        return self.left.basis is None and self.right.basis is None


def diagonal_block(name: str, places: np.ndarray, entries: np.ndarray) -> Block:
    """The block with the diagonal ``entries`` (m,) of the parameters at ``places`` (m,).

    ``name`` are those parameters for messages, or "" for a diagonal of all.
    """
    # (1, m, 1): one group, as the Kronecker product of a matrix (m, m) and one (1, 1)
    kind = f"exact diagonal of {name}" if name else "diagonal"
    left = symmetric_factor(entries[None])
    return Block(kind, name, places[None, :, None], left, ONE, entries[None, :, None])


def matrix_block(name: str, places: np.ndarray, matrix: np.ndarray) -> Block:
    """The block that is a symmetric ``matrix`` (m, m) of the parameters at ``places`` (m,)."""
    values, basis = np.linalg.eigh(matrix)
    left = Factor(matrix[None], values[None], basis[None])
    indices = places[None, :, None]
    return Block(f"exact block of {name}", name, indices, left, ONE, values[None, :, None])


def kronecker_block(
    name: str,
    indices: np.ndarray,
    left: Factor,
    right: Factor,
    *,
    power: float = 1.0,
    values: np.ndarray | None = None,
) -> Block:
    """The block A^power (x) B^power, or one with its eigenvectors and eigenvalues of its own.

    Args:
      name: the parameters that the block has.
      indices: (g, i, o), the index in the vector of parameters of entry (i, o) of the weight matrix
        of each group; a layer without groups has g = 1.
      left: A (i, i) for each group, with its eigenvectors u_x.
      right: B (o, o) for each group, with its eigenvectors v_y.
      power: of A and of B.
      values: (g, x, y), the eigenvalue of the block for the eigenvector u_x (x) v_y, in place of
        the product of those of A and B.
    """
    if values is None:
        values = (left.eigenvalues[:, :, None] * right.eigenvalues[:, None, :]) ** power
    groups, i, o = indices.shape
    size = f"{i} x {o}" if groups == 1 else f"{groups} of {i} x {o}"
    return Block(f"Kronecker block of {name} ({size})", name, indices, left, right, values)


@dataclass(frozen=True, repr=False)
class Metric(Algebra):
    """A block diagonal metric P = blockdiag(P_1 ..) + damping I, which is an operator.

    It is for :func:`preconditioned`, and for all that takes an operator: ``P @ v``, traces, log
    determinants, eigenvalues (which are known without a computation), solves, sums. It is the
    matrix of the eigenvectors and eigenvalues that its blocks store.

    Attributes:
      kind: in words, such as "K-FAC".
      blocks: of P, without the damping; each has the ``name`` of its parameters, their
        ``indices`` in the vector of parameters, and ``as_matrix()``. A Kronecker block has its
        factors as ``left.matrix`` and ``right.matrix``.
      damping: what is added to the diagonal of P.
      evidence: what it rests on that these numbers are P, as an error of size 0 or an unknown one.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> metric = gnjax.metrics.kfac(gnjax.gauss_newton(model, np.ones((5, 3))), damping=1e-3)
    >>> [block.name for block in metric.blocks]
    ['dense1/kernel + dense1/bias', 'dense2/kernel + dense2/bias']
    >>> metric.shape, len(gnjax.eigenvalues(metric, k=3)), bool(gnjax.logdet(metric).value < 0)
    ((26, 26), 3, True)
    """

    kind: str
    blocks: tuple[Block, ...]
    damping: float = 0.0
    evidence: Error = SAID

    def __repr__(self) -> str:
        parts = "; ".join(block.kind for block in self.blocks)
        return f"<Metric: {self.kind}, damping {self.damping:g}; {parts}>"

    @property
    def parameters(self) -> int:
        """The size of P."""
        return sum(block.indices.size for block in self.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parameters, self.parameters

    @property
    def dtype(self) -> jnp.dtype:
        return real_dtype()

    def facts(self) -> Facts:
        """What the eigenvalues of all blocks say about P."""
        values = self._eigenvalues
        positive = Error(0.0, MEASURED, reason="the computed eigenvalues of its blocks")
        return Facts(
            error=self._error,
            rank=lambda: RankBound(int(np.count_nonzero(values)), positive),
            symmetric=True,
            positive=bool(values.min() >= 0) and positive,
            eigenvalues=lambda: (values, self._rounding_of_eigenvalues()),
            trace=self._trace,
            forms_cheaply=True,
            formed_by_products=False,
            magnitude=lambda: exponent_of(float(np.abs(values).max())),
            product=self._product,
            solve=self._solving,
        )

    @cached_property
    def _eigenvalues(self) -> np.ndarray:
        """All eigenvalues (p,) of P, block after block."""
        return np.concatenate([block.values.ravel() + self.damping for block in self.blocks])

    def _rounding_of_eigenvalues(self) -> Error:
        """How far the stored eigenvalues D are from those of W D W^T, and of the sum with s.

        W^T W is the identity up to e, so that each eigenvalue is that of D times a number between
        1 - e and 1 + e (Ostrowski).
        """
        of_sum = gamma(1, np.dtype(float)) * float(np.abs(self._eigenvalues).max())
        moved = [float(np.abs(b.values).max()) * orthogonality(*_bases(b)) for b in self.blocks]
        rounding = Error(
            raised(max(moved) + of_sum), reason="rounding of the eigenvectors of blocks"
        )
        return rounding + self.evidence

    def _error(self, norm: float) -> Error:
        """The rounding of the eigenvectors in the precision of products, and of their products."""
        del norm
        level = spectral_error(self.parameters, self.dtype) * float(np.abs(self._eigenvalues).max())
        rounding = Error(raised(level), MEASURED, reason="rounding of products with eigenvectors")
        return rounding + self.evidence

    def _trace(self) -> tuple[float, Error]:
        """The sum of the eigenvalues, with their errors and the rounding of the sum."""
        values = self._eigenvalues
        rounding = gamma(len(values) + 1, np.dtype(float)) * float(np.abs(values).sum())
        of_values = self._rounding_of_eigenvalues().scaled(len(values))
        return float(values.sum()), of_values + Error(raised(rounding), reason="rounding of a sum")

    def _product(self) -> Product:
        """v -> P v, with the eigenvectors in the working precision."""
        dtype = self.dtype
        return Scaling(
            tuple(
                block.with_eigenvalues(dtype, block.values + self.damping) for block in self.blocks
            )
        )

    def _solving(self, damping: float) -> Product:
        """v -> (P + damping I)^{-1} v, with the eigenvectors in the working precision."""
        root = self.scaling(self.dtype, damping)
        return lambda v: root(root(v))

    def mv(self, v: jax.Array) -> jax.Array:
        """P v for a vector (p,) or a block of columns (p, b)."""
        return self._product()(on_device(v, self.dtype))

    def scaling(self, dtype: jnp.dtype, damping: float = 0.0) -> Scaling:
        """P^{-1/2} in the precision ``dtype``, with ``damping`` in addition to that of P."""
        total = self.damping + damping
        return Scaling(tuple(block.root(dtype, total) for block in self.blocks))

    def solve(self, v: ArrayLike) -> jax.Array:
        """P^{-1} v for a vector (p,) or a block of columns (p, b): the optimiser's step.

        :func:`gnjax.solve` of a metric does the same, and adds the error.

        >>> model = lambda w, x: x @ w, np.ones((2, 1))
        >>> op = gnjax.gauss_newton(model, np.diag([1.0, 2.0]))
        >>> gnjax.metrics.kfac(op, damping=0.5).solve(np.ones(2))  # A = G = diag(0.5, 2)
        Array([1. , 0.4], dtype=float64)
        """
        columns = jnp.asarray(v)
        if columns.ndim not in (1, 2) or len(columns) != self.parameters:
            p = self.parameters
            msg = f"P ({p} x {p}) is solved for a vector ({p},) or columns ({p}, b), got an array "
            msg += f"of shape {columns.shape}"
            raise ValueError(msg)
        columns = columns.astype(jnp.result_type(float, columns.dtype))  # integers become floats
        scaling = self.scaling(columns.dtype)  # P^{-1/2}
        return scaling(scaling(columns))

    def as_matrix(self) -> np.ndarray:
        """P (p, p)."""
        matrix = self.damping * np.eye(self.parameters)
        for block in self.blocks:
            indices = block.indices.ravel()
            matrix[np.ix_(indices, indices)] += block.as_matrix()
        return matrix


def _bases(block: Block) -> Iterator[np.ndarray | None]:
    """The eigenvectors of both factors of a block."""
    return (factor.basis for factor in (block.left, block.right))
