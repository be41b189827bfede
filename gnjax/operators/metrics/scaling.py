"""S = P^{-1/2} for a block diagonal metric P, from the eigenvectors and eigenvalues of its blocks.

P is defined as S^{-2} for the S that is stored. It differs from the matrix of an optimiser by
rounding, and S A S has no other error than that of A and of products with S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Root:
    """A block of S = P^{-1/2}: W diag(entries) W^T with W = U (x) V, for each of g groups.

    Its parameters are at the ``indices`` of the vector. U (g, i, i) is ``left`` and V (g, o, o) is
    ``right``; None stands for the identity.
    """

    indices: jax.Array  # (g, i, o)
    left: jax.Array | None
    right: jax.Array | None
    entries: jax.Array  # (g, i, o)

    @property
    def terms(self) -> int:
        """How many terms the sums have that make one entry of S v = W diag(entries) W^T v.

        Products with W = U (x) V and with W^T have sums over i for U, and over o for V.
        """
        _, i, o = self.indices.shape
        return 2 * ((0 if self.left is None else i) + (0 if self.right is None else o)) + 1

    @cached_property
    def norms(self) -> tuple[float, float]:
        """A bound on ||S_b|| for this block S_b of S, and ||S_b^{-1}|| up to rounding of U and V.

        U and V are orthogonal only up to rounding, and ||S_b|| <= ||W||^2 max(entries).
        """
        entries = np.asarray(self.entries, np.float64)
        squared_norm_of_w = math.prod(map(_squared_norm, (self.left, self.right)))
        bound = raised(float(entries.max()) * squared_norm_of_w)
        return bound, squared_norm_of_w / float(entries.min())

    def __call__(self, v: jax.Array) -> jax.Array:
        """W diag(entries) W^T v for b columns v (g, i, o, b) of the block's own parameters."""
        in_basis = _rotated(v, self.left, self.right, "gix,giob->gxob", "goy,giob->giyb")  # W^T v
        scaled = self.entries.astype(v.dtype)[..., None] * in_basis
        return _rotated(scaled, self.left, self.right, "gxi,giob->gxob", "gyo,giob->giyb")


def _squared_norm(basis: jax.Array | np.ndarray | None) -> float:
    """A bound on ||U||_2^2 = ||U^T U||_2 <= 1 + ||U^T U - I||_F for all groups of U (g, m, m).

    The rounding of the product U^T U is included: each of its entries is a sum of m terms.
    """
    if basis is None:
        return 1.0
    u = np.asarray(basis, np.float64)
    size = u.shape[1]
    distance = float(np.linalg.norm(u.swapaxes(1, 2) @ u - np.eye(size), axis=(1, 2)).max())
    return raised(1 + distance + gamma(size + 2, u.dtype) * size)


def orthogonality(*bases: np.ndarray | None) -> float:
    """A bound on ||W^T W - I||_2 for W = U (x) V and the stored U and V, None for the identity.

    The eigenvalues of W^T W are products of those of U^T U and V^T V.
    """
    return raised(math.prod(map(_squared_norm, bases)) - 1)


def _rotated(
    part: jax.Array,
    left: jax.Array | None,
    right: jax.Array | None,
    left_rule: str,
    right_rule: str,
) -> jax.Array:
    """``part`` (g, i, o, b) multiplied along i by U = ``left``, and along o by V = ``right``.

    The rules are those of ``einsum``, for U and V or for their transposes.
    """
    for basis, rule in ((left, left_rule), (right, right_rule)):
        if basis is not None:
            part = jnp.einsum(rule, basis.astype(part.dtype), part, precision="highest")
    return part


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaling:
    """S = P^{-1/2}, block diagonal, from the roots of its blocks, which cover all parameters.

    ``norm`` is a bound on ||S|| and ``inverse`` about ||S^{-1}||.
    """

    roots: tuple[Root, ...]

    @property
    def norm(self) -> float:
        return max(root.norms[0] for root in self.roots)

    @property
    def inverse(self) -> float:
        return max(root.norms[1] for root in self.roots)

    def rounding(self, length: float, dtype: jnp.dtype) -> float:
        """A bound on the rounding of S v, where ``length`` is |S v|.

        It is at most gamma ||S|| |v|, and |v| <= ||S^{-1}|| |S v|, so that a factor kappa(S)
        arises, as terms cancel. Where S is diagonal nothing cancels.
        """
        terms = max(root.terms for root in self.roots)
        cancellation = self.norm * self.inverse if terms > 1 else 1.0  # kappa(S)
        return gamma(2 * terms + 4, dtype) * cancellation * length

    @jax.jit
    def __call__(self, v: jax.Array) -> jax.Array:
        """S v for a vector (p,) or a block of columns (p, b), block by block."""
        columns = v.reshape(len(v), -1)
        image = jnp.zeros_like(columns)
        for root in self.roots:
            image = image.at[root.indices].set(root(columns[root.indices]))
        return image.reshape(v.shape)
