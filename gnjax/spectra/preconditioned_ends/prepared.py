"""A factor J in memory, and the Cholesky factor of a matrix near J J^T, from one pass over J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.numerics.host import on_host
from gnjax.numerics.precision import x64
from gnjax.operators.factorisation import Factorisation
from gnjax.spectra.preconditioned_ends.cholesky_ends import EPS, ROUNDING, Matrix
from gnjax.spectra.preconditioned_ends.factor import (
    DEVICE_TILE,
    TILE,
    StoredFactor,
    gram,
    gram_on_device,
    store,
)
from gnjax.spectra.preconditioned_ends.plan import Plan
from gnjax.spectra.preconditioned_ends.sketch import PLACES, sketched
from gnjax.spectra.preconditioned_ends.triangle import Triangle, cholesky, least_of, shifted
from gnjax.spectra.watch import Watch

_ROUNDED = 100.0  # the smallest eigenvalue of a Gram matrix is at least so many roundings of it
_SHIFTS = (1.0, 1e2, 1e4)  # tried where a Gram matrix is not positive definite, in roundings of it


@dataclass(frozen=True)
class PreparedFactor:
    """J, the triangle L with L L^T near J J^T, and the smallest eigenvalue of L L^T."""

    factor: StoredFactor
    triangle: Triangle
    least: float

    def matrix(self, watch: Watch) -> Matrix:
        """J J^T as the matrix A of a pencil, by products that are counted.

        The pencil multiplies w = R v, where R is the inverse of a triangle. ``lost`` bounds |R^T e|
        for the rounding e of J (J^T w). One part of it is made in J^T w and is proportional to |w|,
        which is at most ``longest``. The other is made in the product with J, and R^T multiplies it
        by ||R||, at most ``inverse``. Both are relative to ||J||_F |J^T w|, whose squares are
        ``factor.squared`` and ``energy``.
        """
        factor = self.factor
        light = watch(factor.light)

        def lost(longest: float, inverse: float, energy: float, norm: float) -> float:
            del norm  # that of A, which is no better than the one of J
            return ROUNDING * EPS * (factor.squared * energy) ** 0.5 * (longest + inverse)

        exact = factor.dtype == np.float64
        return Matrix(factor.shape[0], factor.products, light, exact, lost)


def prepared(factor: Factorisation, plan: Plan, seed: int, watch: Watch) -> PreparedFactor | None:
    """J in memory, and L with L L^T near J J^T, from one pass over the rows of J.

    L is made of J J^T, or of a sketch of J with ``plan.width`` columns and the ``seed``. None where
    no matrix near J J^T is positive definite. Ctrl-C ends the pass, as there is no answer without
    all rows.
    """
    count = watch(lambda rows: rows)  # reports the rows of J that were read as progress

    def on_block(block: np.ndarray | jax.Array) -> None:
        count(np.empty((len(block), 0)))
        if watch.stopped:
            raise KeyboardInterrupt

    # A sketch has PLACES tiles at least, so that the tiles of J are spread well over it.
    columns = max(1, min(TILE, plan.width // PLACES)) if plan.width else TILE
    stored_factor = store(
        factor.parts(),
        factor.shape,
        by_rows=factor.by_rows,
        dtype=plan.dtype,
        columns=DEVICE_TILE if plan.on_device else columns,
        on_block=on_block,
        on_accelerator=plan.on_device,
    )
    # L from J J^T in float64 on an accelerator, from Y Y^T for a sketch Y of J, or from J J^T
    if plan.on_device:
        triangle_and_least = _triangle_near(gram_on_device(stored_factor.tiles))
    elif plan.width:
        triangle_and_least = _triangle_of_sketch(
            lambda: sketched(stored_factor.tiles, plan.width, seed)
        )
    else:
        triangle_and_least = _triangle_near(gram(stored_factor.tiles))
    if triangle_and_least is None:
        return None
    return PreparedFactor(stored_factor, *triangle_and_least)


def _triangle_of_sketch(sketch: Callable[[], list[jax.Array]]) -> tuple[Triangle, float] | None:
    """L with L L^T = Y Y^T for a sketch Y of J, and the smallest eigenvalue of L L^T.

    The product Y Y^T is formed in the precision of Y and, where that is too little, in float64.
    Where even that is not positive definite, L is the triangle of a QR factorisation of Y^T. The
    sketch Y is made again for each, so that it takes no memory meanwhile. None where Y has no full
    rank.
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
    triangle = Triangle(triangular_factor(sketch_matrix.T).T)
    if not np.abs(np.diagonal(triangle.matrix)).min() > 0:
        return None
    return triangle, least_of(triangle)


def _accurate(matrix: np.ndarray) -> tuple[Triangle, float] | None:
    """L with L L^T the Gram ``matrix``, in float64, and the smallest eigenvalue of L L^T.

    None where that eigenvalue is not far above the rounding with which the matrix was formed.
    """
    rounding = _rounding(matrix)
    triangle = cholesky(matrix.astype(np.float64))
    if triangle is None:
        return None
    least = least_of(triangle)
    return (triangle, least) if least > _ROUNDED * rounding else None


def _triangle_near(matrix: np.ndarray | jax.Array) -> tuple[Triangle, float] | None:
    """L with L L^T near J J^T, and the smallest eigenvalue of L L^T; None if there is no such L."""
    rounding = _rounding(matrix)
    for shift in (0.0, *_SHIFTS):
        triangle = cholesky(shifted(matrix, shift * rounding))
        if triangle is not None and (least := least_of(triangle)) > 0:
            return triangle, least
    return None


def _rounding(matrix: np.ndarray | jax.Array) -> float:
    """One rounding of the largest entry of a Gram matrix, which lies on its diagonal."""
    with x64():
        largest = float(np.abs(on_host(matrix.diagonal())).max())
    return float(np.finfo(matrix.dtype).eps) * largest
