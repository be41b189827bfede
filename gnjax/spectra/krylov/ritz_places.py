"""How far each of the sorted Ritz values is from the eigenvalue with the same number."""

from __future__ import annotations

import numpy as np


def position_errors(values: np.ndarray, residuals: np.ndarray, edge: float) -> np.ndarray:
    """How far the i-th least eigenvalue is from the i-th least of these Ritz values.

    ``residuals`` are the lengths ||A x - theta x|| of the unit Ritz vectors x with the values
    theta. It is known that as many eigenvalues lie below ``edge`` as values. A group of values
    (:func:`overlapping`) that lies below the edge has its radius as errors. An eigenvalue whose
    value is above the edge lies between the edge and the value. Where an interval contains the edge
    nothing is known.
    """
    errors = np.empty(len(values))
    for members, radius in overlapping(values, residuals):
        if values[members].max() + radius < edge:
            errors[members] = radius
        else:
            errors[members] = values[members] - edge if values[members].min() >= edge else np.inf
    return errors


def overlapping(values: np.ndarray, residuals: np.ndarray) -> list[tuple[list[int], float]]:
    """The indices of each group of values whose intervals overlap, ascending, and its radius.

    By Kahan's theorem a group of m values has m eigenvalues, each within the radius, the root of
    the sum of the squared residuals, of a value of its own. A group that grows may reach the one
    before.
    """
    groups: list[tuple[list[int], float]] = []
    for index in np.argsort(values, kind="stable").tolist():
        upper, radius = [index], float(np.linalg.norm(residuals[[index]]))
        while groups:
            lower, radius_below = groups[-1]
            if not values[upper].min() - values[lower].max() <= radius_below + radius:
                break
            groups.pop()
            upper = lower + upper
            radius = float(np.linalg.norm(residuals[upper]))
        groups.append((upper, radius))
    return groups
