"""A search for one end of the spectrum of A, in a space that grows by preconditioned residuals.

With rows V that are orthonormal, W = V R^T (R on the rows of V), and a shift s that lies outside of
the spectrum, T = V C V^T = sign W (A - s I) W^T is positive definite. The Ritz values theta of A on
the span of W are theta = s + sign / mu for the eigenvalues mu of W W^T u = mu T u. T is well
conditioned where R is a good preconditioner, however badly conditioned A is, so that the smallest
theta has small relative errors. The space grows by R^T (A - theta I) w for the outermost Ritz
vectors w, which is Davidson's method (1975) for the generalized problem C v = mu^{-1} R^T R v.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gnjax.spectra.krylov.orthogonal import directions, orthonormal, outside
from gnjax.spectra.pencil.one_end import Pencil

_DEPENDENT = 1e-8  # a direction that is shorter than this beside the space is left out


class Space:
    """The rows V, W = R V and C V, for the shift of a pencil outside of the spectrum."""

    def __init__(self, pencil: Pencil, sign: float, rows: np.ndarray) -> None:
        self.pencil, self.sign, self.products = pencil, sign, 0
        size = rows.shape[1]
        self._basis, self._inner, self._preconditioned = np.empty((3, 0, size))
        self.add(rows)

    def add(self, rows: np.ndarray) -> None:
        """Add orthonormal rows that are orthogonal to V, by one product."""
        images, inner, _ = self.pencil.congruence(rows)
        self.products += len(rows)
        self._basis = np.concatenate([self._basis, rows])
        self._inner = np.concatenate([self._inner, inner])
        self._preconditioned = np.concatenate([self._preconditioned, images])

    def ritz(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The ``count`` outermost values, unit rows w, and the residuals R^T sign (A - theta) w.

        The values are the 1 / mu for the singular values mu^{1/2} of T^{-1/2} W, so that one far
        out costs the others no digits. They are found through R, and so they guide a search alone.
        None where T is not positive definite, as the shift is an eigenvalue to working precision.
        """
        projected = self._basis @ self._preconditioned.T
        try:
            triangle = np.linalg.cholesky((projected + projected.T) / 2)
        except np.linalg.LinAlgError:
            return None
        half = scipy.linalg.solve_triangular(triangle, self._inner, lower=True)
        vectors, roots, _ = np.linalg.svd(half, full_matrices=False)
        values, vectors = roots[:count] ** 2, vectors[:, :count]
        combined = scipy.linalg.solve_triangular(triangle, vectors, lower=True, trans=1).T
        rows = combined @ self._inner
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        combined, rows = combined / lengths, rows / lengths
        moved = self.pencil.transposed(rows) / values[:, None]
        residuals = combined @ self._preconditioned - moved
        return self.pencil.shift + self.sign / values, rows, residuals

    def grow(self, residuals: np.ndarray) -> bool:
        """Add the directions of the residuals that are new; False where there is none."""
        room = self._basis.shape[1] - len(self._basis)
        lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
        unit = residuals[lengths[:, 0] > 0] / lengths[lengths > 0][:, None]
        fresh, _, _ = directions(outside(unit, self._basis), _DEPENDENT)
        if not room or not len(fresh):
            return False
        self.add(orthonormal(outside(fresh[:room], self._basis)))
        return True
