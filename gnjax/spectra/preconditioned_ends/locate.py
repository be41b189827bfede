"""Ritz values near an end of the spectrum, and the vectors to deflate beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.decompositions import lapack
from gnjax.spectra.preconditioned_ends.davidson import Space
from gnjax.spectra.preconditioned_ends.one_end import End, Pencil, beside, symmetric

Stopped = Callable[[], bool]
"""Whether the caller asked for the work to stop."""

_STEPS = 60
_SETTLED = 0.05  # settled if the value changes by less than this times rtol in a step
_EXTRA_STEPS = 4
_SMALL = 0.005  # of C: what deflated vectors may ask of it; times rtol this is their error


@dataclass(frozen=True)
class Ritz:
    """Ritz values of A itself, the outermost first: X A X^T is diagonal for the rows X.

    Attributes:
      values: the Ritz values theta.
      rows: X, orthonormal.
      residuals: A x - theta x for every row x.
    """

    values: np.ndarray
    rows: np.ndarray
    residuals: np.ndarray


@dataclass(frozen=True)
class Located:
    """The Ritz values near the end, the pencil of the search, and the number of its products."""

    ritz: Ritz
    pencil: Pencil
    products: int


@dataclass(frozen=True)
class Deflation:
    """Ritz vectors X of A, and the floor that C must exceed beside them.

    With Theta = X A X^T and the residuals E = A X^T - X^T Theta, A - s I is a matrix of two blocks:
    Theta - s I on X, A - s I compressed to the complement of X, and E between them. By the Schur
    complement it has as many eigenvalues beyond zero as Theta - s I has, where the second block is
    larger than E (Theta - s I)^{-1} E^T. The negative part of Theta - s I only helps. In the
    coordinates of the pencil, whose preconditioner is R, C of that block has to exceed the squared
    norm of (Theta - s I)_+^{-1/2} E^T R with the positive part (.)_+ of the diagonal matrix, on
    the complement of the rows R^T X, which R maps to the complement of X. Without the few
    eigenvectors at the very end, the other eigenvalues are further away from zero, and far fewer
    steps show that they are positive.

    Attributes:
      ritz: X.
      rows: orthonormal rows that span R^T X.
      floor: what C must exceed.
    """

    ritz: np.ndarray
    rows: np.ndarray
    floor: float


def locate(
    end: End,
    rtol: float,
    stopped: Stopped,
    beyond: np.ndarray | None = None,
    count: int = 1,
) -> Located | None:
    """The Ritz values of A near an end of its spectrum, by Davidson's method.

    A step adds the residuals A x - theta x of the Ritz vectors x, preconditioned with R R^T, to the
    space that is searched. Steps are taken until the ``count`` outermost values change by no more
    than a small fraction of rtol, relative to each, and a few more until the vectors may be
    deflated.

    ``beyond`` are rows from which the search begins instead of those of ``end``. The answer is None
    for the smallest eigenvalue of a matrix that is singular to working precision.
    """
    pencil, rows = end.start()
    rows = rows if beyond is None else beyond
    # The space has rows V with R V = rows, so that V is R^{-1} on the rows.
    space = Space(pencil, end.sign, np.linalg.qr(pencil.preimage(rows).T)[0].T)
    pairs = space.ritz(end.block)
    extra_steps, before, to_deflate = 0, np.full(count, np.inf), max(end.block // 2, count)
    for _ in range(_STEPS):
        if pairs is None:
            return None
        values, rows, residuals = pairs
        outermost = values[:count]
        settled = (
            len(outermost) == count
            and (abs(outermost - before) <= _SETTLED * rtol * abs(outermost)).all()
        )
        if settled:
            extra_steps += 1
            # A deflated vector with the residual r, in the coordinates of C, raises the floor that
            # C must exceed by up to |r|^2 / gap, the distance of its value from the shift.
            gaps = np.abs(values - beside(end, float(outermost[-1]), rtol))
            floors = np.square(residuals).sum(axis=1) / np.maximum(gaps, np.finfo(float).tiny)
            is_accurate = len(floors) > to_deflate and floors[:to_deflate].sum() <= _SMALL
            if extra_steps > _EXTRA_STEPS or is_accurate:
                break
        if stopped() or not space.grow(residuals):  # no direction is new: the space is invariant
            break
        before, pairs = np.resize(outermost, count), space.ritz(end.block)
    return Located(refined(end, rows), pencil, space.products + len(rows))


def refined(end: End, rows: np.ndarray) -> Ritz:
    """The Ritz values of A on the span of ``rows`` (k, n), from products with orthonormal vectors.

    ``rows`` are approximate eigenvectors, those of the end first. So the entries of Q A Q^T, with
    the orthonormalised rows Q, are sorted by size (the matrix is graded), and an algorithm for such
    matrices keeps the digits of small values.
    """
    basis = np.linalg.qr(rows.T)[0].T
    products = end.products(basis)
    values, vectors = lapack.graded_eigenpairs(symmetric(products.projected))
    order = slice(None) if end.sign > 0 else slice(None, None, -1)
    values, vectors = values[order], vectors.T[order]
    ritz_rows = vectors @ basis
    return Ritz(values, ritz_rows, vectors @ products.images - values[:, None] * ritz_rows)


def deflation(
    end: End, pencil: Pencil, ritz: Ritz, shifts: Sequence[float], highest_floor: float = np.inf
) -> Deflation | None:
    """The choice of how many Ritz vectors to deflate, from the outermost on.

    They leave most room between the floor that C must exceed and the value that C is expected to
    have at the first vector that is not deflated.

    The j-th shift is a bound on the j-th eigenvalue if at most j Ritz values lie beyond it, counted
    from 0. The pencil has the last shift, the innermost one, and the floor is the largest that any
    of the shifts needs. A floor above ``highest_floor`` is not taken. None where the Ritz vectors
    are not accurate enough. At least one dimension is left for the run in the complement.
    """
    images = pencil.transposed(ritz.rows)  # R^T x for the Ritz vectors x
    lengths = np.linalg.norm(images, axis=1)
    if not (np.isfinite(lengths).all() and lengths.min() > 0):
        return None
    most = min(len(ritz.rows), end.size - 1)
    directions = np.linalg.qr((images / lengths[:, None]).T)[0].T
    residuals = pencil.transposed(ritz.residuals)
    # For an eigenvector x of A and of R R^T, C has the eigenvalue sign (theta - s) |R^T x|^2.
    expected = end.sign * (ritz.values - pencil.shift) * lengths**2
    best, widest = None, -np.inf
    for count in range(len(shifts) - 1, most + 1):
        rows = directions[:count]
        outside_rows = residuals[:count] - (residuals[:count] @ rows.T) @ rows
        gaps_of_shifts = (end.sign * (ritz.values[:count] - shift) for shift in shifts)
        floor = max(_floor(outside_rows, gaps, place) for place, gaps in enumerate(gaps_of_shifts))
        floor *= (1 + pencil.noise) ** 2  # the rounding of R^T e, relative to its length
        room = float(expected[min(count, len(expected) - 1)]) - floor
        if floor <= highest_floor and room > widest:
            best, widest = Deflation(ritz.rows[:count], rows, floor), room
    return best


def _floor(residuals: np.ndarray, gaps: np.ndarray, negative: int) -> float:
    """What C must exceed beside k deflated Ritz vectors (:class:`Deflation`), for the shift s.

    ``residuals`` (k, n) are R^T e, and ``gaps`` (k,) are sign (theta - s). The floor is infinite if
    more than ``negative`` gaps are negative.
    """
    if (gaps <= 0).sum() > negative or (gaps == 0).any():
        return np.inf
    quotients = residuals[gaps > 0] / gaps[gaps > 0, None] ** 0.5
    return float(np.linalg.norm(quotients, 2)) ** 2 if len(quotients) else 0.0
