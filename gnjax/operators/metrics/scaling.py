"""S = P^{-1/2} for a block diagonal metric P, with a bound on how far S P S is from the identity.

S is computed, so that S P S = I + R with a small R. With eta >= ||R|| there is an orthogonal Q with
S P^{1/2} = Q H and ||H - I|| <= eta, so that S A S has the eigenvalues of H M H for the exact
M = P^{-1/2} A P^{-1/2}, and ||H M H - M|| <= (2 eta + eta^2) ||M||.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gnjax.numerics.rounding import gamma


class Bounds(NamedTuple):
    """Bounds for the root S of a block P: eta >= ||S P S - I||, and the norms."""

    eta: float
    norm: float  # of S
    inverse: float  # of S^{-1}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MatrixRoot:
    """S as a symmetric matrix, on the parameters at ``own`` (m,)."""

    own: jax.Array
    matrix: jax.Array  # (m, m)
    bounds: Bounds = field(metadata={"static": True})

    @property
    def terms(self) -> int:
        return len(self.own)

    def __call__(self, part: jax.Array) -> jax.Array:
        return jnp.matmul(self.matrix.astype(part.dtype), part, precision="highest")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KroneckerRoot:
    """S = (U (x) V) diag(entries) (U (x) V)^T for every group g, on the parameters at ``own``.

    U (g, i, i) has the eigenvectors of the left factor and V (g, o, o) those of the right one;
    None stands for the identity. With both None S is the diagonal matrix of the entries.
    """

    own: jax.Array  # (g, i, o)
    left: jax.Array | None
    right: jax.Array | None
    entries: jax.Array  # (g, i, o)
    bounds: Bounds = field(metadata={"static": True})

    @property
    def terms(self) -> int:
        """The lengths of all sums that one entry of a product goes through, added up."""
        _, i, o = self.own.shape
        return 2 * ((0 if self.left is None else i) + (0 if self.right is None else o)) + 1

    def __call__(self, part: jax.Array) -> jax.Array:
        inside = _rotated(part, self.left, self.right, "gix,giob->gxob", "goy,giob->giyb")
        scaled = self.entries.astype(part.dtype)[..., None] * inside
        return _rotated(scaled, self.left, self.right, "gxi,giob->gxob", "gyo,giob->giyb")


def _rotated(
    part: jax.Array, left: jax.Array | None, right: jax.Array | None, rows: str, columns: str
) -> jax.Array:
    for basis, rule in ((left, rows), (right, columns)):
        if basis is not None:
            part = jnp.einsum(rule, basis.astype(part.dtype), part, precision="highest")
    return part


Root = MatrixRoot | KroneckerRoot


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaling:
    """S = P^{-1/2}, block diagonal, from the roots of its blocks, which cover all parameters.

    ``eta`` bounds ||S P S - I||, ``norm`` is about ||S|| and ``inverse`` about ||S^{-1}||.
    """

    roots: tuple[Root, ...]

    @property
    def eta(self) -> float:
        return max(root.bounds.eta for root in self.roots)

    @property
    def norm(self) -> float:
        return max(root.bounds.norm for root in self.roots)

    @property
    def inverse(self) -> float:
        return max(root.bounds.inverse for root in self.roots)

    def rounding(self, length: float, dtype: jnp.dtype) -> float:
        """The rounding of S v where S v has the given length."""
        terms = max(root.terms for root in self.roots)
        spread = self.norm * self.inverse if terms > 1 else 1.0
        return gamma(2 * terms + 4, dtype) * spread * length

    def __call__(self, v: jax.Array) -> jax.Array:
        """S v for a vector (p,) or a block of columns (p, b)."""
        roots = tuple(replace(root, bounds=_UNSTATED) for root in self.roots)
        return _image(roots, v)


_UNSTATED = Bounds(0.0, 0.0, 0.0)  # so that one compiled product serves all roots of these shapes


@jax.jit
def _image(roots: tuple[Root, ...], v: jax.Array) -> jax.Array:
    columns = v.reshape(len(v), -1)
    image = jnp.zeros_like(columns)
    for root in roots:
        image = image.at[root.own].set(root(columns[root.own]))
    return image.reshape(v.shape)
