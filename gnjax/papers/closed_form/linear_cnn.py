"""Convolutions as matrices (Appendix B), and the Gauss-Newton matrix of the linear CNN.

A convolution here is what deep learning calls one: a cross-correlation, kernels not flipped.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.models.cnn import output_length
from gnjax.numerics.certificate import MEASURED, PROVED, weakest
from gnjax.numerics.host import on_device
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import (
    conversion_error,
    frobenius_norm,
    raised,
    stored_bound,
    underflow,
)
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.rounding import gamma
from gnjax.numerics.validation import check_matrix
from gnjax.operators.factorisation import compact, compaction_error
from gnjax.operators.stored.matrices import Dense, Factored
from gnjax.papers.closed_form.from_weights import linear_factors


def toeplitz(kernels: ArrayLike, length: int, stride: int = 1, padding: int = 0) -> jax.Array:
    """The matrix T of a 1-D convolution: T x is its output, channel after channel (Appendix B).

    T_(i,p),(j,q) = w_ij[q - p stride + padding] where that is an index of the kernel, else 0.

    Args:
      kernels: (filters, kernel) for one input channel, or (filters, channels, kernel).
      length: of every input channel.
      stride: the distance between outputs.
      padding: the number of zeros on each side of the input.

    Returns:
      (filters * length_out, channels * length), see :func:`gnjax.models.cnn.output_length`.

    >>> gnjax.papers.toeplitz([[1.0, 2.0]], length=3).tolist()
    [[1.0, 2.0, 0.0], [0.0, 1.0, 2.0]]
    """
    return on_device(_toeplitz(_check_kernels(kernels), length, stride, padding), real_dtype())


def _toeplitz(fibres: np.ndarray, length: int, stride: int, padding: int) -> np.ndarray:
    """The matrix (f positions, c length) of a 1-D convolution with the kernels ``fibres``.

    They are (f, c, size) for f filters on c channels of ``length`` entries. Position p of the
    output meets entry q of the input with the kernel's entry q - p stride + padding, if there is
    one.
    """
    filters, channels, size = fibres.shape
    positions = output_length(length, size, stride, padding)
    taps = np.arange(length)[None, :] - stride * np.arange(positions)[:, None] + padding
    inside = (taps >= 0) & (taps < size)
    blocks = inside * fibres[:, :, np.clip(taps, 0, size - 1)]  # (f, channels, positions, length)
    return blocks.transpose(0, 2, 1, 3).reshape(filters * positions, channels * length)


def linear_cnn_gauss_newton(
    kernels: ArrayLike,
    head: ArrayLike,
    length: int,
    covariance: ArrayLike | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    limits: Limits = LIMITS,
) -> Dense | Factored:
    """J J^T, k d x k d, of the two-layer linear CNN F(x) = H T(w) x of Figure 8.

    J is the Jacobian of C(theta) Sigma^{1/2}, row by row, for the linear map C = H T(w) and
    theta = (w, H). G has the non-zero eigenvalues of (1/n) sum_i J_i^T J_i, and of the data it
    holds Sigma only. The block of H is that of a linear network with first layer T(w); the block
    of w adds up the columns that share a weight:

    G = I_k (x) (Sigma^{1/2} T^T T Sigma^{1/2}) + sum_(f,t) u_ft u_ft^T,
    u_ft = vec(H_f S_t Sigma^{1/2}), with S_t = dT / dw_ft, which picks the inputs under tap t.

    Small problems come back as ``Factored``, with J reduced to at most k d + filters * kernel
    columns; others as the matrix, formed without J.

    ``error`` is that of :func:`gnjax.papers.closed_form.from_weights.linear_factors`, proved up to
    256 inputs or positions and else probable, with the rounding of the block of w and, where there
    are more positions than inputs, LAPACK's constant for a QR factorisation, which is seen and not
    proved. A covariance of which small eigenvalues are set to zero makes it the matrix of that
    numerical rank.

    Args:
      kernels: w, (filters, kernel).
      head: H, (k, filters * length_out), filter after filter.
      length: d.
      covariance: Sigma = X X^T / n, (d, d); None for whitened data (the identity).
      stride: of the convolution.
      padding: zeros on each side of the input.
      limits: of memory and work.

    >>> kernels = np.array([[1.0, 2.0], [0.5, -1.0]])  # 2 filters of 2 entries
    >>> head = np.random.default_rng(0).standard_normal((3, 2 * 4))  # 3 outputs of 2 x 4 features
    >>> gnjax.papers.linear_cnn_gauss_newton(kernels, head, length=5).shape  # k d
    (15, 15)
    """
    taps = check_matrix("kernels", kernels)
    outer = _check_head(head, taps, length, stride, padding)
    matrix = _toeplitz(np.asarray(kernels)[:, None], length, stride, padding)
    factors = linear_factors([matrix, head], covariance)
    root, inner = factors.rights  # Sigma^{1/2}, and Sigma^{1/2} T(w)^T
    norm = float(np.linalg.norm(np.asarray(inner)))
    inner_error = float(factors.right_errors[1]) + compaction_error(inner.shape, inner.dtype, norm)
    inner = on_device(compact(np.asarray(inner)))
    shared = _shared_weights(outer, root, taps.shape, stride, padding)
    shared_error = _shared_error(
        outer, root, taps.shape[1], float(factors.right_errors[0]), conversion_error(head, outer)
    )
    compacted = factors.rights[1].shape[1] > factors.rights[1].shape[0]
    evidence = weakest(factors.evidence, MEASURED if compacted else PROVED)
    evidence_fields = (evidence, factors.failure, factors.assumed)
    rows = outer.shape[0] * length
    columns = outer.shape[0] * inner.shape[1] + shared.shape[1]
    if rows * columns * min(rows, columns) <= limits.factor_work:
        block = jnp.kron(jnp.eye(outer.shape[0], dtype=inner.dtype), inner)
        factor = jnp.concatenate([block, shared], axis=1)
        factor_error = stored_bound(raised(inner_error + shared_error), inner.dtype)
        return Factored(factor, factor_error, *evidence_fields)
    if rows > limits.matrix_rows:
        msg = (
            f"{outer.shape[0]} outputs on {length} inputs make a matrix of {rows} rows, "
            f"{8e-9 * rows**2:.0f} GB; downsample the inputs to at most "
            f"{limits.matrix_rows // outer.shape[0]}"
        )
        raise ValueError(msg)
    error = raised(_gram_error(inner, inner_error) + _gram_error(shared, shared_error))
    return Dense(
        _form(inner, shared, outer.shape[0]), stored_bound(error, inner.dtype), *evidence_fields
    )


def _check_kernels(kernels: ArrayLike) -> np.ndarray:
    """The kernels as an array (filters, channels, kernel), from that or (filters, kernel)."""
    host = np.asarray(kernels)
    if host.ndim not in (2, 3) or 0 in host.shape:
        msg = (
            "kernels must have shape (filters, kernel) or (filters, channels, kernel), got "
            f"{host.shape}"
        )
        raise ValueError(msg)
    check_matrix("kernels", host.reshape(host.shape[0], -1))
    return host.reshape(host.shape[0], -1, host.shape[-1])


def _check_head(
    head: ArrayLike, kernels: jax.Array, length: int, stride: int, padding: int
) -> jax.Array:
    """The output layer H as an array (k, filters positions); other widths are refused.

    ``kernels`` (filters, kernel) are those of the convolution on inputs of ``length`` entries.
    """
    outer = check_matrix("head", head)
    filters, size = kernels.shape
    positions = output_length(length, size, stride, padding)
    if outer.shape[1] != filters * positions:
        msg = (
            f"head has {outer.shape[1]} columns, but {filters} filters with {positions} outputs "
            f"each need {filters * positions}"
        )
        raise ValueError(msg)
    return outer


@partial(jax.jit, static_argnames=("shape", "stride", "padding"))
def _shared_weights(
    head: jax.Array, root: jax.Array, shape: tuple[int, ...], stride: int, padding: int
) -> jax.Array:
    """The columns vec(H_f S_t Sigma^{1/2}) for every filter f and tap t, (k d, filters kernel).

    They are the derivatives of H T(w) Sigma^{1/2} by the kernel weights w_ft. H_f (k, positions) is
    the part of the head for filter f, ``root`` is Sigma^{1/2} (d, d), and S_t picks the inputs that
    tap t meets at each position, so that S_t Sigma^{1/2} is a slice of the padded root.
    """
    filters, size = shape
    outputs, length = head.shape[0], root.shape[0]
    blocks = head.reshape(outputs, filters, -1)  # (k, filters, positions)
    reach = stride * (blocks.shape[2] - 1) + 1
    padded = jnp.pad(root, ((padding, padding), (0, 0)))
    columns = [
        jnp.einsum("cfp,pq->cqf", blocks, padded[t : t + reach : stride], precision="highest")
        for t in range(size)
    ]
    return jnp.stack(columns, axis=-1).reshape(outputs * length, filters * size)


def _shared_error(
    head: jax.Array, root: jax.Array, size: int, root_error: float, head_error: float
) -> float:
    """A bound in Frobenius norm on the error of the columns vec(H_f S_t Sigma^{1/2}).

    There is one for each filter f and each of ``size`` taps t of the kernel, for the head H and the
    part S_t of the inputs under the tap. ``root_error`` e is that of Sigma^{1/2}, and
    ``head_error`` h that of H. The columns of each of the ``size`` taps move by at most (||H||_F +
    h) e + h ||Sigma^{1/2}||_F, and by rounding gamma ||H||_F ||Sigma^{1/2}||_F and underflow. The
    taps' squares add up.
    """
    norm, spread = frobenius_norm(head), frobenius_norm(root)
    rounding = gamma(head.shape[1], head.dtype) * spread
    distance = (norm + head_error) * root_error + norm * rounding + head_error * spread
    distance += underflow(head.shape[1], head.shape[0] * root.size, head.dtype)
    return raised(size**0.5 * distance)


@partial(jax.jit, static_argnames="outputs")
def _form(inner: jax.Array, shared: jax.Array, outputs: int) -> jax.Array:
    """I_k (x) inner inner^T + shared shared^T, (k d, k d), for k = ``outputs``.

    ``inner`` (d, ..) is a factor of the block of H, and ``shared`` (k d, ..) that of the kernels.
    """
    length = inner.shape[0]
    gram = jnp.matmul(inner, inner.T, precision="highest")
    matrix = jnp.matmul(shared, shared.T, precision="highest")
    matrix = matrix.reshape(outputs, length, outputs, length)
    matrix += jnp.eye(outputs, dtype=gram.dtype)[:, None, :, None] * gram[None, :, None, :]
    return matrix.reshape(outputs * length, -1)


def _gram_error(factor: jax.Array, distance: float) -> float:
    """A bound on ||fl(F F^T) - exact|| for a factor F that is within ``distance`` of the exact one.

    It is (2 ||F|| + distance) distance, and the rounding gamma ||F||_F^2 of sums of one term more
    than F has columns, as the result is added to another matrix.
    """
    norm, (rows, columns) = frobenius_norm(factor), factor.shape
    rounding = gamma(columns + 1, factor.dtype) * norm**2 + underflow(
        columns, rows**2, factor.dtype
    )
    return (2 * norm + distance) * distance + rounding
