"""Traces by XTrace (Epperly, Tropp and Webber, 2023), with the error of a jackknife."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.numerics.rounding import spectral_error
from gnjax.numerics.scale import exponent_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.stochastic.hutchinson import TraceEstimate
from gnjax.spectra.stochastic.probes import images_of, lengths_of, row_lengths


def xtrace(
    op: Operator, product: HostProduct, probes: int, rng: np.random.Generator
) -> TraceEstimate:
    """An estimate of tr A by XTrace, the mean over i of the estimates t_i from k test vectors.

    For Gaussian test vectors w_1 .. w_k, let Q_i be an orthonormal basis of the span of A w_j for
    all j other than i, P_i = I - Q_i Q_i^T, and p_i = P_i w_i. Given Q_i, the direction of p_i is
    uniform on the sphere of the complement, of dimension n - k + 1, and

        t_i = tr(Q_i^T A Q_i) + (n - k + 1) p_i^T A p_i / |p_i|^2

    has the mean tr A. Because t_i does not depend on the norm of p_i, t_i = tr A for k = n. All Q_i
    come from one factorisation [A w_1 .. A w_k] = Q S V^T: the columns other than the i-th are
    orthogonal to Q r_i for r_i along S^{-1} V^T e_i, so that Q_i Q_i^T = Q (I - r_i r_i^T) Q^T for
    |r_i| = 1. Where the rank is below k, any k - 1 columns span the range, and r_i = 0.

    Any two t_i share k - 2 vectors. Their spread is therefore no estimate of the standard error of
    their mean T; where the rank is k it can be too small by any factor. By Efron and Stein (1981)
    the variance of T is at most the mean of sum_i (T - T_i)^2 for any T_i that does not use w_i;
    here T_i is XTrace without w_i. The root of that sum is the standard error of the answer.
    """
    size = op.shape[0]
    # Half of the products are with the w_i, and half with the columns of Q.
    tests = rng.standard_normal((min(probes // 2, size), size))  # rows w_i
    count = len(tests)  # k
    images = images_of(product, tests)
    basis, left_out = _basis(images, spectral_error(size, op.dtype))
    rank = len(basis)
    basis_images = images_of(product, basis)
    compressed = _compressed(tests, images, basis, basis_images)
    dimension = size - min(rank, count - 1)  # of the complement of Q_i
    values = compressed.estimates(left_out[:, None], dimension)
    # The rounding of the products is proportional to the sum of |x| |A x|.
    lengths = float(lengths_of(basis, basis_images).sum())
    _, squared_lengths = compressed.quadratic_forms(left_out[:, None])  # |p_i|^2
    lengths += dimension * float((row_lengths(images) / squared_lengths**0.5).mean())
    samples = 0 if count == size else count
    if count == size:  # every t_i is tr A, and nothing is random
        error = 0.0
    else:
        error = (
            math.inf if count == 1 else _jackknife(compressed, left_out, values.mean(), dimension)
        )
    return TraceEstimate(float(values.mean()), error, samples, count + rank, lengths)


def _basis(images: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """The orthonormal rows of Q (rank, n), and the direction r_i for every test vector (k, rank).

    The columns A w_i of ``images`` (k, n), transposed, are Q S V^T. All of them but the i-th are
    orthogonal to Q r_i for the unit vector r_i along S^{-1} V^T e_i. Where the rank, up to
    ``rounding``, is below k, the others span the whole range, and r_i = 0.
    """
    columns, scales, right = np.linalg.svd(images.T, full_matrices=False)
    count, rank = len(images), int((scales > rounding * scales[0]).sum())
    # S divided by a power of two, so that no quotient over- or underflows. This cancels in r_i.
    scaled = np.ldexp(scales, -(exponent_of(float(scales[0])) or 0))
    left_out = np.zeros((count, rank))
    if rank == count:
        rows = right.T / scaled
        left_out = rows / row_lengths(rows)[:, None]
    return columns[:, :rank].T, left_out


def _compressed(
    tests: np.ndarray, images: np.ndarray, basis: np.ndarray, basis_images: np.ndarray
) -> _Compressed:
    """What XTrace needs, from the test vectors w (k, n), A w, the rows of Q (rank, n), and A Q."""
    coordinates = tests @ basis.T
    outside = tests - coordinates @ basis
    outside_images = images - coordinates @ basis_images
    return _Compressed(
        basis_images @ basis.T,
        coordinates,
        (outside**2).sum(axis=1),
        (outside * outside_images).sum(axis=1),
        outside_images @ basis.T,
    )


@dataclass(frozen=True)
class _Compressed:
    """Products with A from which XTrace is computed for any part of its basis Q.

    A test vector is w = Q c + p, with p orthogonal to Q. There are k of them, and Q has ``rank``
    columns.
    """

    matrix: np.ndarray  # Q^T A Q (rank, rank)
    coordinates: np.ndarray  # c (k, rank)
    outside_squares: np.ndarray  # |p|^2 (k,)
    outside_forms: np.ndarray  # p^T A p (k,)
    mixed_products: np.ndarray  # Q^T A p (k, rank)

    def quadratic_forms(self, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x^T A x and |x|^2 for each w = Q c + p; x is p and the part of Q c along ``left_out``."""
        weights = (left_out @ self.coordinates[:, :, None])[:, :, 0]
        along = (weights[:, None] @ left_out)[:, 0]  # (k, rank): the part of c along ``left_out``
        linear = 2 * (along * self.mixed_products).sum(axis=1)
        linear = linear + ((along @ self.matrix) * along).sum(axis=1)
        return self.outside_forms + linear, self.outside_squares + (along**2).sum(axis=1)

    def estimates(self, left_out: np.ndarray, dimension: int) -> np.ndarray:
        """For every test vector w = Q c + p the estimate t of tr A (k,).

        t = tr(U^T A U) + dimension x^T A x / |x|^2 for the part x of w that is orthogonal to the
        orthonormal basis U of a subspace of span Q. There U is orthogonal to the orthonormal
        directions ``left_out`` (k, directions, rank).
        """
        form, squared_length = self.quadratic_forms(left_out)
        trace_left_out = ((left_out @ self.matrix) * left_out).sum(axis=(1, 2))
        return np.trace(self.matrix) - trace_left_out + dimension * form / squared_length


def _jackknife(
    compressed: _Compressed, left_out: np.ndarray, value: float, dimension: int
) -> float:
    """The standard error of XTrace by a jackknife: the root of sum_i (T - T_i)^2.

    T is ``value``, the estimate from all k test vectors w_i, and T_i is XTrace without w_i: the
    mean of the estimates t_j for j other than i, each from w_j and the span of all A w except A w_i
    and A w_j. In the basis Q of all A w this span is orthogonal to the unit vectors r_i and r_j,
    which are rows of ``left_out`` (k, rank). ``dimension`` is that of the complement of a span
    without one A w, and so the complement of this one has a dimension more. Where the rank is below
    k, the rows r_i are zero, because fewer A w span the range.
    """
    count, error = len(left_out), 0.0
    dimension_without_two = dimension + 1 if left_out.any() else dimension
    for i, r_i in enumerate(left_out):
        others = np.delete(np.arange(count), i)
        orthogonal = left_out[others]  # the rows r_j, made orthogonal to r_i
        for _ in range(2):  # because once may lose half of the digits
            orthogonal = orthogonal - (orthogonal @ r_i)[:, None] * r_i
        lengths = np.linalg.norm(orthogonal, axis=1, keepdims=True)
        orthogonal = np.divide(
            orthogonal, lengths, out=np.zeros_like(orthogonal), where=lengths > 0
        )
        pairs = np.stack([np.broadcast_to(r_i, orthogonal.shape), orthogonal], axis=1)
        without_i = _Compressed(
            compressed.matrix,
            compressed.coordinates[others],
            compressed.outside_squares[others],
            compressed.outside_forms[others],
            compressed.mixed_products[others],
        )
        t_i = without_i.estimates(pairs, dimension_without_two).mean()
        error = math.hypot(error, float(value - t_i))
    return error
