"""Decompositions of symmetric matrices and of factors by LAPACK, which Ctrl-C interrupts.

NumPy calls the same routines as SciPy and releases Python's lock meanwhile, which SciPy does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from gnjax.numerics.decompositions.background import interruptible
from gnjax.numerics.decompositions.threads import few_threads

_LARGE = 500  # with fewer rows or columns no decomposition takes a tenth of a second

Value = TypeVar("Value")


def eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """The eigenvalues of a symmetric matrix in ascending order, by syevd."""
    return _heard(matrix, partial(np.linalg.eigvalsh, matrix))


def eigenpairs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of a symmetric matrix in ascending order, and eigenvectors as columns."""
    values, columns = _heard(matrix, partial(np.linalg.eigh, matrix))
    return values, columns


def singular_values(matrix: np.ndarray) -> np.ndarray:
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


def _heard(matrix: np.ndarray, work: Callable[[], Value]) -> Value:
    with few_threads(min(matrix.shape)):
        return work() if min(matrix.shape) < _LARGE else interruptible(work)
