"""The numerical rank of J J^T / n by the rules of the published code of paper A, and kappa there.

Every rule counts the eigenvalues above a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gnjax.answers import Spectrum

DEFAULT = "float64"
RULES: Mapping[str, Callable[[NDArray[np.float64]], float]] = {
    # matrix_rank of PyTorch and NumPy in double and in single precision: rows x eps x the largest
    "float64": lambda values: len(values) * float(np.finfo(np.float64).eps) * values[0],
    "float32": lambda values: len(values) * float(np.finfo(np.float32).eps) * values[0],
    "absolute": lambda values: 1e-7,
    "absolute over rows": lambda values: 1e-7 / len(values),
}
"""The tolerance of each rule, from all eigenvalues, the largest first."""


def ranks(values: NDArray[np.float64]) -> dict[str, int]:
    """The rank by each rule; at least 1."""
    return {
        name: max(int(np.count_nonzero(values > tolerance(values))), 1)
        for name, tolerance in RULES.items()
    }


def kappa_at(spectrum: Spectrum, rank: int) -> tuple[float, float, float]:
    """lambda_1 / lambda_rank and its ends.

    Where its error hides the eigenvalue, the upper end is infinite and the lower one stands for it.
    """
    values, errors = spectrum.values, spectrum.errors
    top, top_error = float(values[0]), float(errors[0])
    last, last_error = float(values[rank - 1]), float(errors[rank - 1])
    if rank == 1:
        return 1.0, 1.0, 1.0
    low = max((top - top_error) / (last + last_error), 1.0)
    high = (top + top_error) / (last - last_error) if last > last_error else np.inf
    return (top / last if last > last_error else low), low, high
