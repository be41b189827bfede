"""Transforms of (n, d) arrays whose rows are samples: pure functions, nothing in place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnjax.data.datasets import Dataset
from gnjax.numerics.outward import frobenius_norm

_Array = NDArray[np.float64]

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


@dataclass(frozen=True, eq=False)
class Whitened:
    """Whitened inputs, ``(x - mean) @ transform``; apply the same to new samples of the data.

    >>> images = gnjax.data.load("digits", samples=50)
    >>> white = gnjax.data.whiten(images.inputs)
    >>> white.inputs.shape == (50, white.rank)
    True
    >>> np.allclose(images.inputs @ white.transform, white.inputs)
    True
    """

    inputs: _Array  # (n, r) by PCA, (n, d) by ZCA
    transform: _Array  # (d, r) or (d, d)
    rank: int
    mean: _Array | None  # (d,), None where nothing was subtracted


class Imbalanced(NamedTuple):
    """A data set in which class 0 dominates, and the share of class 0 in it.

    >>> images = gnjax.data.load("digits")
    >>> imbalanced = gnjax.data.class_imbalance(images, samples=100, largest_share=0.5, seed=0)
    >>> imbalanced.largest_share, len(imbalanced.dataset.inputs)
    (0.55, 100)
    """

    dataset: Dataset
    largest_share: float


def covariance(x: ArrayLike) -> _Array:
    """Sigma = x^T x / n, (d, d); as in the papers, no mean is subtracted.

    >>> gnjax.data.covariance([[1.0, 1.0], [1.0, -1.0]]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x = _samples(x)
    return x.T @ x / len(x)


def standardise(x: ArrayLike) -> _Array:
    """Every column with mean 0 and variance 1; constant columns become zero.

    >>> gnjax.data.standardise([[1.0, 5.0], [3.0, 5.0]]).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    x = _samples(x)
    centred = x - x.mean(axis=0)
    # The mean of a constant column is rounded, but what centring leaves of it is a few units in
    # the last place, summed without error: taken afterwards, the deviation is exactly zero.
    deviation = centred.std(axis=0)
    varies = deviation > 0
    return np.where(varies, centred / np.where(varies, deviation, 1.0), 0.0)


def whiten(
    x: ArrayLike, *, method: str = "pca", center: bool = False, rtol: float | None = None
) -> Whitened:
    """Inputs whose covariance is the identity on the range of the data.

    With x = U S V^T and the null directions dropped, PCA gives sqrt(n) U, (n, r), whose
    covariance is I_r; ZCA gives sqrt(n) U V^T, (n, d), whose covariance is the projector V V^T.
    A singular value counts as zero up to ``rtol`` (default max(n, d) eps) times the largest. With
    ``center`` U S V^T is x less its mean, and the default is max(n, d) eps times the Frobenius norm
    of x itself: the difference has the rounding of x, however small the difference is.

    >>> images = gnjax.data.load("digits", samples=50)
    >>> white = gnjax.data.whiten(images.inputs).inputs
    >>> np.allclose(gnjax.data.covariance(white), np.eye(white.shape[1]))
    True
    """
    if method not in ("pca", "zca"):
        msg = f"method={method!r}; choose 'pca' or 'zca'"
        raise ValueError(msg)
    x = _samples(x)
    mean = x.mean(axis=0) if center else None
    if mean is None:
        lefts, singular_values, rights = _range_svd(x, rtol)
    else:
        lefts, singular_values, rights = _range_svd(x - mean, rtol, frobenius_norm(x))
    inputs = math.sqrt(len(x)) * lefts
    transform = math.sqrt(len(x)) * rights / singular_values  # V S^-1 sqrt(n)
    if method == "zca":
        inputs, transform = inputs @ rights.T, transform @ rights.T
    return Whitened(inputs, transform, singular_values.size, mean)


def orthogonalise(x: ArrayLike, scale: float = 1.0, *, rtol: float | None = None) -> _Array:
    """Inputs Z = sqrt(n) scale U, (n, r), with orthogonal columns: Z^T Z = n scale^2 I.

    U are the left singular vectors of x, (n, d), for its r singular values that are not zero. In
    paper B's notation, with samples as columns, this is X X^T = n scale^2 I. For x of full column
    rank U spans what the Q of x = Q R spans, so that Z is paper B's construction by QR up to a
    rotation of the r inputs. For x of lower rank (constant pixels, a single class) Q would add
    directions that are not in the data, and U does not: the number of inputs becomes the rank.
    n < d samples of rank n are refused: every sample would become an axis of its own and nothing
    of the data would be left.

    >>> images = gnjax.data.load("digits", samples=200)
    >>> z = gnjax.data.orthogonalise(images.inputs, scale=2.0)
    >>> np.allclose(z.T @ z, 200 * 2.0**2 * np.eye(z.shape[1]))
    True
    """
    x = _samples(x)
    n, d = x.shape
    if not (math.isfinite(scale) and scale > 0):
        msg = f"scale={scale}; sigma_x must be positive and finite"
        raise ValueError(msg)
    lefts, singular_values, _ = _range_svd(x, rtol)
    if singular_values.size == n < d:
        msg = (
            f"{n} samples in {d} dimensions have rank {n}, so that orthogonalising them would "
            f"leave the n x n identity; give more than {n} samples (at least {d} are always "
            "enough) or downsample the inputs"
        )
        raise ValueError(msg)
    return math.sqrt(n) * scale * lefts


def _range_svd(
    x: _Array, rtol: float | None, rounded: float | None = None
) -> tuple[_Array, _Array, _Array]:
    """U (n, r), S (r,) and V (d, r) of x = U S V^T, for the r singular values that are not zero.

    Where ``rtol`` is None, one counts as zero up to max(n, d) eps times ``rounded``, or times the
    largest one. ``rounded`` is the Frobenius norm of x before it was centred, whose rounding x has.
    """
    lefts, singular_values, rights = np.linalg.svd(x, full_matrices=False)
    reference = float(singular_values[0])
    if rtol is None:
        rtol = max(x.shape) * float(np.finfo(np.float64).eps)
        reference = reference if rounded is None else rounded
    if not 0 <= rtol < 1:
        msg = f"rtol={rtol}; it is relative to the largest singular value and lies in [0, 1)"
        raise ValueError(msg)
    rank = int(np.sum(singular_values > rtol * reference))
    if rank == 0:
        msg = "all inputs are zero (after centring, if that was asked); there is nothing to whiten"
        raise ValueError(msg)
    return lefts[:, :rank], singular_values[:rank], rights[:rank].T


def downsample(x: ArrayLike, shape: tuple[int, ...], to: tuple[int, ...]) -> _Array:
    """Area average of images to a smaller height and width, as rows like those of x (n, d).

    ``shape`` and ``to`` are the old and the new (height, width[, channels]) of an image. Where the
    new size does not divide the old one, a pixel counts by the part of its area that falls into the
    new pixel: out = A_h X A_w^T with A from ``area_weights``.

    >>> gnjax.data.downsample([[1.0, 3.0, 5.0, 7.0]], (2, 2), (1, 1)).tolist()
    [[4.0]]
    """
    images = _images(_samples(x), shape)  # (n, h, w, c)
    channels = images.shape[3]
    if len(to) not in (2, 3) or (len(to) == 3 and to[2] != channels):
        msg = f"to={to} for images of shape {shape}; give (height, width), channels stay"
        raise ValueError(msg)
    by_height, by_width = area_weights(shape[0], to[0]), area_weights(shape[1], to[1])
    small = np.einsum("ah,nhwc,bw->nabc", by_height, images, by_width, optimize=True)
    return small.reshape(len(images), -1)


def area_weights(size: int, to: int) -> _Array:
    """The matrix A (to, size) that averages ``size`` pixels in a row to ``to`` pixels.

    New pixel i covers [i s, (i+1) s] with s = size / to, and A[i, j] is the share of it that lies
    in the old pixel [j, j+1]. Every row adds up to 1.
    """
    if not 1 <= to <= size:
        msg = f"{size} pixels cannot be averaged to {to}; choose between 1 and {size}"
        raise ValueError(msg)
    # In units of 1/to of a pixel both grids are integer, and so is the overlap.
    new_left, new_right = np.arange(to)[:, None] * size, np.arange(1, to + 1)[:, None] * size
    old_left, old_right = np.arange(size)[None, :] * to, np.arange(1, size + 1)[None, :] * to
    overlap = np.minimum(new_right, old_right) - np.maximum(new_left, old_left)
    return np.maximum(overlap, 0) / size  # a new pixel has the length ``size`` in these units


def grayscale(x: ArrayLike, shape: tuple[int, ...]) -> _Array:
    """Luma 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601) of images, rows x (n, 3 h w), as (n, h w).

    ``shape`` is (h, w, 3).

    >>> gnjax.data.grayscale([[1.0, 0.0, 0.0]], (1, 1, 3)).tolist()  # one red pixel
    [[0.299]]
    """
    images = _images(_samples(x), shape)
    if images.shape[3] != 3:
        msg = f"shape {shape} is not that of an RGB image (height, width, 3)"
        raise ValueError(msg)
    return (images @ _LUMA).reshape(len(images), -1)


def subsample(dataset: Dataset, n: int, seed: int, balanced: bool = False) -> Dataset:
    """``n`` samples drawn without replacement, in their order; balanced: n / classes of each.

    >>> images = gnjax.data.load("digits")
    >>> few = gnjax.data.subsample(images, 20, seed=0, balanced=True)
    >>> np.bincount(few.labels).tolist()
    [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    size = len(dataset.labels)
    if not 1 <= n <= size:
        msg = f"n={n} of a data set with {size} samples; choose between 1 and {size}"
        raise ValueError(msg)
    if not balanced:
        indices = np.random.default_rng(seed).choice(size, n, replace=False)
        return _take(dataset, indices, f"{n} of {size} samples drawn with seed {seed}")
    if n % dataset.classes:
        msg = f"n={n} cannot be balanced over {dataset.classes} classes; take a multiple"
        raise ValueError(msg)
    counts = [n // dataset.classes] * dataset.classes
    indices = _draw_classes(dataset, counts, seed)
    return _take(dataset, indices, f"{n} of {size} samples, balanced, drawn with seed {seed}")


def class_imbalance(dataset: Dataset, samples: int, largest_share: float, seed: int) -> Imbalanced:
    """Paper B's sampling: class 0 gets about ``largest_share`` of the samples.

    Each of the other c - 1 classes gives floor((1 - largest_share) samples / (c - 1)), and class
    0 gives the rest. Its actual share, which is returned too, is thus at least the one asked for.

    >>> images = gnjax.data.load("digits")
    >>> imbalanced = gnjax.data.class_imbalance(images, samples=100, largest_share=0.5, seed=0)
    >>> int((imbalanced.dataset.labels == 0).sum())
    55
    """
    other_classes = dataset.classes - 1
    if other_classes < 1:
        msg = "the data set has a single class; imbalance needs at least two"
        raise ValueError(msg)
    if not 1 / dataset.classes <= largest_share <= 1:
        msg = (
            f"largest_share={largest_share}; with {dataset.classes} classes the largest one has "
            f"between {1 / dataset.classes:.4g} and 1"
        )
        raise ValueError(msg)
    if samples < 1:
        msg = f"samples={samples}; it must be at least 1"
        raise ValueError(msg)
    # 1 - 0.9 is a little less than 0.1: a part in 1e12 keeps floor from losing a sample to it.
    per_class = math.floor((1 - largest_share) * samples / other_classes * (1 + 1e-12))
    counts = [samples - other_classes * per_class] + [per_class] * other_classes
    indices = _draw_classes(dataset, counts, seed)
    share = counts[0] / samples
    note = f"{samples} samples, class 0 being {share:.4g} of them, drawn with seed {seed}"
    return Imbalanced(_take(dataset, indices, note), share)


def _draw_classes(dataset: Dataset, counts: list[int], seed: int) -> NDArray[np.int64]:
    """Indices of ``counts[c]`` samples of each class c, drawn without replacement by the seed."""
    rng = np.random.default_rng(seed)
    indices_by_class = []
    for label, count in enumerate(counts):
        members = np.flatnonzero(dataset.labels == label)
        if count > members.size:
            msg = (
                f"{count} samples of class {label} are needed but {dataset.name} has "
                f"{members.size}; ask for fewer samples or load more data"
            )
            raise ValueError(msg)
        indices_by_class.append(rng.choice(members, count, replace=False))
    return np.concatenate(indices_by_class)


def _take(dataset: Dataset, indices: NDArray[np.int64], note: str) -> Dataset:
    """The samples at these indices (m,), in the order of the data set, whose source gets a note."""
    indices = np.sort(indices)
    return replace(
        dataset,
        inputs=dataset.inputs[indices],
        labels=dataset.labels[indices],
        source=f"{dataset.source}; {note}",
    )


def _samples(x: ArrayLike) -> _Array:
    """x as float64 (n, d), n and d at least 1, finite."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.size == 0:
        msg = f"inputs have shape {x.shape}; they must be (n, d), samples as rows, n, d >= 1"
        raise ValueError(msg)
    if not np.isfinite(x).all():
        msg = f"inputs hold {np.sum(~np.isfinite(x))} NaN or Inf values; remove or replace them"
        raise ValueError(msg)
    return x


def _images(x: _Array, shape: tuple[int, ...]) -> _Array:
    """Rows x (n, d) as images (n, height, width, channels); ``shape`` may leave channels out."""
    if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != x.shape[1]:
        msg = (
            f"rows of {x.shape[1]} values are no images of shape {shape}; give the shape "
            "(height, width) or (height, width, channels) that they have"
        )
        raise ValueError(msg)
    return x.reshape(len(x), shape[0], shape[1], -1)
