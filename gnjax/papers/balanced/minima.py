"""Global minima of linear networks, and the largest Hessian eigenvalue at balanced ones."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from gnjax.papers.balanced.arguments import check_depth, check_labels, check_scale, check_whitened


def minimiser(x: ArrayLike, y: ArrayLike, sigma_x: float = 1.0) -> np.ndarray:
    """Eq 12: W_L .. W_1 = y^T x / (n sigma_x^2), (d_L, d_0), at every global minimum.

    The inputs x (n, d_0) are whitened, x^T x / n = sigma_x^2 I, and y (n, d_L) are the labels. This
    is the least-squares map, which a network attains if no layer is narrower than the rank of
    the map. Where it does not fit the labels, the residual is orthogonal to x. The Hessian less the
    Gauss-Newton matrix, H - G, depends on both only through their product, so H equals G there
    although the loss is not 0.

    >>> x = np.sqrt(2) * np.eye(2)  # n = 2 whitened samples
    >>> gnjax.papers.balanced.minimiser(x, np.sqrt(2) * np.diag([9.0, 4.0])).round(9).tolist()
    [[9.0, 0.0], [0.0, 4.0]]
    """
    data = check_whitened(x, sigma_x)
    labels = check_labels(y, len(data))
    return labels.T @ data / (len(data) * sigma_x**2)


def layer_singular_values(
    x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0, *, fitted: bool = False
) -> np.ndarray:
    """Eq 13: the singular values of every layer of a linear network at a balanced global minimum.

    They are the L-th roots of the singular values of the map W_L .. W_1 of Eq 12, for L = ``depth``
    layers, whitened inputs x (n, d_0) and labels y (n, d_L). With ``fitted`` the labels are assumed
    to be fitted exactly, and sigma_i(W)^L is sigma_i(y) / (sqrt(n) sigma_x), as printed. That is
    too large where they are not fitted.

    >>> x, y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.diag([9.0, 4.0])  # n = 2 whitened samples
    >>> gnjax.papers.balanced.layer_singular_values(x, y, depth=2).round(9).tolist()
    [3.0, 2.0]
    """
    if fitted:
        labels = check_labels(y, len(check_whitened(x, sigma_x)))
        values = np.linalg.svd(labels, compute_uv=False) / (len(labels) ** 0.5 * sigma_x)
    else:
        values = np.linalg.svd(minimiser(x, y, sigma_x), compute_uv=False)
    return values ** (1 / check_depth(depth))


def sharpness(norm: ArrayLike, depth: ArrayLike, sigma_x: float = 1.0) -> np.ndarray:
    """Eq 14: L sigma_x^2 norm^{2 - 2/L}, the largest eigenvalue of G at a balanced point.

    G is the Gauss-Newton matrix of a linear network with L = ``depth`` layers, on whitened inputs
    of the scale sigma_x; at a global minimum it is the Hessian. ``norm`` is |W_L .. W_1|_2, at a
    global minimum the norm of the matrix of Eq 12. ``norm`` and ``depth`` may be numbers or arrays.

    >>> gnjax.papers.balanced.sharpness([1.0, 4.0], depth=2).tolist()
    [2.0, 8.0]
    """
    layers, size = np.asarray(depth, float), np.asarray(norm, float)
    if not (np.isfinite(size).all() and (size >= 0).all() and (layers >= 1).all()):
        msg = f"norm must not be negative and depth must be at least 1, got {norm} and {depth}"
        raise ValueError(msg)
    return layers * check_scale(sigma_x) ** 2 * size ** (2 - 2 / layers)


def least_sharpness(x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0) -> float:
    """Eq 14 with the norm of Eq 12: the least largest eigenvalue that a global minimum can have.

    x (n, d_0) are whitened inputs and y (n, d_L) the labels of a linear network. Let M = W_L .. W_1
    be the map of Eq 12, s its largest singular value, and u^T M v = s. Let a_l = |P_l v| and
    b_l = |S_l^T u|, so that a_1 = b_L = 1. At a global minimum the Hessian H is the Gauss-Newton
    matrix, whose Rayleigh quotient at (x v) (x) u is sigma_x^2 sum_l (a_l b_l)^2. For l < L,
    M = S_l P_{l+1} gives b_l a_{l+1} >= s, and so

        prod_l a_l b_l = a_1 (prod_{l<L} b_l a_{l+1}) b_L >= s^{L-1}.

    The arithmetic mean of the (a_l b_l)^2 is at least their geometric mean. Therefore
    lambda_max(H) >= sigma_x^2 L s^{2(L-1)/L}, and by Eq 9 a balanced minimum attains this. No
    hidden layer may be narrower than the rank of M.

    >>> x, y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.diag([9.0, 4.0])  # n = 2 whitened samples
    >>> round(gnjax.papers.balanced.least_sharpness(x, y, depth=2), 9)
    18.0
    """
    norm = np.linalg.norm(minimiser(x, y, sigma_x), 2)
    return float(sharpness(norm, check_depth(depth), sigma_x))


def printed_sharpness(x: ArrayLike, y: ArrayLike, depth: int, sigma_x: float = 1.0) -> float:
    """Eq 14 as printed, with sigma_max(y) / (sqrt(n) sigma_x) in place of the norm of Eq 12.

    x (n, d_0) are the whitened inputs and y (n, d_L) the labels. It equals :func:`least_sharpness`,
    the largest eigenvalue at a balanced global minimum, where the labels can be fitted, and is not
    below it elsewhere, because |y^T x|_2 <= |y|_2 |x|_2 = |y|_2 sqrt(n) sigma_x. For one-hot labels
    sigma_max(y)^2 / n is alpha_max, the share of the largest class.

    >>> x, y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.diag([9.0, 4.0])  # y can be fitted exactly
    >>> round(gnjax.papers.balanced.printed_sharpness(x, y, depth=2), 9)
    18.0
    """
    largest = layer_singular_values(x, y, 1, sigma_x, fitted=True)[0]
    return float(sharpness(largest, check_depth(depth), sigma_x))
