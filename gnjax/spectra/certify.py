"""Intervals for eigenpairs that somebody else has computed, and what these leave out.

For rows X (k, n) of unit length and numbers theta, let R = A X^T - X^T diag(theta). Some eigenvalue
of A is within ||R_i|| of theta_i. If X has full rank, k eigenvalues of A, counted with their
multiplicity, are within ||R||_2 / sigma_min(X) of the k numbers, one to one (Kahan, 1967, with the
constant of Cao, Xie and Li, 1996). This is used for each group of numbers whose intervals overlap.
All other eigenvalues are sought by :mod:`gnjax.spectra.krylov.complement`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import LAPACK_ROUNDING, spectral_error
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.near_one import check_stated_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.certified_pairs import CertifiedPairs
from gnjax.spectra.eigenvectors import arcsines
from gnjax.spectra.krylov.complement import Complement, complement
from gnjax.spectra.krylov.host_products import beside_xla, host_product, too_large
from gnjax.spectra.krylov.ritz_places import overlapping
from gnjax.spectra.watch import Progress, watching
from gnjax.spectra.whole import dense_error

_LEAST_ROWS = 8  # two steps of the run on the complement
_RUN = 2.0  # the rounding of its recurrence and of its Ritz values, in units of LAPACK's error
_DEPENDENT = 1e-8  # singular values of unit vectors below this are rounding of a zero


@one_operator
def certify(
    op: Operator | ArrayLike | Any,
    vectors: ArrayLike,
    values: ArrayLike | None = None,
    *,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> CertifiedPairs:
    """Intervals for anyone's eigenpairs, and bounds on all eigenvalues that are not among them.

    It takes two products for each vector. A Lanczos run from a random start in the complement of
    the vectors then bounds the other eigenvalues, and tells whether these are the largest or the
    smallest ones.

    Args:
      op: a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      vectors: one vector (n,), or rows (k, n) of any length; of SciPy's columns V pass V.T. They
        need not be orthogonal.
      values: the value of each vector; by default the Rayleigh quotients x^T A x / x^T x.
      seed: the seed of the random start.
      progress: True for a bar on stderr, or a function of the products made and expected (None).
        Ctrl-C ends the search for other eigenvalues, with ``finished`` False.
      limits: the limits of memory and work.

    >>> matrix = np.diag([5.0, 3.0, 2.0, 1.0])
    >>> rows = np.array([[1.0, 1e-3, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> pairs = gnjax.certify(matrix, rows)
    >>> pairs.values.round(5).tolist(), pairs.errors.round(5).tolist()
    ([5.0, 1.0], [0.002, 0.0])
    >>> pairs.missed_above  # 3 and 2 are larger than 1
    2
    """
    operator = as_operator(op, limits=limits)
    check_stated_near_one(operator)
    rows = _rows(vectors, operator.shape[0])
    approximations = None if values is None else _values(values, len(rows))
    # The vectors and two steps of the run have to fit in memory.
    refused = too_large(operator.shape[0], len(rows) + _LEAST_ROWS, limits)
    if refused:
        raise ValueError(refused)
    # beside_xla: BLAS on one thread, so that XLA has the cores
    with (
        watching(progress, stoppable=True, op=operator, seconds=limits.seconds) as watch,
        beside_xla(),
    ):
        product = watch(host_product(operator))
        pairs = _pairs(product, rows, approximations)
        error = dense_error(operator, pairs.norm)
        share = spectral_error(rows.shape[1], operator.dtype)  # rounding relative to the norm
        others = _others(product, pairs, error, share, limits, seed, watch.is_stopped)
        finished = not watch.stopped
    # The search for others may have met larger eigenvalues, and errors grow with the norm.
    norm = max(pairs.norm, float(np.abs(others.ritz).max(initial=0.0)))
    error = dense_error(operator, norm)
    error_of_ritz = LAPACK_ROUNDING.to(_RUN * share * norm) + others.dropped
    products = len(rows) + len(pairs.basis) + others.products
    return _answer(pairs, others, error, error_of_ritz, products, finished)


@dataclass(frozen=True)
class _Pairs:
    """The given pairs of values theta_i and unit vectors x_i, and the space of the vectors.

    Attributes:
      values: theta_i.
      residuals: ||A x_i - theta_i x_i||.
      radii: how far a value can be from an eigenvalue of its own, for exact products.
      basis: orthonormal rows Q of the space.
      within: the eigenvalues of T = Q A Q^T, ascending.
      beta: ||B||_2 for the part B^T = A Q^T - Q^T T of A Q^T outside the space.
    """

    values: np.ndarray
    residuals: np.ndarray
    radii: np.ndarray
    basis: np.ndarray
    within: np.ndarray
    beta: float

    @property
    def norm(self) -> float:
        """The largest absolute value, an estimate of ||A||."""
        return float(np.abs(np.concatenate([self.values, self.within])).max())


def _pairs(product: HostProduct, rows: np.ndarray, approximations: np.ndarray | None) -> _Pairs:
    """What two products for each of the unit ``rows`` (k, n) say about the pairs.

    Their values theta_i are ``approximations`` or, where these are None, Rayleigh quotients. If the
    rows are independent, with the smallest singular value sigma, each of them has an eigenvalue of
    its own within the residuals divided by sigma (Kahan). Otherwise each value has one within its
    residual, and several may have the same. The second products are with an orthonormal basis of
    the rows.
    """
    images = product(rows)
    values = np.einsum("ij,ij->i", rows, images) if approximations is None else approximations
    residuals = np.linalg.norm(images - values[:, None] * rows, axis=1)
    _, sigma, directions = np.linalg.svd(rows, full_matrices=False)
    basis = directions[sigma > _DEPENDENT]
    images = product(basis)
    projection = images @ basis.T
    projection = (projection + projection.T) / 2  # symmetric but for rounding
    # The norm of the part of A that couples the space of the vectors with its complement.
    beta = float(np.linalg.norm(images - projection @ basis, 2))
    radii = residuals
    if len(basis) == len(rows):  # independent
        radii = np.empty(len(rows))
        for members, radius in overlapping(values, residuals / sigma[-1]):
            radii[members] = radius
    return _Pairs(values, residuals, radii, basis, np.linalg.eigvalsh(projection), beta)


def _others(
    product: HostProduct,
    pairs: _Pairs,
    error: Error,
    share: float,
    limits: Limits,
    seed: int,
    stop: Callable[[], bool],
) -> Complement:
    """Bounds on the eigenvalues of A on the complement of the space that the vectors span.

    They are as close as it takes to tell whether the values of the pairs are the smallest or the
    largest eigenvalues, with their radii and the errors that :func:`_answer` adds. ``error`` is
    that of the products, and ``share`` their rounding as a fraction of ||A||. Where the error is
    unknown, the eigenvalues are bounded for the products as returned.
    """
    size = pairs.basis.shape[1]
    rounding = share * pairs.norm
    product_error = error.value if np.isfinite(error.value) else 0.0
    distance = pairs.beta + 2 * product_error + _RUN * rounding
    # To say that the values are the smallest, no other may lie below the largest of them, and
    # above the smallest of them to say that they are the largest.
    return complement(
        product,
        pairs.basis,
        below=float((pairs.values + pairs.radii).max()) + distance,
        above=float((pairs.values - pairs.radii).min()) - distance,
        noise=max(product_error, rounding),
        rows=limits.basis_rows(size) - len(pairs.basis),
        seed=seed,
        stop=stop,
    )


def _answer(
    pairs: _Pairs,
    others: Complement,
    error: Error,
    error_of_ritz: Error,
    products: int,
    finished: bool,
) -> CertifiedPairs:
    """The answer of :func:`certify`: intervals for the exact A, from those for its products.

    By Weyl the eigenvalues of A are within ``pairs.beta`` of those on the space of the pairs and on
    its complement. ``error`` is that of the products, which moves every eigenvalue by as much, and
    ``error_of_ritz`` that of the Ritz values on the complement. The sum of the three is ``moved``.
    So all eigenvalues of A but m, the dimension of the space, lie in an interval, ``rest``, which
    is empty (from inf to -inf) if the pairs span the whole space. The m eigenvalues outside of it
    need not be those of the pairs, so that it is made wider.
    """
    moved = raised(pairs.beta + error.value + error_of_ritz.value)
    rest = (others.low - moved, others.high + moved) if len(others.ritz) else (np.inf, -np.inf)
    errors = raised(1.0) * (pairs.radii + error.value)
    reached = (others.ritz[0], others.ritz[-1]) if len(others.ritz) else (np.inf, -np.inf)
    low, high = _with_those_of_no_pair(pairs, errors, raised(pairs.beta + error.value), rest)
    return CertifiedPairs(
        pairs.values,
        pairs.residuals,
        errors,
        _angles(pairs, error.value, moved, rest),
        len(pairs.basis),
        (float(low), float(high)),
        (float(reached[0]), float(reached[1])),
        _missed_above(pairs.values, errors, pairs.within, others.ritz, moved),
        # Those missed below are the ones above for -A.
        _missed_above(-pairs.values, errors, -pairs.within, -others.ritz[::-1], moved),
        certificate(error, error_of_ritz, others.chance),
        products,
        finished,
    )


def _with_those_of_no_pair(
    pairs: _Pairs, errors: np.ndarray, moved: float, rest: tuple[float, float]
) -> tuple[float, float]:
    """The interval ``rest``, made wider until it contains all eigenvalues of A but the pairs' own.

    The pairs have the values theta_i with ``errors`` e_i. Let k be the dimension of their space,
    and t_j the k eigenvalues of A on it. By Weyl k eigenvalues of A are within ``moved`` of the
    t_j, one to one, and all others are in ``rest``. By Kahan each of k independent pairs has an
    eigenvalue of its own, within e_i of theta_i. Both are the same k eigenvalues of A

    - where |t_j - theta_j| + ``moved`` <= e_j for all j, with both in ascending order, or
    - where no interval theta_i +- e_i meets ``rest``.

    Otherwise an eigenvalue near some t_j can belong to no pair. Above ``rest`` there are at most as
    many eigenvalues of A as there are t_j + ``moved``. If as many intervals of pairs are there,
    nothing is left over. Otherwise the result reaches to the last t_j + ``moved``. The same holds
    below ``rest``.
    """
    low, high = rest
    if low > high:
        return rest
    is_below = is_above = np.zeros(len(errors), bool)
    if len(pairs.basis) == len(pairs.values):
        order = np.argsort(pairs.values)
        distances = np.abs(pairs.within - pairs.values[order]) + moved
        is_below, is_above = pairs.values + errors < low, pairs.values - errors > high
        if (distances <= errors[order]).all() or (is_below | is_above).all():
            return rest
    if is_below.sum() < (pairs.within - moved < low).sum():
        low = pairs.within.min() - moved
    if is_above.sum() < (pairs.within + moved > high).sum():
        high = pairs.within.max() + moved
    return low, high


def _missed_above(
    values: np.ndarray, errors: np.ndarray, within: np.ndarray, ritz: np.ndarray, moved: float
) -> int:
    """A lower bound on how many eigenvalues of A above the least value belong to no given pair.

    ``values`` are those of the pairs, with their ``errors``, ``within`` the eigenvalues t_j of A on
    the space of their vectors, and ``ritz``, ascending, the Ritz values on its complement. Let
    rho_i be the i-th of the latter from above. A without the part that couples the two spaces has
    at least i + #{j: t_j >= rho_i} eigenvalues >= rho_i (Cauchy). That part and the errors move an
    eigenvalue by ``moved`` at most (Weyl), so that at least as many eigenvalues of A
    are >= rho_i - ``moved``. A pair accounts for one of them only if its interval, value +- error,
    reaches up there.
    """
    most_missed = 0
    for index, rho in enumerate(ritz[::-1], start=1):
        edge = rho - moved  # falls from one rho to the next
        if not edge > values.min():
            break
        accounted = int((values + errors >= edge).sum())
        most_missed = max(most_missed, index + int((within >= rho).sum()) - accounted)
    return most_missed


def _angles(pairs: _Pairs, error: float, moved: float, rest: tuple[float, float]) -> np.ndarray:
    """Bounds in radians on the angle of each vector with an exact eigenvector (k,).

    By Davis and Kahan its sine is at most residual / gap, for the distance of the value to all
    eigenvalues but the vector's own. The others lie in ``rest``, or within ``moved`` of an
    eigenvalue of A on the space of the pairs that is not the nearest to the value.
    """
    gaps = np.empty(len(pairs.values))
    for index, value in enumerate(pairs.values):
        distances = np.sort(np.abs(pairs.within - value))[1:] - moved  # without the nearest
        to_rest = max(value - rest[1], rest[0] - value)
        gaps[index] = min(to_rest, distances.min(initial=np.inf))
    return arcsines(pairs.residuals + error, gaps)


def _rows(vectors: Any, size: int) -> np.ndarray:
    """The caller's ``vectors``, (k, n) or one (n,), as unit rows (k, n) in float64, checked."""
    rows = np.atleast_2d(np.asarray(vectors))
    if rows.dtype.kind not in "fiu":
        msg = f"vectors must hold real numbers, got dtype {rows.dtype}"
        raise ValueError(msg)
    rows = rows.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != size or not 0 < len(rows) <= size:
        columns = "; pass vectors.T" if rows.ndim == 2 and rows.shape[0] == size else ""
        msg = (
            f"vectors must be rows (k, {size}) for an operator of {size} rows, got shape "
            f"{np.shape(vectors)}{columns}"
        )
        raise ValueError(msg)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all() or not largest.all():
        msg = "vectors contain NaN, Inf or a vector of zeros; an eigenvector has a direction"
        raise ValueError(msg)
    rows = rows / largest  # so that no square under- or overflows
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _values(values: Any, count: int) -> np.ndarray:
    """The caller's values (count,) in float64, after a check."""
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.shape != (count,) or numbers.dtype.kind not in "fiu":
        msg = f"values must be one real number for each of the {count} vectors, got {values!r}"
        raise ValueError(msg)
    if not np.isfinite(numbers).all():
        msg = "values contain NaN or Inf; leave values out for the Rayleigh quotients"
        raise ValueError(msg)
    return numbers.astype(np.float64)
