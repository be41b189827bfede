"""v^T f(A + s I) v between the quadratures of Gauss and of Gauss and Radau."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnjax.spectra.functions.scalar_functions import ScalarFunction
from gnjax.spectra.stochastic.quadratures import Quadrature

NOISE = 16.0  # times the error of a product: what earlier steps make of it, as for a density
_FEWER = 0.75  # of the steps, whose quadrature is compared where no theorem bounds the error


class Sample(NamedTuple):
    """v^T f(A + s I) v for a unit vector v, with the error of the quadrature and that of A."""

    value: float
    gap: float
    moved: float


def sample(rule: Quadrature, f: ScalarFunction, shift: float, least: float, error: float) -> Sample:
    """The middle of both quadratures, half of their distance, and how far an error of A moves it.

    ``least`` is a lower bound on the spectrum of A + s I, and ``error`` bounds that of A, by which
    each node is moved. For f = log the Gauss quadrature lies above the exact number, and that with
    a node at ``least`` below; for 1 / y it is the other way round (Golub and Meurant, 1994).
    """
    error = error + rule.dropped
    floor = least if np.isfinite(least) else -np.inf
    gauss = _sum(rule.nodes + shift, rule.weights, f, error, floor)
    if rule.exact:
        return Sample(gauss[0], 0.0, gauss[1])
    if not f.bends or not np.isfinite(least):
        fewer = max(1, int(_FEWER * len(rule.nodes)))
        other = _of_matrix(_tridiagonal(rule)[:fewer, :fewer], f, shift, error, floor)
        return Sample(gauss[0], abs(gauss[0] - other[0]), gauss[1])
    radau = _of_matrix(_with_node(rule, least - shift - error), f, shift, error, floor)
    middle, gap = (gauss[0] + radau[0]) / 2, abs(gauss[0] - radau[0]) / 2
    return Sample(middle, gap, max(gauss[1], radau[1]))


def _with_node(rule: Quadrature, node: float) -> np.ndarray:
    """T with a row more, so that ``node``, below all of its eigenvalues, is an eigenvalue, too.

    Its last diagonal entry is a + b^2 e^T (T - a I)^{-1} e for the node a, the coupling b, and the
    last unit vector e (Golub, 1973).
    """
    matrix, size, coupling = _tridiagonal(rule), len(rule.nodes), rule.couplings[-1]
    below = min(node, float(rule.nodes[0]) - abs(float(rule.nodes[-1])) * np.finfo(float).eps)
    last = np.linalg.solve(matrix - below * np.eye(size), np.eye(size)[:, -1])[-1]
    wider = np.zeros((size + 1, size + 1))
    wider[:size, :size] = matrix
    wider[size, size - 1] = wider[size - 1, size] = coupling
    wider[size, size] = below + coupling**2 * last
    return wider


def _tridiagonal(rule: Quadrature) -> np.ndarray:
    """T (m, m) of the run that the quadrature comes from."""
    beside = np.diag(rule.couplings[:-1], 1)
    return np.asarray(np.diag(rule.diagonal) + beside + beside.T)


def _of_matrix(
    matrix: np.ndarray, f: ScalarFunction, shift: float, error: float, least: float
) -> tuple[float, float]:
    """e_1^T f(T + s I) e_1, and how far it is moved by an error of the eigenvalues of T."""
    nodes, vectors = np.linalg.eigh(matrix)
    return _sum(nodes + shift, vectors[0] ** 2, f, error, least)


def _sum(
    nodes: np.ndarray, weights: np.ndarray, f: ScalarFunction, error: float, least: float
) -> tuple[float, float]:
    """sum_j w_j f(y_j), and by how much it changes where all nodes y_j move by ``error``.

    No node lies below ``least``.
    """
    ends = (f.values(np.maximum(nodes + way * error, least)) for way in (-1.0, 0.0, 1.0))
    low, middle, high = (float(weights @ values) for values in ends)
    rounding = float(weights @ f.rounding(f.values(np.maximum(nodes, least))))
    return middle, max(abs(middle - low), abs(high - middle)) + rounding
