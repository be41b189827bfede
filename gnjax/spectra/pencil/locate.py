"""Ritz values near an end of the spectrum, and the vectors to deflate beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gnjax.spectra.pencil.base import End, Pencil, beside, symmetric
from gnjax.spectra.pencil.davidson import Ritz, Space

Stopped = Callable[[], bool]
"""Whether the caller asked for the work to stop."""

_STEPS = 60
_SETTLED = 0.05  # settled if the value changes by less than this times rtol in a step
_EXTRA_STEPS = 4


@dataclass(frozen=True)
class Located:
    """The Ritz values near the end, from products in full precision, and the pencil of the run."""

    ritz: Ritz
    pencil: Pencil
    products: int


@dataclass(frozen=True)
class Deflation:
    """Orthonormal rows, and the floor that C must exceed on their complement.

    The rows span R^T W for some Ritz vectors W of A, so that their complement consists of all z
    with R z orthogonal to W. On W and its complement A - s I is a matrix of two blocks, the smaller
    of which is T = W (A - s I) W^T. By the Schur complement of T, A - s I has as many eigenvalues
    beyond zero as T has, where C exceeds E^T T^{-1} E on the complement of the rows; E is the part
    of (A - s I) W^T that is orthogonal to W, in the coordinates of C. The negative part of T only
    helps. So C has to exceed |T_+^{-1/2} E_+|^2 of the positive part. Without the few eigenvectors
    at the very end, the other eigenvalues are further away from zero, and far fewer steps show that
    they are positive.
    """

    rows: np.ndarray
    floor: float


def locate(
    end: End,
    rtol: float,
    stopped: Stopped,
    beyond: np.ndarray | None = None,
    count: int = 1,
) -> Located | None:
    """The outermost Ritz values to a fraction of rtol, and vectors to deflate.

    A few more steps are taken for these vectors.

    None for the smallest eigenvalue of a matrix that is singular to working precision. The search
    begins at rows ``beyond`` instead where they are given.
    """
    pencil, rows = end.start()
    rows = rows if beyond is None else beyond
    space = Space(pencil, end.sign, np.linalg.qr(pencil.preimage(rows).T)[0].T)
    ritz_and_residuals = space.ritz(end.block)
    extra, before = 0, np.full(count, np.inf)
    for _ in range(_STEPS):
        if ritz_and_residuals is None:
            return None
        ritz, residuals = ritz_and_residuals
        values = ritz.values[:count]
        if len(values) == count and (abs(values - before) <= _SETTLED * rtol * abs(values)).all():
            extra += 1
            shifts = [beside(end, value, rtol) for value in values]
            deflated_space = deflation(end, pencil.at(shifts[-1]), ritz, shifts)
            enough = deflated_space is not None and len(deflated_space.rows) >= max(
                end.block // 2, count
            )
            if extra > _EXTRA_STEPS or enough:
                break
        if stopped() or not space.grow(residuals):
            break
        before, ritz_and_residuals = np.resize(values, count), space.ritz(end.block)
    if end.exact:
        return Located(ritz, pencil, space.products)
    return Located(refined(end, ritz.rows), pencil, space.products + len(ritz.rows))


def refined(end: End, rows: np.ndarray) -> Ritz:
    """The Ritz values on the span of rows, from products in full precision."""
    basis = np.linalg.qr(rows.T)[0].T
    products = end.products(basis)
    values, vectors = np.linalg.eigh(end.sign * symmetric(products.forms))
    return Ritz(end.sign * values, vectors.T @ basis, vectors.T @ products.images)


def deflation(
    end: End, pencil: Pencil, ritz: Ritz, shifts: Sequence[float], below: float = np.inf
) -> Deflation | None:
    """Deflate as many of the Ritz vectors near the end as are accurate enough.

    The j-th shift is a bound on the j-th eigenvalue if T at this shift has at most j negative
    eigenvalues, counted from 0. The pencil has the last shift, the innermost one, and the floor is
    the largest that any of the shifts needs. It is at most ``below``. None where the Ritz vectors
    are not accurate enough for so many eigenvalues.

    At least one dimension is left, because a certificate needs a run in the complement. W is
    scaled such that R^{-1} W is orthonormal, and R^T A W follows from the products A W.
    """
    q, triangle = np.linalg.qr(pencil.preimage(ritz.rows).T)
    diagonal = np.abs(np.diagonal(triangle))
    most = min(len(ritz.rows), end.size - 1)
    nothing = Deflation(np.empty((0, end.size)), 0.0) if len(shifts) == 1 else None
    if not diagonal.size or diagonal.min() == 0:
        return nothing

    def scaled(rows: np.ndarray) -> np.ndarray:
        return scipy.linalg.solve_triangular(triangle, pencil.transposed(rows), trans="T")

    images = scaled(end.sign * (ritz.images - pencil.shift * ritz.rows))
    masses = scaled(end.sign * ritz.rows)
    values, vectors = np.linalg.eigh(symmetric(q.T @ images.T))
    basis, images, masses = vectors.T @ q.T, vectors.T @ images, vectors.T @ masses
    deflated_rows = np.linalg.qr(masses.T)[0].T
    best, widest = nothing, -np.inf
    for size in range(len(shifts) - 1, most + 1):
        parts = ((images + (pencil.shift - shift) * masses)[:size] for shift in shifts)
        floors = [
            _floor(basis[:size], image, deflated_rows[:size], place, pencil.rounding)
            for place, image in enumerate(parts)
        ]
        room = float(values[min(size, len(values) - 1)]) - max(floors)
        if max(floors) <= below and room > widest:
            best, widest = Deflation(deflated_rows[:size], max(floors)), room
    return best


def _floor(
    basis: np.ndarray, images: np.ndarray, deflated_rows: np.ndarray, negative: int, rounding: float
) -> float:
    """What C must exceed on the complement of the deflated rows.

    The images are R^T (A - s I) W. T may have at most ``negative`` negative eigenvalues. The
    floor is infinite where it has more, or where rounding leaves their number open.
    """
    if not len(basis):
        return 0.0
    values, vectors = np.linalg.eigh(symmetric(basis @ images.T))
    moved = 2 * len(basis) ** 0.5 * rounding
    if (abs(values) <= 2 * moved).any() or (values < 0).sum() > negative:
        return np.inf
    positive = values > 0
    if not positive.any():
        return 0.0
    residual = (vectors.T @ (images - (images @ deflated_rows.T) @ deflated_rows))[positive]
    weights = (values[positive] - moved) ** 0.5
    quotients = residual / weights[:, None]
    size = float(np.linalg.eigvalsh(quotients @ quotients.T)[-1]) ** 0.5
    return (size + moved / float(weights.min())) ** 2
