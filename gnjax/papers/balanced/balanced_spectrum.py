"""Eigenvalues, trace and largest eigenvalue of the Gauss-Newton matrix of a linear network."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.outward import raised
from gnjax.papers.balanced.arguments import (
    check_depth,
    check_scale,
    padded,
)
from gnjax.papers.bounds.enclosures import extreme_singular_values
from gnjax.papers.closed_form.from_weights import linear_factors
from gnjax.papers.kronecker.factors import KroneckerFactors


def eigenvalues(
    singular_values: ArrayLike,
    depth: int,
    sigma_x: float = 1.0,
    inputs: int | None = None,
    outputs: int | None = None,
) -> np.ndarray:
    """Eq 9: sigma_x^2 sum_l sigma_i^{2(L-l)} sigma_j^{2(l-1)}, from the largest down.

    These are all d_0 d_L eigenvalues of the Gauss-Newton matrix, on the output side, of a linear
    network with balanced layers, W_{l+1}^T W_{l+1} = W_l W_l^T, which then have the same singular
    values sigma_i. The sum is computed for every input direction i and output direction j, and
    0^0 = 1 where a singular value is 0. The paper stops at i, j <= r, but for sigma_j = 0 the term
    sigma_i^{2(L-1)} remains: for L >= 2 and r non-zero sigma_i, r (d_0 + d_L - r) eigenvalues are
    not zero, where the paper counts r^2. Eq 9a adds terms that are not negative, so it is accurate
    everywhere. The quotient of Eq 9b would lose all digits where sigma_i is close to sigma_j; its
    limit there is L sigma^{2(L-1)} (printed as sigma^2(L-1)).

    Args:
      singular_values: those of every layer, with or without the zeros.
      depth: the number L of layers.
      sigma_x: the scale of the whitened inputs.
      inputs, outputs: d_0 and d_L; by default the number of singular values.

    >>> gnjax.papers.balanced.eigenvalues([2.0, 1.0], depth=2).tolist()
    [8.0, 5.0, 5.0, 2.0]
    >>> weights = gnjax.initializers.balanced(jax.random.key(0), (2, 4, 2), [2.0, 1.0])
    >>> gnjax.eigenvalues(gnjax.papers.linear_gauss_newton(weights)).values.round(9).tolist()
    [8.0, 5.0, 5.0, 2.0]
    """
    values, scale = np.asarray(singular_values, float), check_scale(sigma_x)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (values < 0).any():
        msg = (
            f"singular_values must be a list of finite, non-negative numbers, got {singular_values}"
        )
        raise ValueError(msg)
    squares = values**2
    first = padded(squares, inputs, "inputs")[:, None]  # (d_0, 1)
    last = padded(squares, outputs, "outputs")[None, :]  # (1, d_L)
    total = np.zeros((first.shape[0], last.shape[1]))  # summed over l by Horner's scheme
    for layer in range(1, check_depth(depth) + 1):
        total = total * first + last ** (layer - 1)
    return scale**2 * np.sort(total, axis=None)[::-1]


def trace(
    weights: Sequence[ArrayLike], sigma_x: float = 1.0, *, covariance: ArrayLike | None = None
) -> float:
    """Eq 7: sigma_x^2 sum_l |P_l|_F^2 |S_l|_F^2, or sum_l tr(P_l C P_l^T) |S_l|_F^2 for raw inputs.

    This is the trace of the Gauss-Newton matrix. The full Hessian has the same trace at every
    point, however large the loss is: f is linear in each W_l, so the diagonal blocks of H - G, one
    for each layer, are zero.

    Args:
      weights: W_1 .. W_L, where W_l has the shape (d_l, d_{l-1}).
      sigma_x: the scale of the whitened inputs.
      covariance: C = x^T x / n, used in place of sigma_x^2 I.

    >>> weights = [np.diag([2.0, 1.0]), np.diag([2.0, 1.0])]
    >>> values = gnjax.papers.balanced.eigenvalues([2.0, 1.0], depth=2)
    >>> gnjax.papers.balanced.trace(weights), values.sum().item()
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
    """Eq 6: lambda_max(G) <= sigma_x^2 sum_l |P_l|_2^2 |S_l|_2^2, with equality if balanced.

    For raw inputs with x^T x / n = C the bound is sum_l |P_l C P_l^T|_2 |S_l|_2^2. It is moved up
    by the rounding of the products and of their singular values. The arguments are those of
    :func:`trace`.

    >>> weights = gnjax.initializers.balanced(jax.random.key(0), (3, 4, 2), [2.0, 1.0])
    >>> round(gnjax.papers.balanced.bound(weights), 9)  # attained: the sharpness of Eq 14
    8.0
    """
    factors, scale = _factors(weights, sigma_x, covariance)
    lefts, rights = (
        [extreme_singular_values(product, float(e)).above for product, e in zip(*side, strict=True)]
        for side in (
            (factors.lefts, factors.left_errors),
            (factors.rights, factors.right_errors),
        )
    )
    return raised(scale**2 * sum((s * t) * (s * t) for s, t in zip(lefts, rights, strict=True)))


def _factors(
    weights: Sequence[ArrayLike], sigma_x: float, covariance: ArrayLike | None
) -> tuple[KroneckerFactors, float]:
    """S_l and C^{1/2} P_l^T for every l and the scale 1; without C, S_l and P_l^T and sigma_x."""
    scale = check_scale(sigma_x)
    if covariance is None:
        return linear_factors(weights), scale
    if scale != 1.0:
        msg = f"got sigma_x={sigma_x} and a covariance; pass the covariance alone"
        raise ValueError(msg)
    return linear_factors(weights, covariance), 1.0
