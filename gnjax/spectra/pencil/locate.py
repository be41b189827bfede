"""Ritz values near an end of the spectrum, and the vectors to deflate beside it."""

from __future__ import annotations

from collections.abc import Callable
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
    """Orthonormal rows X near the end of C, and the floor that C must exceed on their complement.

    With T = X C X^T positive definite and R^T = C X^T - X^T T, C is positive definite when its
    compression C' to the complement of X exceeds |T^{-1/2} R|^2: the Schur complement C' - R^T
    T^{-1} R then is positive definite. Without the few eigenvectors at the very end, the other
    eigenvalues are further away from zero, and far fewer steps show that they are positive.
    """

    rows: np.ndarray
    floor: float


def locate(
    end: End, rtol: float, stopped: Stopped, beyond: np.ndarray | None = None
) -> Located | None:
    """Ritz values to a fraction of rtol; a few more steps are taken to find vectors to deflate.

    None for the smallest eigenvalue of a matrix that is singular to working precision. The search
    begins at rows ``beyond`` instead where they are given.
    """
    pencil, rows = end.start()
    rows = rows if beyond is None else beyond
    space = Space(pencil, end.sign, np.linalg.qr(pencil.preimage(rows).T)[0].T)
    seen = space.ritz(end.block)
    extra, before = 0, np.inf
    for _ in range(_STEPS):
        if seen is None:
            return None
        ritz, residuals = seen
        if abs(ritz.value - before) <= _SETTLED * rtol * abs(ritz.value):
            extra += 1
            outside = pencil.at(beside(end, ritz.value, rtol))
            if extra > _EXTRA_STEPS or len(deflation(end, outside, ritz).rows) >= end.block // 2:
                break
        if stopped() or not space.grow(residuals):
            break
        before, seen = ritz.value, space.ritz(end.block)
    if end.exact:
        return Located(ritz, pencil, space.products)
    return Located(refined(end, ritz.rows), pencil, space.products + len(ritz.rows))


def refined(end: End, rows: np.ndarray) -> Ritz:
    """The Ritz values on the span of rows, from products in full precision."""
    basis = np.linalg.qr(rows.T)[0].T
    products = end.products(basis)
    values, vectors = np.linalg.eigh(end.sign * symmetric(products.forms))
    return Ritz(end.sign * values, vectors.T @ basis, vectors.T @ products.images)


def deflation(end: End, pencil: Pencil, ritz: Ritz, below: float = np.inf) -> Deflation:
    """Deflate as many of the Ritz vectors near the end as are accurate enough.

    The floor of what is deflated is at most ``below``.

    At least one dimension is left, because a certificate needs a run in the complement. X spans
    R^{-1} W for the Ritz vectors W, and C X^T follows from the products A W.
    """
    q, triangle = np.linalg.qr(pencil.preimage(ritz.rows).T)
    diagonal = np.abs(np.diagonal(triangle))
    most = min(len(ritz.rows), end.size - 1)
    if not diagonal.size or diagonal.min() == 0:
        return Deflation(np.empty((0, end.size)), 0.0)
    shifted = end.sign * (ritz.images - pencil.shift * ritz.rows)
    image = scipy.linalg.solve_triangular(triangle, pencil.transposed(shifted), trans="T")
    rows = q.T
    compressed = symmetric(rows @ image.T)
    values, vectors = np.linalg.eigh(compressed)
    rows, image = vectors.T @ rows, vectors.T @ image
    residual = image - values[:, None] * rows
    several = (_deflated(rows, residual, values, n, pencil.rounding) for n in range(most + 1))
    allowed = [pair for pair in several if pair[1].floor <= below]
    return max(allowed, key=lambda pair: pair[0])[1]


def _deflated(
    rows: np.ndarray, residual: np.ndarray, values: np.ndarray, count: int, rounding: float
) -> tuple[float, Deflation]:
    """The deflation of the first rows, and by how much C is expected to exceed its floor."""
    if not count:
        return float(values[0]), Deflation(rows[:0], 0.0)
    moved = 2 * count**0.5 * rounding
    if values[0] <= 2 * moved:
        return -np.inf, Deflation(rows[:0], 0.0)
    weights = (values[:count, None] - moved) ** 0.5
    scaled = residual[:count] / weights
    size = float(np.linalg.eigvalsh(scaled @ scaled.T)[-1]) ** 0.5
    floor = (size + moved / float(weights[0, 0])) ** 2
    return float(values[min(count, len(values) - 1)]) - floor, Deflation(rows[:count], floor)
