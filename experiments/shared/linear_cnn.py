"""Linear CNNs of any depth at initialisation, and their Gauss-Newton matrix on whitened images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

import gnjax
from gnjax import data as datasets
from gnjax.models.cnn import output_length
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.operators.closed_form.linear import linear_factors

WHITENINGS = ("zca", "pca")
WHITENED_ON = ("drawn", "all")


@dataclass(frozen=True, eq=False)
class Images:
    """What a linear network sees of n samples: R (d, r) with R R^T = Sigma."""

    root: NDArray[np.float64]
    samples: int
    source: str


@cache
def images(data: str, samples: int, seed: int, side: int, whitening: str, on: str) -> Images:
    """Draw, downsample to ``side`` (0: not at all) and whiten; loaded once a process.

    ``on`` says whether whitening is that of the samples drawn, whose Sigma is then the identity on
    its range, or that of the whole data set, whose samples have a Sigma near it.
    """
    whole = datasets.load(data, samples=samples if on == "drawn" else None, seed=seed)
    inputs = whole.inputs
    if side:
        inputs = datasets.downsample(inputs, whole.shape, (side, side))
    white = replace(whole, inputs=datasets.whiten(inputs, method=whitening).inputs)
    drawn = white if on == "drawn" else datasets.subsample(white, samples, seed)
    _, roots, axes = np.linalg.svd(drawn.inputs / math.sqrt(samples), full_matrices=False)
    kept = roots > max(drawn.inputs.shape) * np.finfo(float).eps * roots[0]
    root = axes[kept].T * roots[kept]
    size = f", downsampled to {side} x {side}" if side else ""
    when = "of the samples drawn" if on == "drawn" else "of the whole data set, then drawn"
    source = f"{drawn.source}{size}, whitened by {whitening.upper()} {when}: rank {kept.sum()}"
    return Images(root, samples, source)


def initial_weights(
    length: int,
    outputs: int,
    kernel: int,
    filters: Sequence[int],
    name: str,
    seed: int,
    **options: Any,
) -> tuple[list[NDArray[np.float64]], jax.Array]:
    """Kernels (F_l, F_{l-1}, K) and the head (k, F positions), drawn as by LinearCNN."""
    key, channels = jax.random.key(seed), 1
    kernels = []
    for layer, count in enumerate(filters, start=1):
        drawn = _layer(jax.random.fold_in(key, layer), channels * kernel, count, name, options)
        kernels.append(np.asarray(drawn).reshape(count, channels, kernel))
        length, channels = output_length(length, kernel), count
    last = jax.random.fold_in(key, len(filters) + 1)
    return kernels, _layer(last, channels * length, outputs, name, options)


def _layer(key: jax.Array, fan_in: int, fan_out: int, name: str, options: Any) -> jax.Array:
    return gnjax.initializers.chain(key, (fan_in, fan_out), name, **options)[0]


def gauss_newton(
    kernels: Sequence[NDArray[np.float64]], head: jax.Array, root: NDArray[np.float64]
) -> gnjax.Factored:
    """J J^T, k r x k r, for F(x) = H T_{L-1} .. T_1 x with shared weights and Sigma = R R^T.

    J = [V_1, .., V_{L-1}, I_k (x) R^T T_1^T .. T_{L-1}^T], the Jacobian of C(theta) R by the
    weights of every convolution and by H. For the kernel w_l, whose Toeplitz matrix is T_l,
    V_l has a column vec(S_l (dT_l / dw) T_{l-1} .. T_1 R) for every weight w, where
    S_l = H T_{L-1} .. T_{l+1}. For L = 2 and Sigma of full rank it is
    ``gnjax.linear_cnn_gauss_newton``; here a Sigma of lower rank makes the matrix smaller.

    The chain of matrices R, T_1, .., T_{L-1}, H is a linear network whose first layer is not
    trained; ``linear_factors`` gives its products with their rounding.
    """
    factors = linear_factors([root, *_toeplitz_matrices(kernels, len(root)), head])
    lefts, rights = (
        [np.asarray(side) for side in sides] for sides in (factors.lefts, factors.rights)
    )
    errors = np.asarray(factors.left_errors), np.asarray(factors.right_errors)
    blocks, moved = [], 0.0
    for layer, weights in enumerate(kernels, start=1):
        left, right = lefts[layer], rights[layer]
        blocks.append(_shared_weights(left, right, weights.shape))
        moved += weights.shape[2] ** 0.5 * _product_error(left, right, *(e[layer] for e in errors))
    inner = rights[-1]  # R^T T_1^T .. T_{L-1}^T, (r, F positions)
    triangle = scipy.linalg.qr(inner.T, mode="r", check_finite=False)[0][: len(inner)]
    blocks.append(np.kron(np.eye(len(head)), triangle.T))  # the same product with its transpose
    rounding = spectral_error(inner.shape[1], inner.dtype)
    moved += float(errors[1][-1] + rounding * np.linalg.norm(inner))
    return gnjax.Factored(jnp.asarray(np.concatenate(blocks, axis=1)), jnp.asarray(moved))


def _toeplitz_matrices(kernels: Sequence[NDArray[np.float64]], length: int) -> list[jax.Array]:
    matrices = []
    for weights in kernels:
        matrices.append(gnjax.toeplitz(weights, length))
        length = output_length(length, weights.shape[2])
    return matrices


def _shared_weights(
    left: NDArray[np.float64], right: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """The columns vec(S_f Z_ct), (k r, F C K), Z_ct the inputs of channel c under tap t."""
    filters, channels, size = shape
    outputs, rank = len(left), len(right)
    after = left.reshape(outputs, filters, -1)  # (k, F, positions)
    before = right.reshape(rank, channels, -1)  # (r, C, length)
    positions = after.shape[2]
    taps = [
        np.tensordot(after, before[:, :, t : t + positions], axes=(2, 2)) for t in range(size)
    ]  # (k, F, r, C) each
    columns = np.stack(taps, axis=-1).transpose(0, 2, 1, 3, 4)
    return columns.reshape(outputs * rank, -1)


def _product_error(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    left_error: float,
    right_error: float,
) -> float:
    """||fl(S Z) - exact||_F for S and Z that are left_error and right_error from exact."""
    norms = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    rounding = gamma(left.shape[1], left.dtype) * norms[0] * norms[1]
    return (norms[0] + left_error) * right_error + left_error * norms[1] + rounding
