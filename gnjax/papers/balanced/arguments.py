"""Checks of the arguments that the formulas of paper B have in common."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.validation import check_finite_number, check_matrix

_NOT_WHITE = 1e-6  # the largest entry that x^T x / (n sigma_x^2) - I may have


def padded(squares: np.ndarray, size: int | None, name: str) -> np.ndarray:
    """Squared singular values with zeros appended, or zeros dropped, to have ``size`` entries.

    With ``size`` None they stay as they are. More non-zero ones than ``size``, the argument
    ``name`` of the caller, are refused.
    """
    if size is None:
        return squares
    if size < len(squares):
        if np.count_nonzero(squares) > size:
            count = np.count_nonzero(squares)
            msg = f"got {count} non-zero singular values, more than {name}={size} allows"
            raise ValueError(msg)
        return np.sort(squares)[::-1][:size]
    return np.pad(squares, (0, size - len(squares)))


def check_depth(depth: int) -> int:
    """The number of layers; a ValueError where it is no positive integer."""
    if not isinstance(depth, int | np.integer) or depth < 1:
        msg = f"depth={depth} must be an integer of at least 1"
        raise ValueError(msg)
    return int(depth)


def check_scale(sigma_x: float) -> float:
    """The scale of whitened inputs; a ValueError where it is not positive."""
    scale = check_finite_number("sigma_x", sigma_x)
    if scale <= 0:
        msg = f"sigma_x={sigma_x} must be positive"
        raise ValueError(msg)
    return scale


def check_whitened(x: ArrayLike, sigma_x: float) -> np.ndarray:
    """The inputs x (n, d_0); a ValueError where x^T x / n is not sigma_x^2 I."""
    data, scale = np.asarray(check_matrix("x", x)), check_scale(sigma_x)
    covariance = data.T @ data / (len(data) * scale**2)
    gap = float(np.abs(covariance - np.eye(len(covariance))).max())
    if gap > _NOT_WHITE:
        msg = (
            f"x^T x / n differs from sigma_x^2 I for sigma_x={sigma_x} by up to {gap:.2g} sigma_x^2"
            " in an entry: whiten the inputs with gnjax.data.orthogonalise(x, sigma_x)"
        )
        raise ValueError(msg)
    return data


def check_labels(y: ArrayLike, samples: int) -> np.ndarray:
    """The targets y (n, d_L); a ValueError where there is not one row for each sample."""
    labels = np.asarray(check_matrix("y", y))
    if len(labels) != samples:
        msg = f"y has {len(labels)} rows but x has {samples}; one row for each sample is needed"
        raise ValueError(msg)
    return labels
