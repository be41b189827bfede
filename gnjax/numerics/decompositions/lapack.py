"""Decompositions of symmetric matrices and of factors by LAPACK, which Ctrl-C interrupts.

NumPy calls the same routines as SciPy and releases Python's lock meanwhile, which SciPy does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import scipy

from gnjax.numerics.decompositions.background import interruptible
from gnjax.numerics.decompositions.threads import few_threads

_LARGE = 500  # with fewer rows or columns no decomposition takes a tenth of a second

_Value = TypeVar("_Value")


def symmetric_eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """The eigenvalues of a symmetric matrix in ascending order, by syevd."""
    return interruptibly(matrix, partial(np.linalg.eigvalsh, matrix))


def eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of a symmetric matrix in ascending order, and eigenvectors as columns."""
    values, columns = interruptibly(matrix, partial(np.linalg.eigh, matrix))
    return values, columns


def graded_eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Like :func:`eigenpairs`, but small eigenvalues of a graded matrix have accurate digits too.

    A graded matrix is D B D with a diagonal D of entries of very different sizes. Jacobi's
    rotations of its Cholesky factor L give each eigenvalue with a relative error of about
    eps kappa(B) (Demmel and Veselic 1992), where :func:`eigenpairs` has errors of eps times the
    largest one. With L^T = U S V^T the eigenvalues are S^2 and the eigenvectors V. The function is
    meant for some dozen rows. A matrix without a Cholesky factor is left to :func:`eigenpairs`.
    """
    try:
        lower = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return eigenpairs(matrix)
    (gejsv,) = scipy.linalg.get_lapack_funcs(("gejsv",), (matrix,))
    # joba=0 is for columns of very different sizes; other options may drop small singular values
    scaled, _, columns, scales, _, info = gejsv(lower.T, joba=0, jobv=0, jobr=0, jobp=0)
    if info:  # the rotations did not converge
        return eigenpairs(matrix)
    values = (scaled * (scales[0] / scales[1])) ** 2  # gejsv returns singular values scaled
    return values[::-1], columns[:, ::-1]


def singular_vectors(
    matrix: np.ndarray, *, whole: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left singular vectors as columns, singular values, and right ones as rows.

    With ``whole`` the left vectors are a basis of the space of columns and the right ones of that
    of rows. Otherwise there is one vector on each side for each singular value.
    """
    work = partial(np.linalg.svd, matrix, full_matrices=whole)
    left, values, right = interruptibly(matrix, work)
    return left, values, right


def interruptibly(matrix: np.ndarray, work: Callable[[], _Value]) -> _Value:
    """The value of ``work``, a decomposition of the matrix, which Ctrl-C interrupts if it is long.

    BLAS has as many threads as are fastest for the shorter side of the matrix.
    """
    with few_threads(min(matrix.shape)):
        return work() if min(matrix.shape) < _LARGE else interruptible(work)
