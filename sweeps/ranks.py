"""The numerical rank of a spectrum, as programs for arrays define it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SINGLE = float(np.finfo(np.float32).eps)  # of the numbers in which PyTorch computes


def numerical_rank(kappa: NDArray) -> int:
    """The rank that ``matrix_rank`` of PyTorch and NumPy gives in single precision.

    It counts the eigenvalues above N times the precision times the largest, of N eigenvalues; the
    entries of ``kappa`` are the largest eigenvalue over each.
    """
    return max(int(np.count_nonzero(kappa < 1 / (len(kappa) * SINGLE))), 2)
