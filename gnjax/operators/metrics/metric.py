"""A metric P on the parameters of a network: a block diagonal matrix, and its inverse root.

P is the matrix of the numbers in its blocks as they are computed; the error of its inverse root is
part of what :mod:`gnjax.operators.metrics.scaling` states.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.host import on_device
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma, unit_roundoff
from gnjax.operators.metrics.factor import Factor
from gnjax.operators.metrics.scaling import (
    Bounds,
    KroneckerRoot,
    MatrixRoot,
    Root,
    Scaling,
)

_ROUNDINGS = 12  # roundings of a root, a quotient, a product and of storing them, and more
_SINGULAR = 1e-13  # relative to the largest eigenvalue, for each row


@dataclass(frozen=True)
class DiagonalBlock:
    """A block of P with these diagonal entries."""

    name: str
    own: np.ndarray  # (m,), places in the vector of parameters
    entries: np.ndarray  # (m,)

    def __str__(self) -> str:
        return f"exact diagonal of {self.name}" if self.name else "diagonal"

    def root(self, dtype: jnp.dtype, damping: float) -> Root:
        """1 / sqrt(P) entry by entry: root, quotient and storage each round once."""
        entries = self.entries + damping
        good = np.isfinite(entries) & (entries > 0)
        if not good.all():
            msg = (
                f"{int((~good).sum())} of the {len(entries)} diagonal entries of P are not "
                "positive numbers; pass damping=1e-8, or another number to add to all of them"
            )
            raise ValueError(msg)
        roots = 1 / np.sqrt(entries)
        eta = _ROUNDINGS * unit_roundoff(dtype)
        bounds = Bounds(eta, float(roots.max()), float(1 / roots.min()))
        own, stored = (array[None, :, None] for array in (self.own, roots))
        return KroneckerRoot(on_device(own), None, None, on_device(stored, dtype), bounds)

    def as_matrix(self) -> np.ndarray:
        return np.diag(self.entries)


@dataclass(frozen=True)
class MatrixBlock:
    """A block of P as a symmetric matrix."""

    name: str
    own: np.ndarray  # (m,)
    matrix: np.ndarray  # (m, m)

    def __str__(self) -> str:
        return f"exact block of {self.name}"

    def root(self, dtype: jnp.dtype, damping: float) -> Root:
        """S = (P + damping)^{-1/2}, with a bound on ||S (P + damping) S - I||."""
        size = len(self.own)
        matrix = self.matrix + damping * np.eye(size)
        values, vectors = np.linalg.eigh(matrix)
        _check_positive(values[0], values[-1], size)
        root = (vectors / np.sqrt(values)) @ vectors.T
        stored = on_device((root + root.T) / 2, dtype)
        s = np.asarray(stored, np.float64)
        off = float(np.linalg.norm(s @ matrix @ s - np.eye(size)))
        quotient = float(values[-1] / values[0])
        rounding = gamma(2 * size, np.dtype(np.float64)) * quotient**0.5 * size**0.5
        ends = float(values[0] ** -0.5), float(values[-1] ** 0.5)
        return MatrixRoot(on_device(self.own), stored, Bounds(raised(off + rounding), *ends))

    def as_matrix(self) -> np.ndarray:
        return self.matrix


@dataclass(frozen=True)
class KroneckerBlock:
    """A block of P with the eigenvectors U (x) V of two factors, for every group g.

    Attributes:
      name: the parameters that the block has, such as "dense1/kernel + dense1/bias".
      own: (g, i, o), where entry (i, o) of the matrix is in the vector of parameters.
      left: A with the eigenvectors U.
      right: B with the eigenvectors V.
      values: (g, i, o), the eigenvalues of the block in that basis.
      distance: a bound on the distance of the block from the matrix of these eigenvalues and
        eigenvectors; 0 where the block is that matrix by definition.
    """

    name: str
    own: np.ndarray
    left: Factor
    right: Factor
    values: np.ndarray
    distance: float = 0.0

    def __str__(self) -> str:
        groups, i, o = self.own.shape
        size = f"{i} x {o}" if groups == 1 else f"{groups} of {i} x {o}"
        return f"Kronecker block of {self.name} ({size})"

    def root(self, dtype: jnp.dtype, damping: float) -> Root:
        """W diag(values + damping)^{-1/2} W^T for the stored W = U (x) V.

        With the eigenvectors W_0 as they are in float64, C = W^T W_0 = I + F with ||F|| <= f, and
        M = diag(values + damping), P is W_0 M W_0^T up to a matrix of norm e, and

            S P S = W M^{-1/2} C M C^T M^{-1/2} W^T + S E S,
            ||M^{-1/2} C M C^T M^{-1/2} - I|| <= 2 f q + f^2 q^2,  q^2 = max M / min M.
        """
        damped = self.values + damping
        least, most = float(damped.min()), float(damped.max())
        _check_positive(least, most, int(np.prod(self.own.shape[1:])))
        u, v = self.left.stored(dtype), self.right.stored(dtype)
        f = u.distance + v.distance + u.distance * v.distance  # of C from the identity
        around = u.defect + v.defect + u.defect * v.defect  # of W W^T from the identity
        x = f * (most / least) ** 0.5
        inside = 2 * x + x * x
        norm2 = (1 + around) / least
        roundings = _ROUNDINGS * unit_roundoff(dtype)
        a, b = self.left.defect, self.right.defect
        exact = a + b + a * b  # of W_0 W_0^T from the identity
        from_decomposition = norm2 * (self.distance + damping * exact)
        eta = raised(around + (1 + around) * (inside + roundings) + from_decomposition)
        bounds = Bounds(eta, raised(norm2**0.5), most**0.5)
        entries = on_device(damped**-0.5, dtype)
        return KroneckerRoot(on_device(self.own), u.basis, v.basis, entries, bounds)

    def as_matrix(self) -> np.ndarray:
        """The block from its eigenvalues and eigenvectors, in the order of ``own``."""
        groups, i, o = self.own.shape
        matrix = np.zeros((groups, i, o, groups, i, o))
        left, right = self.left.eigenvectors, self.right.eigenvectors
        for g in range(groups):
            basis = np.einsum("ax,by->abxy", left[g], right[g]).reshape(i * o, i * o)
            group_matrix = (basis * self.values[g].ravel()) @ basis.T
            matrix[g, :, :, g] = group_matrix.reshape(i, o, i, o)
        return matrix.reshape(self.own.size, self.own.size)


def product_block(
    name: str, indices: np.ndarray, left: Factor, right: Factor, power: float = 1.0
) -> KroneckerBlock:
    """The block A^power (x) B^power, with a bound on the error of its eigendecomposition."""
    a, b = left.powered(power), right.powered(power)
    values = a.values[:, :, None] * b.values[:, None, :]
    rounding = _ROUNDINGS * unit_roundoff(values.dtype) * a.norm * b.norm
    distance = a.distance * (b.norm + b.distance) + a.norm * b.distance + rounding
    return KroneckerBlock(name, indices, left, right, values, raised(distance))


Block = DiagonalBlock | MatrixBlock | KroneckerBlock


@dataclass(frozen=True, repr=False)
class Metric:
    """A block diagonal metric P = blockdiag(P_1 ..) + damping I for :func:`preconditioned`.

    Attributes:
      kind: in words, such as "K-FAC".
      blocks: of P, without the damping; each has the ``name`` of its parameters, their places
        ``own`` in the vector of parameters, and ``as_matrix()``. A Kronecker block has its factors
        as ``left.matrix`` and ``right.matrix``.
      damping: what is added to the diagonal of P.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> metric = gnjax.metrics.kfac(gnjax.gauss_newton(model, np.ones((5, 3))), damping=1e-3)
    >>> [block.name for block in metric.blocks]
    ['dense1/kernel + dense1/bias', 'dense2/kernel + dense2/bias']
    """

    kind: str
    blocks: tuple[Block, ...]
    damping: float = 0.0

    def __repr__(self) -> str:
        parts = "; ".join(map(str, self.blocks))
        return f"<Metric: {self.kind}, damping {self.damping:g}; {parts}>"

    @property
    def parameters(self) -> int:
        """The size of P."""
        return sum(block.own.size for block in self.blocks)

    def scaling(self, dtype: jnp.dtype, damping: float = 0.0) -> Scaling:
        """P^{-1/2} in the precision ``dtype``, with ``damping`` in addition to that of P."""
        total = self.damping + damping
        return Scaling(tuple(block.root(dtype, total) for block in self.blocks))

    def solve(self, v: ArrayLike) -> jax.Array:
        """P^{-1} v for a vector (p,) or a block of columns (p, b): the optimiser's step.

        >>> model = lambda w, x: x @ w, np.ones((2, 1))
        >>> op = gnjax.gauss_newton(model, np.diag([1.0, 2.0]))
        >>> gnjax.metrics.kfac(op, damping=0.5).solve(np.ones(2))  # A = G = diag(0.5, 2)
        Array([1. , 0.4], dtype=float64)
        """
        columns = jnp.asarray(v)
        scaling = self.scaling(columns.dtype)
        return scaling(scaling(columns))

    def as_matrix(self) -> np.ndarray:
        """P (p, p)."""
        matrix = self.damping * np.eye(self.parameters)
        for block in self.blocks:
            indices = block.own.ravel()
            matrix[np.ix_(indices, indices)] += block.as_matrix()
        return matrix


def _check_positive(least: float, most: float, size: int) -> None:
    if not least > _SINGULAR * size * abs(most):
        msg = (
            f"a block of P with {size} parameters has the eigenvalue {least:.2g} and is not "
            f"positive definite; pass damping={max(1e-6 * most, 1e-12):.1g}, say"
        )
        raise ValueError(msg)
