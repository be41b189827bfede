"""The triangle of a QR factorisation, which has the singular values of a long matrix."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import get_lapack_funcs

from gnjax.numerics.decompositions.threads import few_threads

_PANEL = 64  # columns that are reduced together
_WIDE = 512  # columns of one call to LAPACK, which takes no longer than
_WORK = 4e9  # so many multiplications: Ctrl-C is heard between two calls


def triangular_factor(matrix: np.ndarray) -> np.ndarray:
    """R of M = Q R, (min(rows, columns), columns), without Q.

    LAPACK's geqrt spends nearly all its time in products of matrices. For 30,000 rows it takes half
    the time of scipy.linalg.qr, which also fills an array of as many rows as M has with zeros. It
    is called for some columns at a time, as it proceeds itself, and the numbers are the same.
    """
    size = min(matrix.shape)
    if not size:
        return matrix[:0]
    with few_threads(size):
        return _triangle(matrix, size)


def _triangle(matrix: np.ndarray, size: int) -> np.ndarray:
    if size <= _WIDE:
        return np.triu(_reduced(matrix)[0][:size])
    reduced = np.array(matrix, order="F")
    (gemqrt,) = get_lapack_funcs(("gemqrt",), (matrix,))
    for start in range(0, size, _WIDE):
        end = min(start + _WIDE, size)
        packed, triangle = _reduced(reduced[start:, start:end])
        reduced[start:end, start:end] = packed[: end - start]
        few = max(_PANEL, int(_WORK / (4 * _WIDE * len(packed))))
        for first in range(end, reduced.shape[1], few):
            columns = reduced[start:, first : first + few]
            columns[...] = gemqrt(packed, triangle, columns, trans="T")[0]
    return np.triu(reduced[:size])


def _reduced(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R above the diagonal with the reflectors below it, and what applies these together."""
    (geqrt,) = get_lapack_funcs(("geqrt",), (matrix,))
    packed, triangle, _ = geqrt(min(_PANEL, *matrix.shape), matrix)
    return packed, triangle
