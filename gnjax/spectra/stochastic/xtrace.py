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
    """The mean over i of Hutch++ with the i-th test vector for the rest and all others for Q.

    For Gaussian test vectors w_1 .. w_k, Q_i spans A w_j for j != i. Given Q_i, the direction of
    p_i = P_i w_i is uniform on the sphere of the complement, of dimension n - k + 1, and

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
    tests = rng.standard_normal((min(probes // 2, size), size))  # rows w_i
    count = len(tests)
    images = images_of(product, tests)
    basis, missed = _basis(images, spectral_error(size, op.dtype))
    rank = len(basis)
    basis_images = images_of(product, basis)
    small = _compressed(tests, images, basis, basis_images)
    dimension = size - min(rank, count - 1)
    values = small.estimates(missed[:, None], dimension)
    lengths = float(lengths_of(basis, basis_images).sum())
    lengths += dimension * float(
        (row_lengths(images) / small.forms(missed[:, None])[1] ** 0.5).mean()
    )
    if count == size:  # every t_i is tr A
        error = 0.0
    else:
        error = math.inf if count == 1 else _jackknife(small, missed, values.mean(), dimension)
    return TraceEstimate(float(values.mean()), error, count, count + rank, lengths)


def _basis(images: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """The orthonormal rows of Q (rank, n), and r_i for every test vector (count, rank)."""
    columns, scales, right = np.linalg.svd(images.T, full_matrices=False)
    count, rank = len(images), int((scales > rounding * scales[0]).sum())
    near = np.ldexp(scales, -(exponent_of(float(scales[0])) or 0))  # numbers that can be divided by
    missed = _unit_rows(right.T / near) if rank == count else np.zeros((count, rank))
    return columns[:, :rank].T, missed


def _compressed(
    tests: np.ndarray, images: np.ndarray, basis: np.ndarray, basis_images: np.ndarray
) -> _Compressed:
    """The numbers that XTrace needs, from test vectors, the basis Q, and the products of both."""
    inside = tests @ basis.T
    rest = tests - inside @ basis
    rest_images = images - inside @ basis_images
    return _Compressed(
        basis_images @ basis.T,
        inside,
        (rest**2).sum(axis=1),
        (rest * rest_images).sum(axis=1),
        rest_images @ basis.T,
    )


@dataclass(frozen=True)
class _Compressed:
    """Products with A from which XTrace is computed for any part of its basis Q.

    A test vector is w = Q c + p, with p orthogonal to Q.
    """

    matrix: np.ndarray  # Q^T A Q
    inside: np.ndarray  # rows c
    squares: np.ndarray  # |p|^2
    quadratic: np.ndarray  # p^T A p
    mixed: np.ndarray  # rows Q^T A p

    def forms(self, missed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x^T A x and |x|^2 for every w, where x is its part orthogonal to a subspace of span Q.

        The subspace is the orthogonal complement, in span Q, of the directions ``missed`` (count,
        directions, rank), which are orthonormal for every w.
        """
        weights = (missed @ self.inside[:, :, None])[:, :, 0]
        part = (weights[:, None] @ missed)[:, 0]  # rows: the part of c along ``missed``
        linear = 2 * (part * self.mixed).sum(axis=1) + ((part @ self.matrix) * part).sum(axis=1)
        return self.quadratic + linear, self.squares + (part**2).sum(axis=1)

    def estimates(self, missed: np.ndarray, dimension: int) -> np.ndarray:
        """t_i; ``dimension`` is that of the complement of the subspace of :meth:`forms`."""
        top, bottom = self.forms(missed)
        lost = ((missed @ self.matrix) * missed).sum(axis=(1, 2))
        return np.trace(self.matrix) - lost + dimension * top / bottom


def _jackknife(small: _Compressed, missed: np.ndarray, value: float, dimension: int) -> float:
    """The jackknife estimate of the standard error, the root of sum_i (T - T_i)^2.

    T_i needs the span of all A w except A w_i and A w_j, which is orthogonal to r_i and r_j.
    """
    count, spread = len(missed), 0.0
    for index, first in enumerate(missed):
        others = np.delete(np.arange(count), index)
        second = missed[others]
        for _ in range(2):
            second = second - (second @ first)[:, None] * first
        lengths = np.linalg.norm(second, axis=1, keepdims=True)
        second = np.divide(second, lengths, out=np.zeros_like(second), where=lengths > 0)
        pairs = np.stack([np.broadcast_to(first, second.shape), second], axis=1)
        parts = (small.inside, small.squares, small.quadratic, small.mixed)
        without = _Compressed(small.matrix, *(part[others] for part in parts))
        fewer = dimension + 1 if missed.any() else dimension
        spread = math.hypot(spread, float(value - without.estimates(pairs, fewer).mean()))
    return spread


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / row_lengths(rows)[:, None]
