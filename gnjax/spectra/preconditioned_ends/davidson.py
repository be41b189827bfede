"""A search for one end of the spectrum of A, in a space that grows by preconditioned residuals.

With orthonormal rows V, W = R V, and a shift s outside of the spectrum, T = V C V^T is positive
definite, and well conditioned where R is a good preconditioner, however badly conditioned A is. So
the smallest Ritz value has small relative errors. The space grows by R^T (A - theta I) w for the
outermost Ritz vectors w: Davidson's method (1975) for C v = mu^{-1} R^T R v.
"""

from __future__ import annotations

import numpy as np
import scipy

from gnjax.spectra.krylov.orthogonal import directions, orthonormal, outside
from gnjax.spectra.preconditioned_ends.one_end import Pencil

_DEPENDENT = 1e-8  # a direction that is shorter than this beside the space is left out


class Space:
    """A growing space, spanned by orthonormal rows v of V, with the rows W of R v and those of C v.

    C = R^T sign (A - s I) R is that of the ``pencil`` at its shift s; sign is 1 for the smallest
    eigenvalues of A, and -1 for the largest.
    """

    def __init__(self, pencil: Pencil, sign: float, rows: np.ndarray) -> None:
        self.pencil, self.sign, self.products = pencil, sign, 0
        size = rows.shape[1]
        self._basis, self._inner, self._preconditioned = np.empty((3, 0, size))  # V, W, C V
        self.add(rows)

    def add(self, rows: np.ndarray) -> None:
        """Add orthonormal rows v that are orthogonal to V, with R v and C v from one product."""
        images, inner, _ = self.pencil.congruence(rows)
        self.products += len(rows)
        self._basis = np.concatenate([self._basis, rows])
        self._inner = np.concatenate([self._inner, inner])
        self._preconditioned = np.concatenate([self._preconditioned, images])

    def ritz(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The ``count`` Ritz values of A on the rows of W nearest to its end, with vectors.

        With T = V C V^T = L L^T, the values are theta = s + sign / mu for the eigenvalues mu of W
        W^T u = mu T u. These mu are the squared singular values of L^{-1} W, so that a theta far
        from s costs the others no digits. The rounding of R is in the values, and so they guide the
        search only, and no bound rests on them.

        Returns:
          the values theta, unit rows w, and the preconditioned residuals R^T sign (A - theta I) w,
          or None where T is not positive definite, because the shift is an eigenvalue to working
          precision.
        """
        projected = self._basis @ self._preconditioned.T
        try:
            triangle = np.linalg.cholesky((projected + projected.T) / 2)
        except np.linalg.LinAlgError:
            return None
        scaled_inner = scipy.linalg.solve_triangular(triangle, self._inner, lower=True)
        vectors, sigma, _ = np.linalg.svd(scaled_inner, full_matrices=False)
        values, vectors = sigma[:count] ** 2, vectors[:, :count]  # the mu
        combined = scipy.linalg.solve_triangular(triangle, vectors, lower=True, trans=1).T
        rows = combined @ self._inner
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        combined, rows = combined / lengths, rows / lengths
        # sign (A - theta I) = sign (A - s I) - 1 / mu, as theta = s + sign / mu.
        moved = self.pencil.transposed(rows) / values[:, None]
        residuals = combined @ self._preconditioned - moved
        return self.pencil.shift + self.sign / values, rows, residuals

    def grow(self, residuals: np.ndarray) -> bool:
        """Add the directions of the residuals that are new beside the space; False where there is
        none.
        """
        room = self._basis.shape[1] - len(self._basis)
        lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
        unit = residuals[lengths[:, 0] > 0] / lengths[lengths > 0][:, None]
        fresh, _, _ = directions(outside(unit, self._basis), _DEPENDENT)
        if not room or not len(fresh):
            return False
        # Orthogonalised a second time, because once may lose half of the digits.
        self.add(orthonormal(outside(fresh[:room], self._basis)))
        return True
