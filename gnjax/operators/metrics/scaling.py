"""S = P^{-1/2} for a block diagonal metric P, from the eigenvectors and eigenvalues of its blocks.

S is stored in the precision of an operator, and P is defined as S^{-2}. It differs from the matrix
of an optimiser by the rounding of eigenvectors and eigenvalues, and S A S has no other error than
that of A and of products with S.
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
    """S = W diag(entries) W^T with W = U (x) V for every group g, on the parameters at ``own``.

    U (g, i, i) is ``left`` and V (g, o, o) is ``right``; None stands for the identity.
    """

    own: jax.Array  # (g, i, o)
    left: jax.Array | None
    right: jax.Array | None
    entries: jax.Array  # (g, i, o)

    @property
    def terms(self) -> int:
        """The lengths of all sums that one entry of a product goes through, added up."""
        _, i, o = self.own.shape
        return 2 * ((0 if self.left is None else i) + (0 if self.right is None else o)) + 1

    @cached_property
    def norms(self) -> tuple[float, float]:
        """A bound on ||S||, and ||S^{-1}|| up to the rounding of U and V."""
        entries = np.asarray(self.entries, np.float64)
        squared = math.prod(map(_squared_norm, (self.left, self.right)))  # of W
        return raised(float(entries.max()) * squared), squared / float(entries.min())

    def __call__(self, part: jax.Array) -> jax.Array:
        inside = _rotated(part, self.left, self.right, "gix,giob->gxob", "goy,giob->giyb")
        scaled = self.entries.astype(part.dtype)[..., None] * inside
        return _rotated(scaled, self.left, self.right, "gxi,giob->gxob", "gyo,giob->giyb")


def _squared_norm(basis: jax.Array | None) -> float:
    """A bound on ||U||^2 = ||U^T U|| <= 1 + ||U^T U - I||_F for all groups, rounding included."""
    if basis is None:
        return 1.0
    u = np.asarray(basis, np.float64)
    size = u.shape[1]
    distance = float(np.linalg.norm(u.swapaxes(1, 2) @ u - np.eye(size), axis=(1, 2)).max())
    return raised(1 + distance + gamma(size + 2, u.dtype) * size)


def _rotated(
    part: jax.Array, left: jax.Array | None, right: jax.Array | None, rows: str, columns: str
) -> jax.Array:
    for basis, rule in ((left, rows), (right, columns)):
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
        """The rounding of S v where S v has the given length."""
        terms = max(root.terms for root in self.roots)
        spread = self.norm * self.inverse if terms > 1 else 1.0
        return gamma(2 * terms + 4, dtype) * spread * length

    def __call__(self, v: jax.Array) -> jax.Array:
        """S v for a vector (p,) or a block of columns (p, b)."""
        return _image(self.roots, v)


@jax.jit
def _image(roots: tuple[Root, ...], v: jax.Array) -> jax.Array:
    columns = v.reshape(len(v), -1)
    image = jnp.zeros_like(columns)
    for root in roots:
        image = image.at[root.own].set(root(columns[root.own]))
    return image.reshape(v.shape)
