"""What a search for outer eigenvalues by Lanczos needs to know, and the Ritz pairs of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov import lanczos as krylov

SPARE = 6  # how many rows the least basis has beyond 2 k
_CYCLES = 20  # a run makes at most this many products for each row of its basis,
_LEAST_PRODUCTS = 1000  # and this many more


@dataclass(frozen=True)
class Search:
    """The search for the k outermost eigenvalues of a symmetric A, and its limits.

    They are the k least eigenvalues of sign * A: the smallest of A for the sign 1, and the largest
    for -1. The scale is the largest absolute Ritz value, an estimate of ||A||.
    """

    apply: HostProduct  # products of A with rows (b, n)
    size: int  # n
    k: int
    sign: float
    rtol: float  # the tolerance of the residuals, as a fraction of the scale
    noise: float  # the rounding of a product, as a fraction of the scale
    most: int  # the most rows that a basis may have
    seed: int = 0
    stop: Callable[[], bool] = lambda: False  # returns whether to end with the best values so far

    @property
    def rows(self) -> int:
        """The most rows of a basis: ``most``, or what the answer and a restart need at least."""
        return min(self.size, max(self.most, least_rows(self.k)))


def least_rows(k: int) -> int:
    """How many rows a basis has at least: those of the answer, and those that a restart needs."""
    return 2 * k + SPARE


def most_products(rows: int) -> int:
    """The number of products after which a run with a basis of so many rows ends in any case."""
    return _CYCLES * rows + _LEAST_PRODUCTS


@dataclass(frozen=True)
class RitzPairs:
    """A run with j rows V, T = V A V^T, and its Ritz pairs, the outermost first.

    ``values`` (j,) are the eigenvalues theta of T, and the columns w of ``vectors`` (j, j) its
    eigenvectors. ``residuals`` (j,) are ||A x - theta x|| for the Ritz vectors x = V^T w.
    """

    run: krylov.Run
    values: np.ndarray
    residuals: np.ndarray
    vectors: np.ndarray

    @property
    def scale(self) -> float:
        """The largest absolute Ritz value, an estimate of ||A||."""
        return float(np.abs(self.values).max())


def ritz_pairs(run: krylov.Run, sign: float) -> RitzPairs:
    """The Ritz pairs of a run, in ascending order of sign * theta for the Ritz values theta."""
    values, residuals, vectors = krylov.ritz(run)
    order = np.argsort(sign * values)
    return RitzPairs(run, values[order], residuals[order], vectors[:, order])


def small(search: Search, pairs: RitzPairs) -> bool:
    """Whether the residuals of the k outermost Ritz values are below the tolerance."""
    residuals = pairs.residuals[: search.k]
    return len(residuals) == search.k and bool(residuals.max() <= search.rtol * pairs.scale)


def rowwise(apply: HostProduct, rows: np.ndarray) -> np.ndarray:
    """The product of A with every row, one by one, because a new block size may be compiled."""
    return np.concatenate([apply(row[None]) for row in rows])
