"""How far computed eigenvectors are from exact ones: the residual divided by the gap.

Let x be a unit vector, r = ||A x - theta x||, and let every eigenvalue of A but one be at least g
away from theta. Then sin(x, u) <= r / g for the eigenvector u of the one that is left (Davis and
Kahan, 1970). The gap follows from the intervals of the neighbouring eigenvalues.

Singular vectors are eigenvectors of [[0, J], [J^T, 0]], which has the eigenvalues sigma_i, -sigma_i
and zeros. An angle of sine s between (u, v) / 2^{1/2} and the exact pair leaves one of sine at most
2^{1/2} s between u and the exact u: with c the cosine of the pair, that of u is at least 2 c - 1,
and 1 - (2 c - 1)^2 = 4 c (1 - c) <= 2 (1 - c^2).
"""

from __future__ import annotations

import numpy as np

from gnjax.numerics.decompositions import lapack
from gnjax.numerics.decompositions.triangular import triangular_factor
from gnjax.numerics.outward import raised


def angles(
    values: np.ndarray,
    residuals: np.ndarray,
    errors: np.ndarray,
    below: float = -np.inf,
) -> np.ndarray:
    """Bounds in radians on the angle of each vector with the exact one; infinite where unknown.

    ``values`` (k,) descend, and the i-th eigenvalue lies within errors[i] of values[i]. All
    eigenvalues further down are at most ``below``.
    """
    # The eigenvalue before the i-th is at least uppers[i], and the one after it at most lowers[i].
    uppers = np.concatenate([[np.inf], (values - errors)[:-1]])
    lowers = np.concatenate([(values + errors)[1:], [below]])
    gaps = np.minimum(uppers - values, values - lowers)
    return arcsines(residuals, gaps)


def left_singular_rows(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular values sigma (min(n, p),) of J (n, p) from the largest down, and left vectors.

    The left singular vectors u are the rows (n, n) of a basis. The third answer is for each value
    the larger of ||J v - sigma u|| and ||J^T u - sigma v||.
    """
    rows, columns = factor.shape
    if columns > rows:  # J^T = Q R has the singular values and left vectors of R^T
        factor = triangular_factor(factor.T).T
    left, sigma, right = lapack.singular_vectors(factor)
    count = len(sigma)
    forward = np.linalg.norm(factor @ right[:count].T - sigma * left[:, :count], axis=0)
    backward = np.linalg.norm(factor.T @ left[:, :count] - sigma * right[:count].T, axis=0)
    return sigma, left.T, np.maximum(forward, backward)


def arcsines(lengths: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """arcsin(length / gap) in radians, rounded up (k,); infinite where that is no number."""
    sines = np.full(len(gaps), np.inf)
    np.divide(lengths, gaps, out=sines, where=gaps > 0)
    acute = sines < 1
    return np.where(acute, raised(1.0) * np.arcsin(np.where(acute, sines, 0.0)), np.inf)
