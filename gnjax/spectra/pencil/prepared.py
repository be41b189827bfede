"""A factor J in memory, and the Cholesky factor of a matrix near J J^T, from one pass over J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import scipy.linalg

from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.numerics.host import on_host
from gnjax.numerics.precision import x64
from gnjax.operators.factorisation import Factorisation
from gnjax.spectra.krylov.orthogonal import random_rows
from gnjax.spectra.pencil.ends import Matrix
from gnjax.spectra.pencil.factor import TILE, StoredFactor, gram, store
from gnjax.spectra.pencil.plan import Plan
from gnjax.spectra.pencil.sketch import columns_for, sketched
from gnjax.spectra.watch import Watch

_STEPS = 4  # of inverse iteration for the smallest eigenvalue of L L^T
_ROUNDED = 100.0  # the smallest eigenvalue of a Gram matrix is at least so many roundings of it
_SHIFTS = (1.0, 1e2, 1e4)  # tried where a Gram matrix is not positive definite, in roundings of it


@dataclass(frozen=True)
class Prepared:
    """J, the triangle L with L L^T near J J^T, and the smallest eigenvalue of L L^T."""

    factor: StoredFactor
    triangle: np.ndarray
    least: float
    block: int

    def matrix(self, watch: Watch) -> Matrix:
        """J J^T by products that are counted."""
        factor = self.factor
        light = watch(factor.light)
        return Matrix(factor.shape[0], factor.products, light, exact=factor.exact)


def prepared(
    factor: Factorisation, plan: Plan, seed: int, watch: Watch, folder: Path | None = None
) -> Prepared | None:
    """Read J once; None where no matrix near J J^T is positive definite.

    Rows are kept in the folder. Ctrl-C ends the reading, as there is no answer without all rows.
    """
    count = watch(lambda rows: rows)

    def on_block(block: np.ndarray) -> None:
        count(block[:, :0])
        if watch.stopped:
            raise KeyboardInterrupt

    stored_factor = store(
        factor.parts(folder),
        factor.shape,
        by_rows=factor.by_rows,
        dtype=plan.dtype,
        columns=columns_for(plan.width, TILE) if plan.width else TILE,
        on_block=on_block,
    )
    if plan.width:
        triangle_and_least = _triangle(lambda: sketched(stored_factor.tiles, plan.width, seed))
    else:
        triangle_and_least = _near(gram(stored_factor.tiles))
    if triangle_and_least is None:
        return None
    return Prepared(stored_factor, *triangle_and_least, plan.block)


def _triangle(sketch: Callable[[], list[jax.Array]]) -> tuple[np.ndarray, float] | None:
    """L and the smallest eigenvalue of L L^T = Y Y^T, from Y in its precision, else in float64.

    Where even that is not positive definite, L is the triangle of a QR factorisation of Y^T. The
    sketch Y is made again for each of these, so that it takes no memory beside what is made of it.
    """
    triangle_and_least = _accurate(gram(sketch()))
    if triangle_and_least is not None:
        return triangle_and_least
    with x64():
        wide = [tile.astype(np.float64) for tile in sketch()]
    triangle_and_least = _accurate(gram(wide))
    if triangle_and_least is not None:
        return triangle_and_least
    sketch_matrix = np.concatenate([on_host(tile) for tile in wide], axis=1)
    triangle = triangular_factor(sketch_matrix.T).T
    diagonal = np.abs(np.diagonal(triangle))
    if not diagonal.min() > 0:
        return None
    return triangle, least_of(triangle)


def _accurate(matrix: np.ndarray) -> tuple[np.ndarray, float] | None:
    """L of a Gram matrix whose smallest eigenvalue is far above the rounding of its precision."""
    unit = _rounding(matrix)
    triangle = _factored(matrix.astype(np.float64))
    if triangle is None:
        return None
    least = least_of(triangle)
    return (triangle, least) if least > _ROUNDED * unit else None


def _near(matrix: np.ndarray) -> tuple[np.ndarray, float] | None:
    """L of J J^T in a precision, moved by a few roundings where it is not positive definite."""
    wide, unit = matrix.astype(np.float64), _rounding(matrix)
    for shift in (0.0, *_SHIFTS):
        moved = wide.copy()
        np.fill_diagonal(moved, np.diagonal(wide) + shift * unit)
        triangle = _factored(moved)
        if triangle is not None and (least := least_of(triangle)) > 0:
            return triangle, least
    return None


def _rounding(matrix: np.ndarray) -> float:
    return float(np.finfo(matrix.dtype).eps) * float(np.abs(np.diagonal(matrix)).max())


def triangle_of(matrix: np.ndarray) -> np.ndarray | None:
    """The Cholesky factor L, or None where the matrix is not positive definite."""
    return _factored(np.array(matrix, np.float64))


def _factored(matrix: np.ndarray) -> np.ndarray | None:
    """:func:`triangle_of` a symmetric matrix whose memory may be written over."""
    try:
        return scipy.linalg.cholesky(matrix.T, lower=True, check_finite=False, overwrite_a=True)
    except np.linalg.LinAlgError:
        return None


def least_of(triangle: np.ndarray) -> float:
    """About the smallest eigenvalue of L L^T, by inverse iteration."""
    rows = random_rows(len(triangle), 4, 0)
    solve: Callable[[np.ndarray], np.ndarray] = lambda v: scipy.linalg.solve_triangular(  # noqa: E731
        triangle, v, lower=True, check_finite=False
    )
    for _ in range(_STEPS):
        inner = solve(rows.T)
        outer = scipy.linalg.solve_triangular(
            triangle, inner, lower=True, trans=1, check_finite=False
        )
        if not np.isfinite(outer).all():
            return 0.0
        rows = np.linalg.qr(outer)[0].T
    norm = float(np.linalg.norm(solve(rows.T), 2))
    return 1 / norm**2 if np.isfinite(norm) else 0.0
