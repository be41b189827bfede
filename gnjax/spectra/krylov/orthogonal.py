"""Orthonormal rows: random ones, and those that a Lanczos run adds to its basis."""

from __future__ import annotations

import numpy as np
import scipy

STREAM = 104729  # a stream of random numbers that the caller is unlikely to use
CERTIFYING = 15487469  # another one, for a start that is to know nothing of a search
_SHORT = 1e-3  # directions shorter than this times ||A|| are orthogonalised once more,
_UNEVEN = 0.1  # and those shorter than this times the longest of their block


def random_rows(
    size: int,
    block: int,
    seed: int,
    orthogonal_to: np.ndarray | None = None,
    stream: int = STREAM,
) -> np.ndarray:
    """``block`` orthonormal rows of length ``size`` that span a uniformly random space.

    They are orthogonal to the orthonormal rows ``orthogonal_to``, and fewer where these leave no
    room for so many. Rows of another ``stream`` are independent of those with the same ``seed``.
    They are not drawn from ``default_rng(seed)``, from which the caller may have drawn weights or
    data: a start that depends on the matrix is not random.
    """
    room = size - (0 if orthogonal_to is None else len(orthogonal_to))
    gaussian = np.random.default_rng([stream, seed]).standard_normal((size, min(block, room)))
    if orthogonal_to is not None:  # twice, because once may lose half of the digits
        gaussian = outside(outside(gaussian.T, orthogonal_to), orthogonal_to).T
    if gaussian.shape[1] == 1:  # a QR takes as long as a product of a small network
        return np.ascontiguousarray(gaussian.T) / np.linalg.norm(gaussian)
    return np.ascontiguousarray(np.linalg.qr(gaussian)[0].T)


def outside(rows: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The rows minus their projections onto the span of ``basis``, whose rows are orthonormal."""
    return rows - (rows @ basis.T) @ basis


def orthonormal(rows: np.ndarray) -> np.ndarray:
    """Orthonormal rows with the same span, as near to nearly orthonormal ones as these are to it.

    A QR factorisation may return the opposite of a row, so that its signs are changed back.
    """
    q, r = np.linalg.qr(rows.T)
    return (q * np.where(np.diagonal(r) < 0, -1.0, 1.0)).T


def directions(rows: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Orthonormal rows Q (r, n) and coefficients beta (r, b) with rows^T = Q^T beta + E.

    Also returns ||E||_F. By a QR factorisation with pivoting E holds the directions shorter than
    ``noise``, which are rounding and have no meaning. r is the rank that is left.
    """
    if len(rows) == 1:
        length = float(np.linalg.norm(rows))
        rank = int(length > noise)
        return rows[:rank] / (length or 1.0), np.full((rank, 1), length), (1 - rank) * length
    q, r, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diagonal(r)) > noise).sum())
    coupling = np.empty((rank, len(rows)))
    coupling[:, order] = r[:rank]
    return q[:, :rank].T, coupling, float(np.linalg.norm(r[rank:]))


def lost_digits(remainder: np.ndarray, scale: float) -> bool:
    """Whether a new direction is so short that it is not quite orthogonal.

    It is, far shorter than ||A||, the ``scale``, or than the longest of its block. ``remainder``
    (r, b) has the coefficients of r new directions in the images of b rows.
    """
    lengths = np.abs(remainder).max(axis=1, initial=0.0)
    if not len(lengths):
        return False
    return bool(lengths.min() < max(_SHORT * scale, _UNEVEN * lengths.max()))
