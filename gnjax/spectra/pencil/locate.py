"""Ritz values near an end of the spectrum, and the vectors to deflate beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.decompositions import lapack
from gnjax.spectra.pencil.davidson import Space
from gnjax.spectra.pencil.one_end import End, Pencil, beside, symmetric

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

    @property
    def value(self) -> float:
        return float(self.values[0])


@dataclass(frozen=True)
class Located:
    """The Ritz values near the end, and the pencil of the search."""

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
    coordinates of the pencil, C of that block has to exceed |(Theta - s I)_+^{-1/2} E^T R|^2, on
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
    """The outermost Ritz values to a fraction of rtol, and vectors to deflate.

    A few more steps are taken for these vectors.

    None for the smallest eigenvalue of a matrix that is singular to working precision. The search
    begins at rows ``beyond`` instead where they are given.
    """
    pencil, rows = end.start()
    rows = rows if beyond is None else beyond
    space = Space(pencil, end.sign, np.linalg.qr(pencil.preimage(rows).T)[0].T)
    pairs = space.ritz(end.block)
    extra, before, several = 0, np.full(count, np.inf), max(end.block // 2, count)
    for _ in range(_STEPS):
        if pairs is None:
            return None
        values, rows, residuals = pairs
        first = values[:count]
        if len(first) == count and (abs(first - before) <= _SETTLED * rtol * abs(first)).all():
            extra += 1
            shift = beside(end, float(first[-1]), rtol)
            if extra > _EXTRA_STEPS or _accurate(values - shift, residuals, several):
                break
        if stopped() or not space.grow(residuals):
            break
        before, pairs = np.resize(first, count), space.ritz(end.block)
    return Located(refined(end, rows), pencil, space.products + len(rows))


def _accurate(gaps: np.ndarray, residuals: np.ndarray, several: int) -> bool:
    """Whether so many of the vectors ask little of C when they are deflated."""
    floors = np.square(residuals).sum(axis=1) / np.maximum(abs(gaps), np.finfo(float).tiny)
    return len(floors) > several and bool(floors[:several].sum() <= _SMALL)


def refined(end: End, rows: np.ndarray) -> Ritz:
    """The Ritz values of A on the span of rows, from products with orthonormal vectors.

    The outermost rows come first, so that values of very different sizes stay apart.
    """
    basis = np.linalg.qr(rows.T)[0].T
    products = end.products(basis)
    values, vectors = lapack.graded_eigenpairs(symmetric(products.forms))
    order = slice(None) if end.sign > 0 else slice(None, None, -1)
    values, vectors = values[order], vectors.T[order]
    ritz_rows = vectors @ basis
    return Ritz(values, ritz_rows, vectors @ products.images - values[:, None] * ritz_rows)


def deflation(
    end: End, pencil: Pencil, ritz: Ritz, shifts: Sequence[float], below: float = np.inf
) -> Deflation | None:
    """Deflate as many of the Ritz vectors near the end as are accurate enough.

    The j-th shift is a bound on the j-th eigenvalue if at most j Ritz values lie beyond it, counted
    from 0. The pencil has the last shift, the innermost one, and the floor is the largest that any
    of the shifts needs. It is at most ``below``. None where the Ritz vectors are not accurate
    enough for so many eigenvalues.

    At least one dimension is left, because a certificate needs a run in the complement.
    """
    masses = pencil.transposed(ritz.rows)
    lengths = np.linalg.norm(masses, axis=1)
    if not (np.isfinite(lengths).all() and lengths.min() > 0):
        return None
    most = min(len(ritz.rows), end.size - 1)
    directions = np.linalg.qr((masses / lengths[:, None]).T)[0].T
    residuals = pencil.transposed(ritz.residuals)
    expected = end.sign * (ritz.values - pencil.shift) * lengths**2  # of C, at the next vector
    best, widest = None, -np.inf
    for size in range(len(shifts) - 1, most + 1):
        rows = directions[:size]
        outside_rows = residuals[:size] - (residuals[:size] @ rows.T) @ rows
        gaps = (end.sign * (ritz.values[:size] - shift) for shift in shifts)
        floor = max(_floor(outside_rows, gap, place) for place, gap in enumerate(gaps))
        floor *= (1 + pencil.noise) ** 2
        room = float(expected[min(size, len(expected) - 1)]) - floor
        if floor <= below and room > widest:
            best, widest = Deflation(ritz.rows[:size], rows, floor), room
    return best


def _floor(residuals: np.ndarray, gaps: np.ndarray, negative: int) -> float:
    """What C must exceed for residuals R^T E and the diagonal of sign (Theta - s I).

    The floor is infinite where more than ``negative`` of the numbers on the diagonal are negative.
    """
    if (gaps <= 0).sum() > negative or (gaps == 0).any():
        return np.inf
    quotients = residuals[gaps > 0] / gaps[gaps > 0, None] ** 0.5
    return float(np.linalg.norm(quotients, 2)) ** 2 if len(quotients) else 0.0
