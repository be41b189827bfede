"""The spectrum of the Gauss-Newton matrix of two linear layers, balanced or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.validation import check_covariance, check_matrix, check_weights
from gnjax.papers.balanced.arguments import check_scale, check_whitened, padded


@dataclass(frozen=True)
class Shallow:
    """Eqs 15, 16: lambda_ij = sigma_x^2 (sigma_i(W_1)^2 + sigma_j(W_2)^2) for two layers.

    Attributes:
      values: all d_0 d_2 eigenvalues, from the largest down. A layer's sigma is 0 beyond its rank
        (the paper's ranges, i <= min(d_0, d_1) and j <= min(d_1, d_2), contradict its own Eq 11).
      i, j: the indices of each value.
      rights: v_i, the right singular vectors of W_1 as columns (d_0, d_0).
      lefts: u_j, the left singular vectors of W_2 as columns (d_2, d_2).
      sigma_x: the scale of the whitened inputs.

    >>> spectrum = gnjax.papers.balanced.shallow(np.diag([3.0, 1.0]), np.diag([2.0, 1.0]))
    >>> spectrum.values.round(12).tolist()
    [13.0, 10.0, 5.0, 2.0]
    >>> int(spectrum.i[0]), int(spectrum.j[0])
    (0, 0)
    """

    values: np.ndarray
    i: np.ndarray
    j: np.ndarray
    rights: np.ndarray
    lefts: np.ndarray
    sigma_x: float

    def vectors(self, x: ArrayLike, count: int | None = None) -> np.ndarray:
        """Eq 16: the eigenvectors (x v_i / (sqrt(n) sigma_x)) (x) u_j of J J^T / n, (n d_2, ..).

        x (n, d_0) are the whitened inputs. The vectors are of length 1, in the order of ``values``;
        with ``count`` only that many from the first.
        """
        data = check_whitened(x, self.sigma_x)
        first = data @ self.rights[:, self.i[:count]] / (len(data) ** 0.5 * self.sigma_x)
        pairs = first[:, None, :] * self.lefts[None, :, self.j[:count]]
        return pairs.reshape(-1, pairs.shape[-1])


def shallow(w1: ArrayLike, w2: ArrayLike, sigma_x: float = 1.0) -> Shallow:
    """The spectrum of the Gauss-Newton matrix of f(x) = W_2 W_1 x on whitened inputs (Eqs 15, 16).

    The layers need not be balanced. W_1 is (d_1, d_0), and W_2 is (d_2, d_1). The eigenvalues are
    lambda_ij = sigma_x^2 (sigma_i(W_1)^2 + sigma_j(W_2)^2) for i <= d_0 and j <= d_2, with a
    singular value 0 beyond the rank of a layer. The largest is sigma_x^2 (|W_1|_2^2 + |W_2|_2^2)
    (Eq 10), and the sum of all is sigma_x^2 (d_2 |W_1|_F^2 + d_0 |W_2|_F^2) (Eq 11).

    >>> spectrum = gnjax.papers.balanced.shallow(np.diag([3.0, 1.0]), np.diag([2.0, 1.0]))
    >>> spectrum.values.round(12).tolist()
    [13.0, 10.0, 5.0, 2.0]
    """
    inner, outer = (np.asarray(w) for w in check_weights([w1, w2]))
    scale = check_scale(sigma_x)
    _, first, rights = np.linalg.svd(inner)
    lefts, last, _ = np.linalg.svd(outer)
    of_first = padded(first**2, inner.shape[1], "inputs")  # sigma_i(W_1)^2, (d_0,)
    of_last = padded(last**2, outer.shape[0], "outputs")  # sigma_j(W_2)^2, (d_2,)
    table = scale**2 * (of_first[:, None] + of_last[None, :])  # lambda_ij, (d_0, d_2)
    order = np.argsort(-table, axis=None, kind="stable")
    i, j = np.unravel_index(order, table.shape)
    return Shallow(values=table[i, j], i=i, j=j, rights=rights.T, lefts=lefts, sigma_x=scale)


def shallow_gap(w1: ArrayLike, w2: ArrayLike, covariance: ArrayLike, cross: ArrayLike) -> float:
    """|H - G|_2 = |B - W_2 W_1 C|_2 for two layers, C = x^T x / n and B = y^T x / n.

    H is the Hessian of the squared error and G its Gauss-Newton matrix. By Weyl's inequality no
    eigenvalue of the Hessian is further than this from the eigenvalue of Eq 15 with the same
    number. With E = B - W_2 W_1 C, H - G maps (U_1, U_2) to -(U_2^T E, E U_1^T). Its eigenvalues
    are therefore plus and minus the singular values of E, each once for every hidden unit, and
    zeros.

    >>> w1, w2, cross = np.diag([2.0, 1.0]), np.eye(2), np.diag([2.0, 1.5])
    >>> round(gnjax.papers.balanced.shallow_gap(w1, w2, covariance=np.eye(2), cross=cross), 9)
    0.5
    """
    inner, outer = check_weights([w1, w2])
    data = check_covariance(covariance, inner.shape[1])
    labels = check_matrix("cross", cross)
    if labels.shape != (len(outer), inner.shape[1]):
        shape = (len(outer), inner.shape[1])
        msg = f"cross is y^T x / n and must have the shape {shape}, got {labels.shape}"
        raise ValueError(msg)
    return float(np.linalg.norm(np.asarray(labels - outer @ (inner @ data)), 2))
