"""Small Gaussian chains, with d + k hidden units, whose products have the law of wide chains.

The Gauss-Newton matrix of a linear network depends on its weights only through the Gram matrices of
the partial products P_l = W_(l-1) .. W_1 (from the right) and S_l = W_L .. W_(l+1) (from the left).
P_l has d columns and S_l has k rows, however wide the hidden layers are. In layer l choose an
orthonormal basis whose first d vectors span the range of P_(l+1). In these bases

    W_l = [[R_l, E_l],
           [0,   F_l]],

where R_l is the triangular factor of a Gaussian matrix (m_l, d), and E_l and F_l are Gaussian and
independent of it, because the bases depend on earlier layers only. A product S_l = [A, B] becomes

    S_l W_l = [A R_l, A E_l + B F_l],

and the second block is a Gaussian matrix of m_(l-1) - d columns times the lower triangular factor
of S_l S_l^T: its Gram matrix is that of a triangular (k, k) factor. So d + k units a layer are
enough, exactly and not only for large widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from numpy.typing import NDArray

from gnjax.numerics.precision import real_dtype

_Array = NDArray[np.float64]


def reduced_chain(key: jax.Array, widths: Sequence[int], gain: float = 2.0) -> list[jax.Array]:
    """A chain with the law of ``chain(key, widths)``, its hidden layers d + k units wide.

    The law is that of every function of the Gram matrices of the partial products: the spectrum of
    the Gauss-Newton matrix, its condition number and its bounds. The weights of one key are not
    those of ``chain`` with that key.

    Args:
      key: the key of the draw.
      widths: d, the hidden widths and k, as for ``chain``. Hidden layers have at least d + k units.
      gain: the variance times fan_in, as of ``kaiming_normal``.

    >>> weights = gnjax.initializers.reduced_chain(jax.random.key(0), (4, 1000, 1000, 2))
    >>> [weight.shape for weight in weights]
    [(6, 4), (6, 6), (2, 6)]
    """
    inputs, *hidden, outputs = widths
    if hidden and min(hidden) < inputs + outputs:
        msg = (
            f"a reduced chain needs hidden layers of at least d + k = {inputs + outputs} units, "
            f"got {min(hidden)}; draw it with chain"
        )
        raise ValueError(msg)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    scales = [np.sqrt(gain / fan_in) for fan_in in widths[:-1]]
    if not hidden:
        return [_on_device(scales[0] * rng.standard_normal((outputs, inputs)))]
    # R_l of hidden layer l, an upper triangle (d, d) that stands for a Gaussian matrix (m_l, d).
    upper = [s * _triangle(rng, inputs, m) for s, m in zip(scales, hidden, strict=False)]
    # A lower triangle (k, k) that stands for a Gaussian matrix (k, m_l - d), without its scale.
    lower = [_triangle(rng, outputs, m - inputs).T for m in hidden]
    last = np.hstack([rng.standard_normal((outputs, inputs)), lower[-1]]) * scales[-1]
    scaled_lower = [s * triangle for s, triangle in zip(scales[1:-1], lower, strict=False)]
    middle = _middle(upper[1:], scaled_lower, last)
    first = np.vstack([upper[0], np.zeros((outputs, inputs))])
    return [_on_device(weight) for weight in (first, *middle, last)]


def _triangle(rng: np.random.Generator, size: int, rows: int) -> _Array:
    """R (size, size) of Q R = M for a standard Gaussian matrix M (rows, size), by Bartlett's law.

    Its entries are independent: Gaussian above the diagonal, and on it the roots of chi-squared
    numbers with rows, rows - 1, .. degrees of freedom.
    """
    above_diagonal = np.triu(rng.standard_normal((size, size)), 1)
    return above_diagonal + np.diag(np.sqrt(rng.chisquare(rows - np.arange(size))))


def _middle(upper: Sequence[_Array], lower: Sequence[_Array], last: _Array) -> list[_Array]:
    """W_2 .. W_(L-1) of a reduced chain, each (d + k, d + k), made from the last to the first.

    ``upper`` are R_2 .. R_(L-1), (d, d), and ``lower`` the triangles T_l, (k, k), each for a
    Gaussian matrix (k, m - d); ``last`` is W_L, (k, d + k). With S_l = W_L .. W_(l+1) = [A, B],
    (k, d + k), and an orthonormal basis Q (d + k, k) of the space of its rows, S_l = (S_l Q) Q^T.
    The first d columns of W_l are R_l above zeros, and the others are Q T_l, so that

        S_l W_l = [A R_l, (S_l Q) T_l],

    where T_l stands for the Gaussian matrix Q^T G, with the other columns G of W_l in a wide chain.
    """
    inputs = upper[0].shape[0] if upper else 0
    weights: list[_Array] = []
    product = last  # S_l
    for upper_triangle, lower_triangle in zip(reversed(upper), reversed(lower), strict=True):
        basis = np.linalg.qr(product.T)[0]
        coordinates = product @ basis
        weight = np.zeros((product.shape[1], product.shape[1]))
        weight[:inputs, :inputs] = upper_triangle
        weight[:, inputs:] = basis @ lower_triangle
        first_block = product[:, :inputs] @ upper_triangle
        product = np.hstack([first_block, coordinates @ lower_triangle])
        weights.insert(0, weight)
    return weights


def _on_device(weight: _Array) -> jax.Array:
    """The matrix as an array of JAX in the working precision."""
    return jax.numpy.asarray(weight, real_dtype())
