"""Exact reductions of the data and widths of a linear network for gradient descent (paper B).

The loss of f(x) = W x, W = W_L .. W_1, depends on the samples through two moments (Eq 2):

    1/2n sum_i |W x_i - y_i|^2 = tr(W C W^T) / 2 - <W, B> + |Y|^2 / 2n,
    C = 1/n sum_i x_i x_i^T,  B = 1/n sum_i y_i x_i^T.

The gradient is S_l^T (W C - B) P_l^T with P_l = W_{l-1} .. W_1 and S_l = W_L .. W_{l+1}, so that
W_l never leaves the span of its start and B. Each reduction here is an exact change of coordinates,
W_l = U_l w_l U_{l-1}^T with orthonormal columns, onto such spans:

- ``principal_axes``, for any data: U_0 the eigenvectors of C, which becomes a diagonal.
- ``row_space``, for C = c I: U_0 spans the rows of B and of W_1; 784 inputs become k + m.
- ``core``, for any data: U_l spans the columns of W_l and the rows of W_{l+1}; the hidden widths of
  balanced weights become their rank.

The largest eigenvalue of the Hessian is that of the reduced problem. The directions that a
reduction leaves out form blocks of the Hessian of their own, whose largest eigenvalue is never
larger. With E = W C - B:

- Inputs outside ``row_space``: only W_1 may move along them, with the Hessian S_1^T S_1 (x) c I.
  That is the block of W_1 for the inputs that stay.
- Hidden units outside ``core``: f is linear in each W_l, and for a column a in W_{l+1} and a row b
  in W_l there is left <E, S_{l+1} a b P_l>. A unit that stays has this and its part of G >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from gnjax.numerics.host import on_device

Weights = Sequence[jax.Array]  # W_1 .. W_L, W_l of shape (a_l, a_{l-1})
_Array = NDArray[np.float64]

_SPANNED = 1e-12  # the part of weights that may be outside of their span by rounding


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """C (d, d), or its diagonal (d,) in the principal axes; B (k, d); |Y|^2 / 2n."""

    covariance: jax.Array
    cross: jax.Array
    energy: jax.Array


class ReducedProblem(NamedTuple):
    """Weights w_l and moments in the coordinates of bases U_0 .. U_L (None: the identity)."""

    weights: list[jax.Array]
    data: Moments
    bases: tuple[jax.Array | None, ...]


def moments(x: ArrayLike, y: ArrayLike) -> Moments:
    """C = x^T x / n, B = y^T x / n and |y|^2 / 2n for inputs x (n, d) and targets y (n, k)."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not len(x):
        msg = f"x has shape {x.shape} and y {y.shape}; give (n, d) and (n, k), n >= 1"
        raise ValueError(msg)
    n = len(x)
    return Moments(
        on_device(x.T @ x / n), on_device(y.T @ x / n), on_device((y**2).sum() / (2 * n))
    )


def end_to_end(weights: Weights) -> jax.Array:
    """The map W_L .. W_1 (k, d), multiplied from the outputs on, because these are few."""
    w = weights[-1]
    for layer in reversed(weights[:-1]):
        w = w @ layer
    return w


def loss(weights: Weights, data: Moments) -> jax.Array:
    """The squared error of f(x) = W x from the moments: tr(W C W^T) / 2 - <W, B> + |Y|^2 / 2n.

    Differentiated in reverse, it multiplies the gradient from the output side as well.
    """
    w, c = end_to_end(weights), data.covariance
    weighed = w * c[None, :] if c.ndim == 1 else w @ c
    return jnp.vdot(w, weighed / 2 - data.cross) + data.energy


def floor(data: Moments) -> float:
    """The smallest loss of any W, |Y|^2 / 2n - tr(B C^+ B^T) / 2, the least-squares optimum.

    Eigenvalues of C that are rounding count as zero in C^+.
    """
    values, vectors = axes(data.covariance)
    nonzero = values > len(values) * np.finfo(np.float64).eps * values.max()
    explained = (np.asarray(data.cross) @ vectors[:, nonzero]) ** 2 / values[nonzero]
    return float(data.energy) - float(explained.sum()) / 2


def axes(covariance: jax.Array) -> tuple[_Array, _Array]:
    """Eigenvalues (not below zero) and eigenvectors of C, given whole or by its diagonal."""
    c = np.asarray(covariance)
    values, vectors = (c, np.eye(len(c))) if c.ndim == 1 else np.linalg.eigh(c)
    return np.maximum(values, 0.0), vectors


def principal_axes(weights: Weights, data: Moments) -> ReducedProblem:
    """Rotate the inputs to the eigenvectors of C, so that C becomes diagonal."""
    values, vectors = axes(data.covariance)
    return _rotated(weights, data, on_device(values), vectors)


def row_space(weights: Weights, data: Moments) -> ReducedProblem:
    """Reduce the inputs to the min(d, k + m) directions of the rows of B and W_1, for C = c I.

    Gradient descent moves W_1 (m, d) by a multiple of S_1^T (c W - B), whose rows are combinations
    of those of W_1 and of B (k, d), so that it never leaves their span.
    """
    variance = _isotropic(data.covariance)
    rows = np.concatenate([np.asarray(data.cross), np.asarray(weights[0])])
    basis = np.linalg.qr(rows.T)[0]  # spans the rows also where they are dependent
    return _rotated(weights, data, on_device(np.full(basis.shape[1], variance)), basis)


def _isotropic(covariance: jax.Array) -> float:
    """c of a covariance C = c I, given whole or by its diagonal; any other C is refused."""
    c = np.asarray(covariance)
    c = np.diag(c) if c.ndim == 1 else c
    variance = float(np.trace(c) / len(c))
    deviation = float(np.abs(c - variance * np.eye(len(c))).max())
    if not deviation <= 1e-8 * variance:
        msg = (
            f"the covariance is not a multiple of the identity (off by {deviation:.1e}); "
            "orthogonalise the inputs, or use principal_axes"
        )
        raise ValueError(msg)
    return variance


def _rotated(
    weights: Weights, data: Moments, covariance: jax.Array, basis: _Array
) -> ReducedProblem:
    """The problem in new coordinates of the inputs, x = U_0 z for ``basis`` U_0 (d, r).

    ``covariance`` is C in the new coordinates, whole or its diagonal.
    """
    first, *later = weights
    inputs = on_device(basis)
    return ReducedProblem(
        [first @ inputs, *later],
        Moments(covariance, data.cross @ inputs, data.energy),
        (inputs, *[None] * len(weights)),
    )


def core(weights: Weights, data: Moments, rank: int) -> ReducedProblem:
    """Shrink every hidden width to ``rank``, in coordinates in which gradient descent is the same.

    If the columns of W_l and the rows of W_{l+1} lie in one space of that dimension, with the
    orthonormal basis U_l, they stay in it: W_l moves by a multiple of S_l^T E P_l^T, where S_l^T
    begins with W_{l+1}^T and P_{l+1} with W_l. The new weights are U_l^T W_l U_{l-1}. Strongly
    balanced weights of rank r (Assumption 3) allow ``rank`` r.
    """
    hidden_bases = [_span(after, before, rank) for before, after in pairwise(weights)]
    bases = (None, *hidden_bases, None)
    sides = zip(weights, bases, bases[1:], strict=False)
    return ReducedProblem([_inside(w, after, before) for w, before, after in sides], data, bases)


def _span(after: jax.Array, before: jax.Array, rank: int) -> jax.Array:
    """Orthonormal columns U (a, rank) that span those of ``before`` and the rows of ``after``.

    These are the layers before and after a hidden layer of width a; those that lie in no such space
    are refused.
    """
    vectors = np.concatenate([np.asarray(before), np.asarray(after).T], axis=1)
    basis = np.linalg.svd(vectors, full_matrices=False)[0][:, :rank]
    outside = float(np.linalg.norm(vectors - basis @ (basis.T @ vectors)))
    if not outside <= _SPANNED * float(np.linalg.norm(vectors)):
        msg = (
            f"a hidden layer of width {len(vectors)} uses more than rank={rank} dimensions "
            f"({outside:.1e} of its weights lie outside); give the rank of balanced weights"
        )
        raise ValueError(msg)
    return jnp.asarray(basis)


def _inside(w: jax.Array, after: jax.Array | None, before: jax.Array | None) -> jax.Array:
    """U_l^T W_l U_{l-1}."""
    w = w if after is None else after.T @ w
    return w if before is None else w @ before


def lift(weights: Weights, reduced: ReducedProblem) -> list[jax.Array]:
    """The weights w_l of a reduced problem in the original coordinates, W_l = U_l w_l U_{l-1}^T."""
    sides = zip(weights, reduced.bases, reduced.bases[1:], strict=False)
    return [
        _inside(w, None if after is None else after.T, None if before is None else before.T)
        for w, before, after in sides
    ]
