"""One-hidden-layer Leaky-ReLU networks on n <= d samples with X^T X = I, at slopes of either sign.

Paper A's published code whitens the samples that it has drawn to U V^T. Then the products of
samples x_i^T x_j of Eq 10 are those of the identity, and

    G = blockdiag_j(W diag(slopes_j)^2 W^T) + Gamma (x) I_k

has blocks of k rows alone beside Gamma = h^T h, h = slopes o V X, so that it is formed in
O(m n (n + k^2)) operations. V X is a matrix of independent normal entries whatever the images are,
so that kappa depends on n, d, k, m and the slope alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.operators import Dense

Array = NDArray[np.float64]

_FLOAT64 = jnp.dtype(jnp.float64)


@dataclass(frozen=True, eq=False)
class Layer:
    """What Eqs 10 and 11 need of the network on these samples.

    Attributes:
      outer: W, (k, m).
      slopes: sigma'(V X), (m, n); ``slope`` where V X is negative, also if that is below 0.
      hidden: slopes o V X, (m, n).
      hidden_error: a bound on ||hidden - exact||_F for these slopes.
      gram_error: a bound on ||X^T X - I||_F.
    """

    outer: Array
    slopes: Array
    hidden: Array
    hidden_error: float
    gram_error: float


def layer(inner: Array, outer: Array, x: Array, slope: float) -> Layer:
    """The network on samples x (n, d) with x x^T = I; -slope mirrors the negative side of sigma."""
    before = inner @ x.T
    slopes = np.where(before >= 0, 1.0, slope)
    gram = x @ x.T
    rounding = gamma(x.shape[1] + 1, _FLOAT64)
    gram_error = np.linalg.norm(gram - np.eye(len(x))) + rounding * np.linalg.norm(x) ** 2
    hidden_error = rounding * np.linalg.norm(inner) * np.linalg.norm(x)
    return Layer(outer, slopes, slopes * before, float(hidden_error), float(gram_error))


def gauss_newton(net: Layer) -> Dense:
    """G of Eq 10, (n k, n k), sample by sample; its error is proved for these slopes."""
    (hidden, samples), outputs = net.hidden.shape, len(net.outer)
    gram = net.hidden.T @ net.hidden  # Gamma
    matrix = np.zeros((samples, outputs, samples, outputs))
    for output in range(outputs):
        matrix[:, output, :, output] = gram
    weighted = net.slopes.T[:, None, :] * net.outer  # (n, k, m)
    blocks = weighted @ weighted.transpose(0, 2, 1)
    places = np.arange(samples)
    matrix[places, :, places, :] += blocks
    size, weights = np.linalg.norm(net.hidden), np.linalg.norm(net.outer)
    sums = gamma(hidden + 4, _FLOAT64)
    error = sums * (size**2 + weights**2) + (2 * size + net.hidden_error) * net.hidden_error
    error += net.gram_error * weights**2 + gamma(1, _FLOAT64) * (size**2 + weights**2)
    return Dense(jnp.asarray(matrix.reshape(samples * outputs, -1)), jnp.asarray(float(error)))


@dataclass(frozen=True)
class Bounds:
    """Upper bounds on kappa, None where their denominator is 0 up to rounding.

    Attributes:
      sharp: Eq 11 with the eigenvalues of Gamma.
      trace: the same with the trace of Gamma in place of its largest eigenvalue.
    """

    sharp: float | None
    trace: float | None


def bounds(net: Layer) -> Bounds:
    """Eq 11: (s_max^2(W) + lambda_max(Gamma)) / (alpha^2 s_min^2(W) + lambda_min(Gamma))."""
    inner, inner_error = _squares(net.hidden.T)  # the eigenvalues of Gamma
    outer, outer_error = _squares(net.outer)
    size = float(np.linalg.norm(net.hidden))
    error = inner_error + outer_error + (2 * size + net.hidden_error) * net.hidden_error
    error += net.gram_error * outer[-1]
    least = float(np.abs(net.slopes).min()) ** 2 * outer[0] + inner[0] - error
    if least <= error:
        return Bounds(None, None)
    above = outer[-1] + error
    return Bounds(float((above + inner[-1]) / least), float((above + inner.sum()) / least))


def _squares(matrix: Array) -> tuple[Array, float]:
    """The eigenvalues of A A^T in increasing order, zeros included, and a bound on their errors."""
    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    values = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    missing = np.zeros(max(rows - columns, 0))
    error = (
        gamma(max(rows, columns), _FLOAT64) + spectral_error(len(gram), _FLOAT64)
    ) * values.sum()
    return np.concatenate([missing, values]), float(error)
