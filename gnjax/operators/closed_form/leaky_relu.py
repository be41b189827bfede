"""The Gauss-Newton matrix of a one-hidden-layer Leaky-ReLU network F(x) = W sigma(V x) (Eq 10).

With z = V X (m, n) and sigma(z) = sigma'(z) z, the slopes sigma'(z_ij), 1 where z_ij >= 0 and
``slope`` elsewhere, are the diagonals of the paper's Lambda^i. At exactly 0 the slope is 1: what
``jax.nn.leaky_relu`` differentiates to (``jax.nn.relu`` takes 0 there). The signs are those of z
as computed, as for every evaluation of the network in the same precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from gnjax.numerics.rounding import gamma, spectral_error, unit_roundoff
from gnjax.numerics.validation import check_finite_number, check_matrix
from gnjax.operators.base import Dense, Factored

_FACTOR_WORK = 1e10  # rows * columns * min(rows, columns): seconds for the singular values of J
_LARGEST_MATRIX = 20_000  # 3.2 GB in float64


@dataclass(frozen=True)
class LeakyLayer:
    """What Eqs 10 and 11 are made of, for checked V (m, d), W (k, m), X (d, n).

    Attributes:
      before: V X, (m, n).
      slopes: sigma'(V X), (m, n); row i is the diagonal of Lambda^i.
      hidden: sigma(V X), (m, n); Gamma = hidden^T hidden.
      hidden_error: a bound on ||hidden - exact||_F for these slopes.
    """

    inner: jax.Array  # V
    outer: jax.Array  # W
    inputs: jax.Array  # X
    slope: float
    before: jax.Array
    slopes: jax.Array
    hidden: jax.Array
    hidden_error: float


def leaky_relu_gauss_newton(
    V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float
) -> Dense | Factored:
    """sum_i Lambda^i X^T X Lambda^i (x) w_i w_i^T + Gamma (x) I_k, kn x kn (Eq 10).

    w_i is column i of W, v_i row i of V, and Gamma = sum_i Lambda^i X^T v_i^T v_i X Lambda^i. This
    is J J^T for the Jacobian J of all outputs, sample by sample, with respect to V and W; no 1/n.

    Small problems come back as ``Factored``, so that the condition number comes from the singular
    values of J. Otherwise J, with m (d + k) columns, is far larger than the matrix, which is formed
    without it in O((kn)^2 m) operations.

    Args:
      V: (m, d), the hidden layer.
      W: (k, m), the output layer.
      X: (d, n), one column for each sample.
      slope: of sigma for negative arguments, in [0, 1]; 0 is ReLU and 1 the linear network.
    """
    layer = leaky_layer(V, W, X, slope)
    hidden, samples = layer.hidden.shape
    outputs = layer.outer.shape[0]
    rows, columns = outputs * samples, hidden * (min(layer.inputs.shape) + outputs)
    if rows * columns * min(rows, columns) <= _FACTOR_WORK:
        return _factored(layer)
    if rows > _LARGEST_MATRIX:
        msg = (
            f"{outputs} outputs on {samples} samples make a matrix of {rows} rows, "
            f"{8e-9 * rows**2:.0f} GB; draw at most {_LARGEST_MATRIX // outputs} samples"
        )
        raise ValueError(msg)
    return Dense(*_form(layer.outer, layer.inputs, layer.slopes, layer.hidden, layer.hidden_error))


def leaky_layer(V: ArrayLike, W: ArrayLike, X: ArrayLike, slope: float) -> LeakyLayer:
    """The checked network with its slopes and activations."""
    inner, outer, inputs = (check_matrix(name, x) for name, x in (("V", V), ("W", W), ("X", X)))
    slope = check_finite_number("slope", slope)
    if not 0 <= slope <= 1:
        msg = f"slope={slope} is not between 0 (ReLU) and 1 (the linear network)"
        raise ValueError(msg)
    if inner.shape[1] != inputs.shape[0]:
        msg = (
            f"V has {inner.shape[1]} columns but X has {inputs.shape[0]} rows; X is (d, n) with "
            "one column for each sample (transpose it if samples are rows)"
        )
        raise ValueError(msg)
    if outer.shape[1] != inner.shape[0]:
        msg = f"W has {outer.shape[1]} columns but V has {inner.shape[0]} rows; W V must chain"
        raise ValueError(msg)
    before, slopes, hidden, rounding = _activations(inner, inputs, slope)
    return LeakyLayer(inner, outer, inputs, slope, before, slopes, hidden, float(rounding))


@jax.jit
def _activations(
    inner: jax.Array, inputs: jax.Array, slope: float
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """V X, sigma'(V X), sigma(V X), and the Frobenius norm of gamma sigma'(V X) o |V| |X|."""
    before = jnp.matmul(inner, inputs, precision="highest")
    slopes = jnp.where(before >= 0, 1.0, slope).astype(before.dtype)
    absolute = jnp.matmul(jnp.abs(inner), jnp.abs(inputs), precision="highest")
    rounding = gamma(inner.shape[1] + 1, before.dtype) * jnp.linalg.norm(slopes * absolute)
    return before, slopes, slopes * before, rounding


def _factored(layer: LeakyLayer) -> Factored:
    """J as in Lemma 3, with a bound on its error."""
    inputs, moved = _compact(layer.inputs)
    factor, error = _jacobian(layer.outer, inputs, layer.slopes, layer.hidden, moved)
    return Factored(factor, error + layer.hidden_error)


@jax.jit
def _jacobian(
    outer: jax.Array, inputs: jax.Array, slopes: jax.Array, hidden: jax.Array, moved: float
) -> tuple[jax.Array, jax.Array]:
    """[w_ci Lambda^i_jj x_aj, sigma(V X)^T (x) I_k], rows (j, c), and a bound on the first error.

    A change E of X changes the first block by at most ||E|| ||W||, as slopes are at most 1.
    """
    samples, outputs = inputs.shape[1], outer.shape[0]
    first = jnp.einsum("ci,ij,aj->jcia", outer, slopes, inputs, precision="highest")
    first = first.reshape(samples * outputs, -1)
    second = jnp.kron(hidden.T, jnp.eye(outputs, dtype=hidden.dtype))
    rounding = 2 * unit_roundoff(first.dtype) * jnp.linalg.norm(first)
    factor = jnp.concatenate([first, second], axis=1)
    return factor, rounding + moved * jnp.linalg.norm(outer)


def _compact(inputs: jax.Array) -> tuple[jax.Array, float]:
    """R (n, n) with R^T R = X^T X where d > n, as X enters Eq 10 only so; and how far X moved."""
    if inputs.shape[0] <= inputs.shape[1]:
        return inputs, 0.0
    host = np.asarray(inputs)
    triangle = scipy.linalg.qr(host, mode="r", check_finite=False)[0][: host.shape[1]]
    moved = spectral_error(host.shape[0], inputs.dtype) * float(np.linalg.norm(host))
    return jnp.asarray(triangle), moved


@jax.jit
def _form(
    outer: jax.Array,
    inputs: jax.Array,
    slopes: jax.Array,
    hidden: jax.Array,
    hidden_error: float,
) -> tuple[jax.Array, jax.Array]:
    """(X^T X (x) 1 1^T) o (P P^T) + Gamma (x) I with P_(jc),i = w_ci Lambda^i_jj.

    The rounding of the first term is at most gamma |J_V| |J_V|^T entry by entry, of norm at most
    ||J_V||_F^2 = sum_ij |w_i|^2 (Lambda^i_jj)^2 |x_j|^2.
    """
    units, samples = slopes.shape
    outputs, size = outer.shape[0], inputs.shape[0]
    paths = (slopes.T[:, None, :] * outer[None, :, :]).reshape(samples * outputs, units)
    products = jnp.matmul(paths, paths.T, precision="highest")
    products = products.reshape(samples, outputs, samples, outputs)
    gram = jnp.matmul(inputs.T, inputs, precision="highest")
    activations = jnp.matmul(hidden.T, hidden, precision="highest")
    matrix = products * gram[:, None, :, None]
    matrix += activations[:, None, :, None] * jnp.eye(outputs, dtype=outer.dtype)[None, :, None, :]
    lengths = jnp.sum(outer**2, axis=0)[:, None], jnp.sum(inputs**2, axis=0)[None, :]
    energy = jnp.sum(lengths[0] * slopes**2 * lengths[1])
    norm = jnp.linalg.norm(hidden)
    error = (
        gamma(units + size + 6, outer.dtype) * energy
        + gamma(units + 2, outer.dtype) * norm**2
        + (2 * norm + hidden_error) * hidden_error
    )
    return matrix.reshape(samples * outputs, -1), error
