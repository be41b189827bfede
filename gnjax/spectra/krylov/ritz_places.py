"""How far each of the sorted Ritz values is from the eigenvalue with the same number."""

from __future__ import annotations

import numpy as np


def position_errors(values: np.ndarray, residuals: np.ndarray, edge: float) -> np.ndarray:
    """How far the i-th least eigenvalue is from the i-th least of these Ritz values.

    The number of eigenvalues below ``edge`` is known to be that of the values below it. If the
    residual intervals of a group of values overlap, the group has as many eigenvalues within the
    root of the sum of their squared residuals (Kahan). An eigenvalue whose value is above the edge
    lies between the edge and the value. Where an interval contains the edge nothing is known.
    """
    order = np.argsort(values, kind="stable")
    errors = np.empty(len(values))
    for group in _overlapping(values[order], residuals[order]):
        own = order[group]
        radius = float(np.linalg.norm(residuals[own]))
        if values[own].max() + radius < edge:
            errors[own] = radius
        else:
            errors[own] = values[own] - edge if values[own].min() >= edge else np.inf
    return errors


def group_radii(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """How far each value can be from an eigenvalue of its own, in any order (Kahan).

    A group of values whose intervals overlap has as many eigenvalues within the root of the sum of
    its squared residuals.
    """
    order = np.argsort(values, kind="stable")
    radii = np.empty(len(values))
    for group in _overlapping(values[order], residuals[order]):
        radii[order[group]] = np.linalg.norm(residuals[order[group]])
    return radii


def _overlapping(values: np.ndarray, residuals: np.ndarray) -> list[list[int]]:
    """Groups of neighbouring values whose intervals overlap, with the common radius of a group."""
    groups: list[list[int]] = []
    for index in range(len(values)):
        groups.append([index])
        while len(groups) > 1 and _touch(values, residuals, groups[-2], groups[-1]):
            last = groups.pop()
            groups[-1] = groups[-1] + last
    return groups


def _touch(values: np.ndarray, residuals: np.ndarray, low: list[int], high: list[int]) -> bool:
    radii = np.linalg.norm(residuals[low]) + np.linalg.norm(residuals[high])
    return bool(values[high].min() - values[low].max() <= radii)
