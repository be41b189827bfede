"""The triangle of a QR factorisation, which has the singular values of a long matrix."""

from __future__ import annotations

import numpy as np
import scipy

from gnjax.numerics.decompositions.threads import few_threads

_PANEL = 64  # columns that are reduced together
_WIDE = 512  # columns of one call to LAPACK, which takes no longer than
_WORK = 4e9  # so many multiplications: Ctrl-C is heard between two calls


def triangular_factor(matrix: np.ndarray) -> np.ndarray:
    """R of the QR factorisation M = Q R, as (min(rows, columns), columns), without Q.

    LAPACK's geqrt spends nearly all its time in products of matrices. For 30,000 rows it takes half
    the time of scipy.linalg.qr, which also fills an array of as many rows as M has with zeros. It
    factorises 512 columns at a time, and the transpose of their Q is applied to the columns after
    them, so that Ctrl-C is heard between its calls.
    """
    size = min(matrix.shape)
    if not size:
        return matrix[:0]
    with few_threads(size):
        if size <= _WIDE:
            return np.triu(_factorised(matrix)[0][:size])
        reduced = np.array(matrix, order="F")
        (gemqrt,) = scipy.linalg.get_lapack_funcs(("gemqrt",), (matrix,))
        for start in range(0, size, _WIDE):
            end = min(start + _WIDE, size)
            packed, triangles = _factorised(reduced[start:, start:end])
            reduced[start:end, start:end] = packed[: end - start]
            # As many columns in one call as take 4e9 multiplications, some 4 * 512 for each entry.
            columns_in_call = max(_PANEL, int(_WORK / (4 * _WIDE * len(packed))))
            for first in range(end, reduced.shape[1], columns_in_call):
                columns = reduced[start:, first : first + columns_in_call]
                columns[...] = gemqrt(packed, triangles, columns, trans="T")[0]
        return np.triu(reduced[:size])


def _factorised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The QR factorisation of a matrix as LAPACK's geqrt stores it: (packed, triangles).

    ``packed`` has R on and above its diagonal, and below it the vectors V of the reflections whose
    product is Q = I - V T V^T. ``triangles`` has the T of each panel of columns.
    """
    (geqrt,) = scipy.linalg.get_lapack_funcs(("geqrt",), (matrix,))
    packed, triangles, _ = geqrt(min(_PANEL, *matrix.shape), matrix)
    return packed, triangles
