"""Two-layer linear CNNs on whitened images, and their Gauss-Newton matrix in two readings.

An image of side x side pixels is an input x of length d = side^2. T_1 (F P^2, d) is the matrix of a
convolution with F kernels of K x K, stride 1 and no padding, P = side - K + 1 (Appendix B, in two
dimensions). The second layer S is either the matrix T_2 of another convolution or a dense head H.

Toeplitz entries   Appendix B applies Lemma 2 to the matrices, so that every entry of T_1 and of S
                   is a parameter: G = S S^T (x) Sigma + I (x) Sigma^{1/2} T_1^T T_1 Sigma^{1/2}.
                   For whitened data G is a Kronecker sum, and its eigenvalues are all sums of an
                   eigenvalue of S S^T and one of T_1^T T_1, taken on the range of Sigma.
shared weights     The kernels are the parameters, as when the network is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import gnjax
from gnjax import data as datasets
from gnjax.models.cnn import output_length
from gnjax.numerics.rounding import gamma
from gnjax.operators import Dense

Array = NDArray[np.float64]

_FLOAT64 = jnp.dtype(jnp.float64)


@dataclass(frozen=True, eq=False)
class Images:
    """Whitened images: Sigma = R R^T is a projection, R (d, r) has orthonormal columns.

    ``root`` is None where r = d, since Sigma is then the identity whatever R is.
    """

    root: Array | None
    pixels: int
    rank: int
    samples: int
    source: str


@cache
def images(data: str, samples: int, seed: int, side: int, frame: int) -> Images:
    """Draw, downsample to ``side``, set a frame of so many pixels to zero, and whiten (by ZCA).

    A pixel that is zero in all samples has no direction in the range of Sigma. MNIST has a frame of
    such pixels; other data get one here.
    """
    drawn = datasets.load(data, samples=samples, seed=seed)
    inputs = drawn.inputs
    if drawn.shape != (side, side):
        inputs = datasets.downsample(inputs, drawn.shape, (side, side))
    inside = np.zeros((side, side), bool)
    inside[frame : side - frame, frame : side - frame] = True
    white = datasets.whiten(inputs * inside.ravel(), method="zca").inputs
    _, roots, axes = np.linalg.svd(white / math.sqrt(samples), full_matrices=False)
    rank = int((roots > 0.5).sum())  # whitened data have the singular values 0 and 1
    root = None if rank == side**2 else axes[:rank].T
    framed = f", a frame of {frame} pixels set to zero" if frame else ""
    source = f"{drawn.source}, {side} x {side}{framed}, whitened on these samples: rank {rank}"
    return Images(root, side**2, rank, len(white), source)


def first_kernels(size: int, filters: int, gain: float, seed: int) -> Array:
    """(F, K, K), Kaiming normal with variance gain / K^2, the same in every reading."""
    return _drawn(1, size**2, filters, gain, seed).reshape(filters, size, size)


def second_kernels(size: int, filters: int, channels: int, gain: float, seed: int) -> Array:
    """(C, F, K, K), with variance gain / (F K^2)."""
    drawn = _drawn(2, filters * size**2, channels, gain, seed)
    return drawn.reshape(channels, filters, size, size)


def dense_head(features: int, outputs: int, gain: float, seed: int) -> Array:
    """H (k, F P^2), with variance gain / (F P^2)."""
    return _drawn(2, features, outputs, gain, seed)


def _drawn(layer: int, fan_in: int, fan_out: int, gain: float, seed: int) -> Array:
    key, sizes = jax.random.fold_in(jax.random.key(seed), layer), (fan_in, fan_out)
    return np.asarray(gnjax.initializers.chain(key, sizes, "kaiming_normal", gain=gain)[0])


def inner_gram(kernels: Array, side: int) -> Dense:
    """T_1^T T_1, (d, d): at every position p, C = sum_f w_f w_f^T is added to the pixels under it.

    It costs P^2 K^4 additions, whatever the number of filters is.
    """
    size, flat = kernels.shape[1], kernels.reshape(len(kernels), -1)
    products, (taps, corners) = flat.T @ flat, places(size, side)
    gram = np.zeros((side**2, side**2))
    pixels = corners[:, None] + taps
    for tap, row in zip(taps, products, strict=True):
        gram[(corners + tap)[:, None], pixels] += row
    return _rounded(gram, len(kernels) + size**2, len(corners) * float((flat**2).sum()))


def _rounded(gram: Array, terms: int, trace: float) -> Dense:
    """A computed T^T T, whose entries are sums of ``terms`` products, with its rounding error.

    The error is at most gamma_n times the 2-norm of |T|^T |T|. This norm is at most the trace of
    |T|^T |T|, which is that of T^T T.
    """
    error = gamma(terms + 1, _FLOAT64) * trace
    return Dense(jnp.asarray(gram), jnp.asarray(error))


def places(size: int, side: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The offsets of a kernel's taps from its corner, and all places of its corner.

    Both are indices of pixels, which are counted row by row.
    """
    across, down = np.arange(size), np.arange(output_length(side, size))
    return (across[:, None] * side + across).ravel(), (down[:, None] * side + down).ravel()


def convolution_gram(kernels: Array, side: int) -> Dense:
    """T_2 T_2^T, (C Q^2, C Q^2), for kernels (C, F, K, K) on maps of side x side, Q = side - K + 1.

    Its entry at outputs (a, p) and (b, q) is sum_ft w_aft w_bf(t + p - q), which depends on the
    distance of the positions alone.
    """
    positions = output_length(side, kernels.shape[-1])
    gram = _spread(_correlations(kernels), positions)
    return _rounded(gram, kernels[0].size, positions**2 * float((kernels**2).sum()))


def _correlations(kernels: Array) -> Array:
    """sum_ft w_aft w_bf(t + s) at [a, b, s + K - 1] for shifts s from -(K - 1) to K - 1."""
    channels, size = len(kernels), kernels.shape[-1]
    found = np.zeros((channels, channels, 2 * size - 1, 2 * size - 1))
    for down in range(size):
        for across in range(1 - size, size):
            left = slice(max(0, -across), size - max(0, across))
            right = slice(max(0, across), size + min(0, across))
            here = kernels[:, :, : size - down, left].reshape(channels, -1)
            there = kernels[:, :, down:, right].reshape(channels, -1)
            product = here @ there.T
            found[:, :, size - 1 + down, size - 1 + across] = product
            found[:, :, size - 1 - down, size - 1 - across] = product.T
    return found


def _spread(correlations: Array, positions: int) -> Array:
    channels, reach = len(correlations), correlations.shape[-1] // 2
    shift = np.arange(positions)[:, None] - np.arange(positions)
    near = np.abs(shift) <= reach
    index = np.where(near, shift, 0) + reach
    blocks = correlations[:, :, index[:, None, :, None], index[None, :, None, :]]
    blocks = blocks * (near[:, None, :, None] & near[None, :, None, :])
    return blocks.transpose(0, 2, 3, 1, 4, 5).reshape(channels * positions**2, -1)


def head_gram(head: Array) -> Dense:
    """H H^T, (k, k)."""
    return _rounded(head @ head.T, head.shape[1], float((head**2).sum()))


def on_range(gram: Dense, root: Array | None) -> Dense:
    """R^T M R, (r, r), for R with orthonormal columns; M itself where R is None.

    The columns of R are orthonormal up to rounding; the error includes what this changes.
    """
    if root is None:
        return gram
    matrix = np.asarray(gram.matrix)
    rounding = gamma(2 * len(matrix) + 2, _FLOAT64) * np.linalg.norm(root) ** 2
    skew = float(np.linalg.norm(root.T @ root - np.eye(root.shape[1])))
    error = float(gram.stored_error) + (rounding + 3 * skew) * np.linalg.norm(matrix)
    product = root.T @ matrix @ root
    return Dense(jnp.asarray((product + product.T) / 2), jnp.asarray(error))


@dataclass(frozen=True)
class ExtremeEigenvalues:
    """The largest and the smallest eigenvalue of a matrix M >= 0, each known to ``error``."""

    largest: float
    smallest: float
    error: float
    size: int
    evidence: str


def extreme_eigenvalues(gram: Dense) -> ExtremeEigenvalues:
    spectrum = gnjax.eigenvalues(gram)
    values, kind = spectrum.values, spectrum.certificate.kind
    return ExtremeEigenvalues(
        float(values[0]), float(values[-1]), float(spectrum.errors.max()), len(values), kind
    )


def kappa_of_kronecker_sum(outer: ExtremeEigenvalues, inner: ExtremeEigenvalues) -> dict[str, Any]:
    """kappa of A (x) I + I (x) B, whose ends are the sums of the ends of A > 0 and of B >= 0.

    The rank is full where A is positive definite, also where B is singular. Where A cannot be told
    from a singular matrix, the answer is a lower bound.
    """
    error = outer.error + inner.error
    largest = outer.largest + inner.largest
    smallest = max(outer.smallest, 0.0) + max(inner.smallest, 0.0)
    at_least = max(outer.smallest - outer.error, 0.0) + max(inner.smallest - inner.error, 0.0)
    resolved = outer.smallest > outer.error
    low = (largest - error) / (smallest + error)
    return {
        "kappa": largest / smallest if resolved else low,
        "kappa_low": low,
        "kappa_high": (largest + error) / at_least if resolved else math.inf,
        "evidence": outer.evidence,
        "failure": 0.0,
        "resolved": resolved,
        "rank": outer.size * inner.size,
        "method": "Kronecker sum",
        "lambda_max": largest,
        "lambda_min": smallest,
    }


def shared_gauss_newton(kernels: Array, head: Array, side: int, root: Array | None) -> Dense:
    """J J^T, (k r, k r), for shared kernels and a dense head H; both of them are parameters.

    G = I_k (x) R^T T_1^T T_1 R + U U^T, where U has a column vec(H_f Z_t R) for the weight of
    filter f under tap t, and Z_t (P^2, d) picks the pixels under that tap.
    """
    inner = on_range(inner_gram(kernels, side), root)
    moved = _kernel_columns(kernels, head, side, root)
    outputs, block = len(head), np.asarray(inner.matrix)
    products = moved @ moved.T
    matrix = products.reshape(outputs, len(block), outputs, len(block))
    for output in range(outputs):
        matrix[output, :, output] += block
    norm, formed = np.linalg.norm(moved), 0.0
    if root is not None:  # U is R^T times the head's weights, each at K^2 places
        size = kernels.shape[1]
        formed = gamma(len(root), _FLOAT64) * size * np.linalg.norm(root) * np.linalg.norm(head)
    rounding = gamma(moved.shape[1] + 1, _FLOAT64) * norm**2 + (2 * norm + formed) * formed
    error = float(inner.stored_error) + rounding + gamma(1, _FLOAT64) * np.linalg.norm(block)
    return Dense(jnp.asarray(products), jnp.asarray(error))


def _kernel_columns(kernels: Array, head: Array, side: int, root: Array | None) -> Array:
    """U, (k r, F K^2)."""
    filters, size, _ = kernels.shape
    outputs = len(head)
    taps, corners = places(size, side)
    after = head.reshape(outputs, filters, -1)
    columns = np.zeros((outputs, side**2, filters, size**2))
    for index, tap in enumerate(taps):
        columns[:, corners + tap, :, index] = after.transpose(2, 0, 1)
    if root is not None:
        columns = np.einsum("qr,kqft->krft", root, columns, optimize=True)
    return columns.reshape(-1, filters * size**2)
