"""Conjugate gradients for several right sides at once, which share each product with A."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gnjax.numerics.host import HostProduct

_PASSES = 20  # at most so many restarts from a residual that is computed anew


class Solved(NamedTuple):
    """Rows x (b, n), and their residuals b - (A + s I) x (b, n), computed from a last product."""

    values: np.ndarray
    residuals: np.ndarray


def conjugate_gradients(
    product: HostProduct,
    right: np.ndarray,
    shift: float,
    *,
    rtol: float,
    most: int,
    precondition: Callable[[np.ndarray], np.ndarray] | None,
    stop: Callable[[], bool],
) -> Solved:
    """x with (A + s I) x = b for rows b ``right`` (b, n), until |b - (A + s I) x| <= rtol |b|.

    The residuals of the recurrence drift away from the true ones by rounding. Where they are small
    enough, the true ones are computed, and the work goes on with them as right sides as long as
    that halves them. ``most`` bounds the steps of each pass. Refused is a matrix with v^T A v + s
    |v|^2 <= 0 for some v on the way.
    """
    goals = rtol * np.linalg.norm(right, axis=1)
    x, residuals = np.zeros_like(right), right.copy()
    for _ in range(_PASSES):
        lengths = np.linalg.norm(residuals, axis=1)
        rows = np.flatnonzero(lengths > goals)
        if not rows.size or stop():
            break
        step = _one_pass(product, residuals[rows], shift, goals[rows], most, precondition, stop)
        better = x[rows] + step
        left = right[rows] - product(better) - shift * better
        gains = np.linalg.norm(left, axis=1) < lengths[rows]
        x[rows[gains]], residuals[rows[gains]] = better[gains], left[gains]
        if not (np.linalg.norm(left, axis=1) < lengths[rows] / 2).any():
            break
    return Solved(x, residuals)


def _one_pass(
    product: HostProduct,
    right: np.ndarray,
    shift: float,
    goals: np.ndarray,
    most: int,
    precondition: Callable[[np.ndarray], np.ndarray] | None,
    stop: Callable[[], bool],
) -> np.ndarray:
    """The rows x of one run of conjugate gradients from zero, each until its residual's goal."""
    inverse = precondition or (lambda rows: rows)
    x, residual = np.zeros_like(right), right.copy()
    z = inverse(residual)
    direction, energy = z.copy(), (residual * z).sum(axis=1)  # r^T P^{-1} r
    _check_positive(energy, "the preconditioner")
    working = np.arange(len(right))
    for _ in range(most):
        p = direction[working]
        image = product(p) + shift * p
        curvature = (p * image).sum(axis=1)
        _check_positive(curvature, f"A + {shift:g} I")
        length = (energy[working] / curvature)[:, None]
        x[working] += length * p
        residual[working] -= length * image
        working = working[np.linalg.norm(residual[working], axis=1) > goals[working] / 2]
        if not working.size or stop():
            break
        z = inverse(residual[working])
        next_energy = (residual[working] * z).sum(axis=1)
        _check_positive(next_energy, "the preconditioner")
        ratio = (next_energy / energy[working])[:, None]
        direction[working] = z + ratio * direction[working]
        energy[working] = next_energy
    return x


def _check_positive(forms: np.ndarray, what: str) -> None:
    """Refuse v^T M v that are not positive, for a matrix M that shall be positive definite."""
    if not (forms > 0).all():
        msg = (
            f"{what} is not positive definite: v^T M v = {float(forms.min()):.3g} for a vector v of"
            " conjugate gradients; pass a larger damping"
        )
        raise ValueError(msg)
