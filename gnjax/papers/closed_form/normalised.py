"""Gauss-Newton matrices of one-hidden-layer linear networks with normalisation, in closed form.

F(x) = W (gamma o N(V x) + beta), without an activation, differentiated by V, W, gamma and beta at
gamma = 1 and beta = 0, the initial values. N is BatchNorm, with the statistics of the n samples,
with those held fixed or with the initial ones, or LayerNorm. The Jacobian (n k, p) is never formed:
its range is known, and a factor with the same singular values has far fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jax.typing import ArrayLike
from numpy.typing import NDArray

from gnjax.numerics.certificate import MEASURED
from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import conversion_error, raised, stored_bound
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.rounding import gamma, iteration_errors, spectral_error, unit_roundoff
from gnjax.numerics.validation import check_finite_number, check_matrix
from gnjax.operators.stored.matrices import Factored

_Array = NDArray[np.floating]

STATISTICS = ("batch", "frozen", "initial")
"""Of BatchNorm: those of the samples, the same held fixed, and mean 0 with variance 1."""


@dataclass(frozen=True)
class _Network:
    """Checked V (m, d), W (k, m), samples x (n, d) and the epsilon of the variances, in float64
    whatever the working precision is."""

    inner: _Array
    outer: _Array
    x: _Array
    epsilon: float


def batch_norm_gauss_newton(
    V: ArrayLike, W: ArrayLike, x: ArrayLike, *, statistics: str = "batch", epsilon: float = 1e-5
) -> Factored:
    """The Gauss-Newton matrix J J^T / n of F(x) = W BN(V x), for BatchNorm without an activation.

    It has k (r + 1) rows, coordinates of its range, for the rank r of the centred samples X_c (n,
    d). With R (r, d) such that R^T R = X_c^T X_c / n, and s_i^2 = |R v_i|^2 + epsilon, the outputs
    on the batch are X_c C^T + 1 c^T with C = W diag(gamma / s) V and c = W beta. So J J^T / n has
    the non-zero eigenvalues of J' J'^T for the Jacobian J' of (C R^T, c), whose columns, with
    u_i = R v_i / s_i, are those of

        w_i (x) (I - u_i u_i^T) R / s_i   by v_i, because the statistics move with it,
        e_c (x) u_i by W_ci,   w_i (x) u_i by gamma_i,   w_i (x) e_0 by beta_i,

    e_0 being the coordinate of the constant. "frozen" holds s and the mean of V x fixed: v_i then
    has w_i (x) [R; mean(x)^T] / s_i. "initial" holds them at 1 and 0, so that BN only divides by
    s_i = sqrt(1 + epsilon): v_i has the same, and u_i is [R; mean(x)^T] v_i / s_i.

    ``error`` is computed from the roundings of every step, with LAPACK's constant for the singular
    value decomposition of X_c, which is seen and not proved. No rank is assumed: R has min(n - 1,
    d) rows less one for every constant feature, which is the rank of X_c or more. Where X_c is
    deficient beyond that, the matrix has eigenvalues at its floor.

    Args:
      V: (m, d), the hidden layer.
      W: (k, m), the output layer.
      x: (n, d), samples.
      statistics: "batch" are those of x and move with V; "frozen" are those of x, held fixed, as
        in evaluation mode after training; "initial" are the mean 0 and the variance 1 that a layer
        has in evaluation mode before its first step.
      epsilon: added to the variances.
    """
    if statistics not in STATISTICS:
        msg = f"statistics={statistics!r} is not one of {', '.join(STATISTICS)}"
        raise ValueError(msg)
    net = _checked(V, W, x, epsilon)
    mean = net.x.mean(axis=0)
    root, root_error = _root(net.x, mean)
    affine = np.concatenate([root, mean[None]])  # [R; mean^T], (r + 1, d)
    images = net.inner @ affine.T  # (m, r + 1)
    if statistics != "initial":
        images[:, -1] = 0  # the mean of V x is subtracted
    variances = np.square(images).sum(axis=1) if statistics != "initial" else np.ones(len(images))
    deviations = np.sqrt(variances + net.epsilon)
    units = images / deviations[:, None]  # u_i
    by_inner = np.broadcast_to(affine, (len(units), *affine.shape))  # times s_i
    if statistics == "batch":
        by_inner = by_inner - units[:, :, None] * (units @ affine)[:, None, :]
        by_inner[:, -1] = 0
    factor = _batch_norm_blocks(net.outer, by_inner / deviations[:, None, None], units)
    error = _batch_norm_error(net, root, root_error, deviations)
    error += 2 * unit_roundoff(factor.dtype) * float(np.linalg.norm(factor))  # of the last product
    return _stored_factor(factor, error)


def layer_norm_gauss_newton(
    V: ArrayLike, W: ArrayLike, x: ArrayLike, *, epsilon: float = 1e-5
) -> Factored:
    """The Gauss-Newton matrix J J^T / n of F(x) = W LN(V x), for LayerNorm without an activation.

    It has k (d + 1) + n rows, coordinates of a space that contains its range. With M = V less the
    mean of its rows, s_j^2 = |M x_j|^2 / m + epsilon, y_j = x_j / s_j, h_j = M y_j and f_j = W h_j,
    a change of the parameters changes the outputs by

        dF_j = A y_j - b_j f_j + dc,   b_j = h_j^T dV y_j / m,   dc = W dbeta,
        A = W P dV + dW M + W diag(dgamma) M,   P = I - 1 1^T / m.

    So J = Phi T for Phi (n k, k d + n + k) made of the y_j and f_j and T made of W and M, and
    with Phi / sqrt(n) = Q R the factor is R T. Only the k + d directions of W P and M among the m
    hidden units enter the columns of V and W, in any orthonormal basis of them.

    ``error`` is to first order in the roundings, with LAPACK's constant for two QR factorisations:
    seen and not proved. No rank is assumed.

    Args: as of :func:`batch_norm_gauss_newton`.
    """
    net = _checked(V, W, x, epsilon)
    centred = net.inner - net.inner.mean(axis=0)  # M
    hidden = net.x @ centred.T
    deviations = np.sqrt(np.square(hidden).mean(axis=1, keepdims=True) + net.epsilon)
    rows = net.x / deviations
    outputs = hidden / deviations @ net.outer.T
    (n, d), k = rows.shape, len(net.outer)
    phi, samples = np.zeros((n, k, k * d + n + k), rows.dtype), np.arange(n)
    for c in range(k):  # (A y_j)_c - b_j f_jc + dc_c
        phi[:, c, c * d : (c + 1) * d] = rows
        phi[samples, c, k * d + samples] = -outputs[:, c]
        phi[:, c, k * d + n + c] = 1
    triangle = triangular_factor(phi.reshape(n * k, -1) / n**0.5)
    moves = _layer_norm_moves(net.outer, centred, rows)
    factor = triangle @ moves
    # The error of M x_j in units of eps m^{1/2} s_j is a few roundings of |V| |x_j|. It is
    # multiplied by the norms of Phi and T, and so is the rounding of Q R and of the product.
    reach = float((np.linalg.norm(rows, axis=1) * np.linalg.norm(net.inner)).max())
    reach /= len(net.inner) ** 0.5
    size = max(n * k, sum(net.inner.shape))
    rounding = 2 * (2 + reach) * spectral_error(size, rows.dtype)
    return _stored_factor(
        factor, rounding * float(np.linalg.norm(triangle) * np.linalg.norm(moves))
    )


def batch_norm_rank(d: int, k: int, m: int) -> int:
    """The rank of the Jacobian J of F(x) = W BN(V x), on data that have the rank d when centred.

    V is (m, d), W (k, m), and BN has any statistics. A change of the parameters changes the map
    C = W diag(gamma / s) V (k, d) and the constant c = W beta. gamma_i moves C along its row u_i,
    which v_i cannot, so that C takes every change W Y + Z V, and c every W beta: k d + k less what
    deficient factors leave out. The other directions of the m (d + k + 2) parameters change
    nothing, as scaling w_i against gamma_i does.
    """
    missing = (k - min(k, m)) * (d - min(d, m))
    return k * d - missing + min(k, m)


def layer_norm_rank(d: int, k: int, m: int, n: int, epsilon: float) -> int:
    """The rank of the Jacobian J of F(x) = W LN(V x) for m > d >= k >= 2, with V (m, d), W (k, m).

    The n samples have the rank d and are in general position. A change of the parameters changes
    the output on sample j by A y_j - b_j f_j + dc (:func:`layer_norm_gauss_newton`). A takes all
    k d values, dc k, and b_j = x_j^T B x_j / (m s_j^2) for any symmetric B, so that
    min(n, d (d + 1) / 2) of them are free. A = C with all b_j equal changes nothing: C y_j = f_j.
    Such b are within reach where n <= d (d + 1) / 2, and else for epsilon = 0 alone, by
    B = M^T M. And J has n k rows.
    """
    if not m > d:
        msg = f"LayerNorm of {m} units on inputs of rank {d}: the rank is known for m > d only"
        raise ValueError(msg)
    pairs = d * (d + 1) // 2
    return min(n * k, k * (d + 1) + min(n, pairs) - int(n <= pairs or epsilon == 0))


def _stored_factor(factor: _Array, error: float) -> Factored:
    """J J^T for the factor J in the working precision, whose rounding is added to its error."""
    array = on_device(factor, real_dtype())
    total = raised(error + conversion_error(factor, array))
    return Factored(array, stored_bound(total, array.dtype), MEASURED)


def _checked(V: ArrayLike, W: ArrayLike, x: ArrayLike, epsilon: float) -> _Network:
    """The network and its inputs in float64, with shapes that chain."""
    for name, matrix in (("V", V), ("W", W), ("x", x)):
        check_matrix(name, matrix)
    inner, outer, inputs = (np.asarray(matrix, np.float64) for matrix in (V, W, x))
    epsilon = check_finite_number("epsilon", epsilon)
    if epsilon < 0:
        msg = f"epsilon={epsilon} is added to variances and must not be negative"
        raise ValueError(msg)
    if inner.shape[1] != inputs.shape[1]:
        msg = (
            f"V has {inner.shape[1]} columns and x has {inputs.shape[1]}; x is (n, d) with one row "
            "for each sample (transpose it if samples are columns)"
        )
        raise ValueError(msg)
    if outer.shape[1] != inner.shape[0]:
        msg = f"W has {outer.shape[1]} columns but V has {inner.shape[0]} rows; W V must chain"
        raise ValueError(msg)
    return _Network(inner, outer, inputs, epsilon)


def _root(x: _Array, mean: _Array) -> tuple[_Array, float]:
    """R (r, d) with R^T R = X_c^T X_c / n, and a bound on ||stored - exact||_F.

    X_c = x - 1 ``mean``^T (n, d) has at most the rank r = min(n - 1, d - c), c the number of
    constant features: its rows add up to zero, and those columns are zero.
    """
    constant = (x == x[:1]).all(axis=0)
    centred = np.where(constant, 0.0, x - mean) / len(x) ** 0.5
    _, roots, axes = scipy.linalg.svd(centred, full_matrices=False, check_finite=False)
    rank = min(len(x) - 1, int((~constant).sum()))
    size = float(np.linalg.norm(x)) / len(x) ** 0.5
    root_error = (spectral_error(len(x), x.dtype) + gamma(len(x) + 1, x.dtype)) * size
    root_error += float(iteration_errors(roots)[0])
    return axes[:rank] * roots[:rank, None], root_error


def _batch_norm_error(net: _Network, root: _Array, root_error: float, deviations: _Array) -> float:
    """A bound on ||computed factor - exact||_F of BatchNorm's matrix, but for its last product.

    R is within ``root_error`` of the exact one, and s_i are the ``deviations``. With e_i the share
    of s_i by which R v_i is off, u_i moves by 2 e_i, and the block D_i, by which w_i (x) D_i
    depends on v_i, by (root_error + 5 e_i ||[R; mean^T]||) / s_i.
    """
    size = float(np.linalg.norm(net.x)) / len(net.x) ** 0.5  # the Frobenius norm of [R; mean^T]
    product = spectral_error(net.x.shape[1], net.x.dtype) * size
    shares = np.linalg.norm(net.inner, axis=1) * (root_error + product) / deviations
    by_inner = (root_error + 5 * shares * size) / deviations
    lengths, outputs = np.square(net.outer).sum(axis=0), len(net.outer)
    return float(np.sqrt((lengths * by_inner**2 + (lengths + outputs) * 4 * shares**2).sum()))


def _batch_norm_blocks(outer: _Array, by_inner: _Array, units: _Array) -> _Array:
    """The factor (k (r + 1), ..) of BatchNorm's matrix, with a block of columns for each parameter.

    For every hidden unit i they are w_i (x) D_i for V, e_c (x) u_i for W and every output c,
    w_i (x) u_i for gamma, and w_i (x) e_0 for beta, where e_0 is the last unit vector, the
    coordinate of the constant. The column w_i of W is in ``outer`` (k, m), the normalised unit u_i
    in ``units`` (m, r + 1), and its derivative D_i by the row i of V in ``by_inner`` (m, r + 1, d).
    """
    outputs, size = len(outer), units.shape[1]
    blocks = [
        np.einsum("ci,iba->cbia", outer, by_inner),
        np.einsum("ce,ib->cbei", np.eye(outputs), units),
        np.einsum("ci,ib->cbi", outer, units),
        np.einsum("ci,b->cbi", outer, np.eye(size)[-1]),
    ]
    return np.concatenate([b.reshape(outputs * size, -1) for b in blocks], axis=1)


def _layer_norm_moves(outer: _Array, centred: _Array, rows: _Array) -> _Array:
    """T: how A, b and dc (rows) change with V, W, gamma and beta (columns), for LayerNorm.

    The columns for V and W are in an orthonormal basis of the q directions of W P and M.
    """
    (k, m), d, n = outer.shape, centred.shape[1], len(rows)
    spanned = np.concatenate([(outer - outer.mean(axis=1, keepdims=True)).T, centred], axis=1)
    compact = triangular_factor(spanned)  # (q, k + d), q = min(m, k + d)
    after, before = compact[:, :k].T, compact[:, k:]  # W P and M in that basis
    q = len(compact)
    moves = np.zeros((k * d + n + k, q * d + k * q + 2 * m), rows.dtype)
    by_inner, by_outer, by_scale, by_shift = np.split(moves, np.cumsum([q * d, k * q, m]), axis=1)
    by_inner[: k * d] = np.kron(after, np.eye(d))
    hidden = rows @ before.T / m
    by_inner[k * d : k * d + n] = (hidden[:, :, None] * rows[:, None, :]).reshape(n, -1)
    by_outer[: k * d] = np.kron(np.eye(k), before.T)
    by_scale[: k * d] = np.einsum("ci,ia->cai", outer, centred).reshape(k * d, m)
    by_shift[k * d + n :] = outer
    return moves
