"""Decompositions of symmetric matrices and of factors by LAPACK, which Ctrl-C interrupts.

NumPy calls the same routines as SciPy and releases Python's lock meanwhile, which SciPy does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from scipy.linalg.lapack import get_lapack_funcs

from gnjax.numerics.decompositions.background import interruptible
from gnjax.numerics.decompositions.threads import few_threads

_LARGE = 500  # with fewer rows or columns no decomposition takes a tenth of a second

_Value = TypeVar("_Value")


def symmetric_eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """The eigenvalues of a symmetric matrix in ascending order, by syevd."""
    return _heard(matrix, partial(np.linalg.eigvalsh, matrix))


def eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of a symmetric matrix in ascending order, and eigenvectors as columns."""
    values, columns = _heard(matrix, partial(np.linalg.eigh, matrix))
    return values, columns


def graded_eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Like :func:`eigenpairs`, each eigenvalue of a graded matrix to nearly all of its digits.

    A positive definite matrix D B D with a diagonal D of any sizes has eigenvalues that are known
    to about eps kappa(B) relative to each, by Jacobi's rotations of its Cholesky factor (Demmel and
    Veselic 1992), where :func:`eigenpairs` knows them to eps times the largest one. It is for some
    dozen rows. A matrix that has no Cholesky factor is left to :func:`eigenpairs`.
    """
    try:
        lower = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return eigenpairs(matrix)
    (gejsv,) = get_lapack_funcs(("gejsv",), (matrix,))
    scaled, _, columns, scales, _, info = gejsv(lower.T, joba=0, jobv=0, jobr=0, jobp=0)
    if info:
        return eigenpairs(matrix)
    values = (scaled * (scales[0] / scales[1])) ** 2
    return values[::-1], columns[:, ::-1]


def lapack_singular_values(matrix: np.ndarray) -> np.ndarray:
    """The singular values of any matrix from the largest down, by gesdd."""
    return _heard(matrix, lambda: np.linalg.svd(matrix, compute_uv=False))


def singular_vectors(
    matrix: np.ndarray, *, whole: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left singular vectors as columns, singular values, and right ones as rows.

    Both sides are ``whole`` bases, or have one vector for each singular value.
    """
    work = partial(np.linalg.svd, matrix, full_matrices=whole)
    left, values, right = _heard(matrix, work)
    return left, values, right


def _heard(matrix: np.ndarray, work: Callable[[], _Value]) -> _Value:
    with few_threads(min(matrix.shape)):
        return work() if min(matrix.shape) < _LARGE else interruptible(work)
