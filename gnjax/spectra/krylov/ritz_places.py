"""How far each of the sorted Ritz values is from the eigenvalue with the same number."""

from __future__ import annotations

import numpy as np


def position_errors(values: np.ndarray, residuals: np.ndarray, edge: float) -> np.ndarray:
    """How far the i-th least eigenvalue is from the i-th least of these Ritz values.

    ``residuals`` are the lengths ||A x - theta x|| of the unit Ritz vectors x with the values
    theta. It is known that as many eigenvalues lie below ``edge`` as values. Values whose intervals
    theta +- residual overlap form a group. By Kahan's theorem a group has as many eigenvalues as
    values, within its radius, the root of the sum of its squared residuals. So a group that lies
    below the edge has these errors. An eigenvalue whose value is above the edge lies between the
    edge and the value. Where an interval contains the edge nothing is known.
    """
    order = np.argsort(values, kind="stable")
    errors = np.empty(len(values))
    for group in _overlapping(values[order], residuals[order]):
        members = order[group]
        radius = float(np.linalg.norm(residuals[members]))
        if values[members].max() + radius < edge:
            errors[members] = radius
        else:
            errors[members] = values[members] - edge if values[members].min() >= edge else np.inf
    return errors


def group_radii(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """How far each value (k,) can be from an eigenvalue of its own, for values in any order.

    Values whose intervals, value +- residual, overlap form a group. By Kahan's theorem a group of m
    values has m eigenvalues, each within r of a value of its own, for r the root of the sum of the
    squared residuals. This r is the radius of every value of the group.
    """
    order = np.argsort(values, kind="stable")
    radii = np.empty(len(values))
    for group in _overlapping(values[order], residuals[order]):
        radii[order[group]] = np.linalg.norm(residuals[order[group]])
    return radii


def _overlapping(values: np.ndarray, residuals: np.ndarray) -> list[list[int]]:
    """The indices of ascending values in groups of neighbours whose intervals overlap.

    The interval of a group reaches beyond its values by the root of the sum of its squared
    residuals. It grows when two groups join, so that the new group may overlap with the one before.
    """
    groups: list[list[int]] = []
    for index in range(len(values)):
        groups.append([index])
        while len(groups) > 1 and _touch(values, residuals, groups[-2], groups[-1]):
            upper_group = groups.pop()
            groups[-1] = groups[-1] + upper_group
    return groups


def _touch(values: np.ndarray, residuals: np.ndarray, lower: list[int], upper: list[int]) -> bool:
    """Whether the intervals of two groups overlap, each with the norm of its residuals as radius.

    The values of ``lower`` are below those of ``upper``.
    """
    radii = np.linalg.norm(residuals[lower]) + np.linalg.norm(residuals[upper])
    return bool(values[upper].min() - values[lower].max() <= radii)
