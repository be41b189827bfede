"""Paper B: the Hessian spectrum of linear networks f(x) = W_L .. W_1 x under the squared error.

P_l = W_{l-1} .. W_1 and S_l = W_L .. W_{l+1}, without the data, which the paper's Eq 4 puts into
P_l and multiplies in again. Samples are rows of x (n, d_0) and y (n, d_L), the loss is
|f(x) - y|^2 / (2 n) and x is whitened, x^T x / n = sigma_x^2 I, unless a covariance is given.
Balanced layers, W_{l+1}^T W_{l+1} = W_l W_l^T, share their singular values sigma_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.models.initializers import balanced as sample
from gnjax.numerics.validation import (
    check_covariance,
    check_finite_number,
    check_matrix,
    check_weights,
)
from gnjax.operators.closed_form.linear import linear_factors
from gnjax.operators.kroneckers import KroneckerFactors

__all__ = [
    "Shallow",
    "bound",
    "eigenvalues",
    "growth_depth",
    "layer_singular_values",
    "least_sharpness",
    "minimiser",
    "nonzero",
    "printed_sharpness",
    "sample",
    "shallow",
    "shallow_gap",
    "sharpness",
    "trace",
]

_NOT_WHITE = 1e-6


def eigenvalues(
    singular_values: ArrayLike,
    depth: int,
    sigma_x: float = 1.0,
    inputs: int | None = None,
    outputs: int | None = None,
) -> np.ndarray:
    """Eq 9: sigma_x^2 sum_l sigma_i^{2(L-l)} sigma_j^{2(l-1)}, from the largest down.

    The eigenvalues of the Gauss-Newton matrix of a balanced network, all d_0 d_L of them on the
    output side. Every input direction i and output direction j counts, also where its singular
    value is 0, with 0^0 = 1: the paper stops at i, j <= r, but sigma_i^{2(L-1)} stays for sigma_j
    = 0. Eq 9a is a sum of terms that are not negative and so is accurate everywhere; the quotient
    of 9b would lose all digits as sigma_i and sigma_j meet, where its limit is
    L sigma^{2(L-1)} (printed as sigma^2(L-1)).

    Args:
      singular_values: of every layer, the zeros left out or not.
      depth: L.
      sigma_x: of the whitened inputs.
      inputs, outputs: d_0 and d_L; as many as there are singular values where not given.

    >>> gnjax.balanced.eigenvalues([2.0, 1.0], depth=2).tolist()
    [8.0, 5.0, 5.0, 2.0]
    >>> weights = gnjax.initializers.balanced(jax.random.key(0), (2, 4, 2), [2.0, 1.0])
    >>> gnjax.eigenvalues(gnjax.linear_gauss_newton(weights)).values.round(9).tolist()
    [8.0, 5.0, 5.0, 2.0]
    """
    values, scale = _singular_values(singular_values), _scale(sigma_x)
    squares = values**2
    first = _padded(squares, inputs, "inputs")[:, None]  # (d_0, 1)
    last = _padded(squares, outputs, "outputs")[None, :]  # (1, d_L)
    total = np.zeros((first.shape[0], last.shape[1]))
    for layer in range(1, _depth(depth) + 1):
        total = total * first + last ** (layer - 1)
    return scale**2 * np.sort(total, axis=None)[::-1]


def nonzero(inputs: int, outputs: int, rank: int, last: int | None = None) -> int:
    """How many eigenvalues are not 0 for L >= 2: d_0 d_L - (d_0 - r)(d_L - r) = r (d_0 + d_L - r).

    The paper counts r^2. For two layers that are not balanced, ``rank`` is that of W_1 and
    ``last`` that of W_2: d_0 d_2 - (d_0 - r_1)(d_2 - r_2).

    >>> gnjax.balanced.nonzero(inputs=5, outputs=4, rank=3)
    18
    """
    last = rank if last is None else last
    if not (0 <= rank <= inputs and 0 <= last <= outputs):
        msg = f"ranks {rank} and {last} do not lie within {inputs} inputs and {outputs} outputs"
        raise ValueError(msg)
    return inputs * outputs - (inputs - rank) * (outputs - last)


@dataclass(frozen=True)
class Shallow:
    """Eqs 15, 16: lambda_ij = sigma_x^2 (sigma_i(W_1)^2 + sigma_j(W_2)^2) for two layers.

    Attributes:
      values: all d_0 d_2 of them, from the largest down, with sigma = 0 beyond a layer's rank (the
        paper's ranges, i <= min(d_0, d_1) and j <= min(d_1, d_2), contradict its own Eq 11).
      i, j: which pair each value belongs to.
      rights: v_i, the right singular vectors of W_1 as columns (d_0, d_0).
      lefts: u_j, the left singular vectors of W_2 as columns (d_2, d_2).
      sigma_x: of the whitened inputs.

    >>> found = gnjax.balanced.shallow(np.diag([3.0, 1.0]), np.diag([2.0, 1.0]))
    >>> found.values.round(12).tolist()
    [13.0, 10.0, 5.0, 2.0]
    >>> int(found.i[0]), int(found.j[0])
    (0, 0)
    """

    values: np.ndarray
    i: np.ndarray
    j: np.ndarray
    rights: np.ndarray
    lefts: np.ndarray
    sigma_x: float

    def vectors(self, x: ArrayLike, count: int | None = None) -> np.ndarray:
        """Eq 16: the unit vectors (x v_i / (sqrt(n) sigma_x)) (x) u_j, samples first, as columns.

        They are eigenvectors of J J^T / n, in the order of ``values`` and the first ``count``.
        """
        data = _whitened(x, self.sigma_x)
        first = data @ self.rights[:, self.i[:count]] / (len(data) ** 0.5 * self.sigma_x)
        pairs = first[:, None, :] * self.lefts[None, :, self.j[:count]]
        return pairs.reshape(-1, pairs.shape[-1])


def shallow(w1: ArrayLike, w2: ArrayLike, sigma_x: float = 1.0) -> Shallow:
    """The spectrum of the Gauss-Newton matrix of W_2 W_1 x, balanced or not (Eqs 15, 16).

    Hence the largest eigenvalue is sigma_x^2 (|W_1|_2^2 + |W_2|_2^2) (Eq 10) and their sum
    sigma_x^2 (d_2 |W_1|_F^2 + d_0 |W_2|_F^2) (Eq 11).

    >>> gnjax.balanced.shallow(np.diag([3.0, 1.0]), np.diag([2.0, 1.0])).values.round(12).tolist()
    [13.0, 10.0, 5.0, 2.0]
    """
    inner, outer = (np.asarray(w) for w in check_weights([w1, w2]))
    scale = _scale(sigma_x)
    _, first, rights = np.linalg.svd(inner)
    lefts, last, _ = np.linalg.svd(outer)
    rows = _padded(first**2, inner.shape[1], "inputs")
    columns = _padded(last**2, outer.shape[0], "outputs")
    table = scale**2 * (rows[:, None] + columns[None, :])
    order = np.argsort(-table, axis=None, kind="stable")
    i, j = np.unravel_index(order, table.shape)
    return Shallow(table[i, j], i, j, rights.T, lefts, scale)


def shallow_gap(w1: ArrayLike, w2: ArrayLike, covariance: ArrayLike, cross: ArrayLike) -> float:
    """|H - G|_2 = |B - W_2 W_1 C|_2 for two layers, C = x^T x / n and B = y^T x / n.

    By Weyl's inequality no eigenvalue of the Hessian is further from its counterpart of Eq 15.
    With E = B - W_2 W_1 C, H - G maps (U_1, U_2) to -(U_2^T E, E U_1^T), and so its eigenvalues
    are plus and minus the singular values of E, each once for a hidden unit, and zeros.

    >>> w1, w2, cross = np.diag([2.0, 1.0]), np.eye(2), np.diag([2.0, 1.5])
    >>> round(gnjax.balanced.shallow_gap(w1, w2, covariance=np.eye(2), cross=cross), 9)
    0.5
    """
    inner, outer = check_weights([w1, w2])
    data = check_covariance(covariance, inner.shape[1])
    labels = check_matrix("cross", cross)
    if labels.shape != (len(outer), inner.shape[1]):
        msg = f"cross has shape {labels.shape}, not {(len(outer), inner.shape[1])}: y^T x / n"
        raise ValueError(msg)
    return float(np.linalg.norm(np.asarray(labels - outer @ (inner @ data)), 2))


def trace(
    weights: Sequence[ArrayLike], sigma_x: float = 1.0, *, covariance: ArrayLike | None = None
) -> float:
    """Eq 7: sigma_x^2 sum_l |P_l|_F^2 |S_l|_F^2, or sum_l tr(P_l C P_l^T) |S_l|_F^2 for raw inputs.

    The trace of the Gauss-Newton matrix, and of the full Hessian at every point whatever the
    loss: f is linear in each W_l, so that H - G has no entries within a layer and no trace.

    Args:
      weights: W_1 .. W_L, W_l of shape (d_l, d_{l-1}).
      sigma_x: of the whitened inputs.
      covariance: C = x^T x / n, which then takes the place of sigma_x^2 I.

    >>> weights = [np.diag([2.0, 1.0]), np.diag([2.0, 1.0])]
    >>> gnjax.balanced.trace(weights), sum(gnjax.balanced.eigenvalues([2.0, 1.0], depth=2)).item()
    (20.0, 20.0)
    """
    factors, scale = _factors(weights, sigma_x, covariance)
    return scale**2 * sum(
        float(jnp.square(s).sum() * jnp.square(t).sum())
        for s, t in zip(factors.lefts, factors.rights, strict=True)
    )


def bound(
    weights: Sequence[ArrayLike], sigma_x: float = 1.0, *, covariance: ArrayLike | None = None
) -> float:
    """Eq 6: lambda_max(G) <= sigma_x^2 sum_l |P_l|_2^2 |S_l|_2^2, with equality where balanced.

    For raw inputs sum_l |P_l C P_l^T|_2 |S_l|_2^2; the arguments are those of :func:`trace`.

    >>> weights = gnjax.initializers.balanced(jax.random.key(0), (3, 4, 2), [2.0, 1.0])
    >>> round(gnjax.balanced.bound(weights), 9)  # attained: the sharpness of Eq 14
    8.0
    """
    factors, scale = _factors(weights, sigma_x, covariance)
    norms = (
        [np.linalg.norm(np.asarray(factor), 2) for factor in side]
        for side in (factors.lefts, factors.rights)
    )
    return scale**2 * sum(float((s * t) ** 2) for s, t in zip(*norms, strict=True))


def minimiser(x: ArrayLike, y: ArrayLike, sigma_x: float = 1.0) -> np.ndarray:
    """Eq 12: W_L .. W_1 = y^T x / (n sigma_x^2), (d_L, d_0), at every global minimum.

    The least-squares map, which every network wide enough for its rank attains. Labels that it
    does not fit leave a residual orthogonal to x, and H - G is made of the products of the two:
    the Hessian *is* the Gauss-Newton matrix there, although the loss is not 0.

    >>> x = np.sqrt(2) * np.eye(2)  # n = 2 whitened samples
    >>> gnjax.balanced.minimiser(x, np.sqrt(2) * np.diag([9.0, 4.0])).round(9).tolist()
    [[9.0, 0.0], [0.0, 4.0]]
    """
    data = _whitened(x, sigma_x)
    labels = _labels(y, len(data))
    return labels.T @ data / (len(data) * sigma_x**2)


def layer_singular_values(
    x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0, *, fitted: bool = False
) -> np.ndarray:
    """Eq 13: sigma_i(W) at a balanced global minimum, the L-th roots of those of Eq 12.

    With ``fitted`` the labels are taken to be fitted exactly, and sigma_i(W)^L to be
    sigma_i(y) / (sqrt(n) sigma_x), as printed; where they are not this is too large.

    >>> x, y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.diag([9.0, 4.0])  # n = 2 whitened samples
    >>> gnjax.balanced.layer_singular_values(x, y, depth=2).round(9).tolist()
    [3.0, 2.0]
    """
    if fitted:
        labels = _labels(y, len(_whitened(x, sigma_x)))
        values = np.linalg.svd(labels, compute_uv=False) / (len(labels) ** 0.5 * sigma_x)
    else:
        values = np.linalg.svd(minimiser(x, y, sigma_x), compute_uv=False)
    return values ** (1 / _depth(depth))


def sharpness(norm: ArrayLike, depth: ArrayLike, sigma_x: float = 1.0) -> np.ndarray:
    """Eq 14: L sigma_x^2 norm^{2 - 2/L}, the largest eigenvalue at a balanced point.

    ``norm`` is |W_L .. W_1|_2, which at a global minimum is that of Eq 12; numbers or arrays.

    >>> gnjax.balanced.sharpness([1.0, 4.0], depth=2).tolist()
    [2.0, 8.0]
    """
    layers, size = np.asarray(depth, float), np.asarray(norm, float)
    if not (np.isfinite(size).all() and (size >= 0).all() and (layers >= 1).all()):
        msg = f"a norm must not be negative and a depth at least 1, got {norm} and {depth}"
        raise ValueError(msg)
    return layers * _scale(sigma_x) ** 2 * size ** (2 - 2 / layers)


def least_sharpness(x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0) -> float:
    """Eq 14 with the norm of Eq 12: no global minimum is flatter, and balanced ones are as flat.

    Let M = W_L .. W_1 be the map of Eq 12, s its largest singular value, u^T M v = s, and
    a_l = |P_l v|, b_l = |S_l^T u|, so that a_1 = b_L = 1. At a global minimum H = G, and its
    quotient at (x v) (x) u is sigma_x^2 sum_l (a_l b_l)^2. For l < L, M = S_l P_{l+1} gives
    b_l a_{l+1} >= s, and so

        prod_l a_l b_l = a_1 (prod_{l<L} b_l a_{l+1}) b_L >= s^{L-1}.

    The arithmetic mean of the (a_l b_l)^2 is at least their geometric mean, whence
    lambda_max(H) >= sigma_x^2 L s^{2(L-1)/L}, which a balanced minimum attains by Eq 9. The
    hidden layers are taken to be no narrower than the rank of M.

    >>> x = np.sqrt(2) * np.eye(2)  # n = 2 whitened samples
    >>> round(gnjax.balanced.least_sharpness(x, np.sqrt(2) * np.diag([9.0, 4.0]), depth=2), 9)
    18.0
    """
    norm = np.linalg.norm(minimiser(x, y, sigma_x), 2)
    return float(sharpness(norm, _depth(depth), sigma_x))


def printed_sharpness(x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0) -> float:
    """Eq 14 as printed, with sigma_max(y) / (sqrt(n) sigma_x) for the norm of Eq 12.

    Equal to :func:`least_sharpness` where the labels can be fitted and above it elsewhere, since
    |y^T x|_2 <= |y|_2 |x|_2 = |y|_2 sqrt(n) sigma_x. One-hot labels have sigma_max(y)^2 / n =
    alpha_max, the share of the largest class.

    >>> x = np.sqrt(2) * np.eye(2)  # n = 2 whitened samples, labels that are fitted exactly
    >>> round(gnjax.balanced.printed_sharpness(x, np.sqrt(2) * np.diag([9.0, 4.0]), depth=2), 9)
    18.0
    """
    largest = layer_singular_values(x, y, 1, sigma_x, fitted=True)[0]
    return float(sharpness(largest, _depth(depth), sigma_x))


def growth_depth(norm: ArrayLike) -> np.ndarray:
    """The real L above which Eq 14 grows with depth: -2 log(norm), and 0 for a norm of 1 or more.

    Eq 14 has the derivative (1 + 2 log(norm) / L) norm^{2 - 2/L} sigma_x^2 by L. With
    norm^2 = alpha / sigma_x^2 this reads L > log(sigma_x^2 / alpha).

    >>> gnjax.balanced.growth_depth([0.1, 0.5]).round(3).tolist()
    [4.605, 1.386]
    """
    size = np.asarray(norm, float)
    if not (np.isfinite(size).all() and (size > 0).all()):
        msg = f"norms must be positive, got {norm}"
        raise ValueError(msg)
    return np.maximum(0.0, -2 * np.log(size))


def _factors(
    weights: Sequence[ArrayLike], sigma_x: float, covariance: ArrayLike | None
) -> tuple[KroneckerFactors, float]:
    """S_l and C^{1/2} P_l^T for every l, with what they are still to be scaled by."""
    scale = _scale(sigma_x)
    if covariance is None:
        return linear_factors(weights), scale
    if scale != 1.0:
        msg = f"sigma_x={sigma_x} and a covariance came; the covariance says it all, leave sigma_x"
        raise ValueError(msg)
    return linear_factors(weights, covariance), 1.0


def _singular_values(values: ArrayLike) -> np.ndarray:
    found = np.asarray(values, float)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all() or (found < 0).any():
        msg = f"singular values are a list of numbers that are not negative, got {values}"
        raise ValueError(msg)
    return found


def _padded(squares: np.ndarray, size: int | None, name: str) -> np.ndarray:
    if size is None:
        return squares
    if size < len(squares):
        if np.count_nonzero(squares) > size:
            msg = f"{len(squares)} singular values came, more than {name}={size} can have"
            raise ValueError(msg)
        return np.sort(squares)[::-1][:size]
    return np.pad(squares, (0, size - len(squares)))


def _depth(depth: int) -> int:
    if not isinstance(depth, int | np.integer) or depth < 1:
        msg = f"depth={depth} must be a whole number of layers, at least 1"
        raise ValueError(msg)
    return int(depth)


def _scale(sigma_x: float) -> float:
    scale = check_finite_number("sigma_x", sigma_x)
    if scale <= 0:
        msg = f"sigma_x={sigma_x} must be positive"
        raise ValueError(msg)
    return scale


def _whitened(x: ArrayLike, sigma_x: float) -> np.ndarray:
    """x (n, d_0) with x^T x / n = sigma_x^2 I."""
    data, scale = np.asarray(check_matrix("x", x)), _scale(sigma_x)
    covariance = data.T @ data / (len(data) * scale**2)
    gap = float(np.abs(covariance - np.eye(len(covariance))).max())
    if gap > _NOT_WHITE:
        msg = (
            f"x^T x / n is not sigma_x^2 I for sigma_x={sigma_x} but {gap:.2g} of it away: whiten "
            "the inputs with gnjax.data.orthogonalise(x, sigma_x)"
        )
        raise ValueError(msg)
    return data


def _labels(y: ArrayLike, samples: int) -> np.ndarray:
    labels = np.asarray(check_matrix("y", y))
    if len(labels) != samples:
        msg = f"y has {len(labels)} rows but x has {samples}; one row for each sample is needed"
        raise ValueError(msg)
    return labels
