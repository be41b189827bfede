"""Eigenvectors of G for its largest and its smallest non-zero eigenvalue."""

from __future__ import annotations

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.networks.network import Network, gather
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.limits import Limits
from gnjax.operators.factorisation import compact
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.spectra import eigenvalues as spectrum

_RESIDUAL = 1e-3  # relative to the largest eigenvalue, at which its eigenvector is good enough
_SMALL_KAPPA = 1e8  # kappa for which the relative error eps kappa of lambda_min changes no share
_CLUSTER = 1e-6  # singular values whose relative difference is at most this count as equal


def end_eigenvectors(
    jacobian: np.ndarray, condition: ConditionNumber, gram: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, top, bottom) of G = J^T J for the ``jacobian`` J, (rows, p).

    ``values`` are the eigenvalues from the largest down. ``top`` and ``bottom`` are eigenvectors
    (p, m) of the largest and of the smallest non-zero eigenvalue, one for each of its m
    repetitions. They are v = J^T u for the left singular vectors u of J, and not of length 1. Where
    kappa is small, the u are eigenvectors of J J^T, which take a fraction of the time; ``gram`` is
    that matrix, if it is there already.
    """
    rows, parameters = jacobian.shape
    if rows < parameters and condition.resolved and condition.value < _SMALL_KAPPA:
        squares, columns = lapack.eigenpairs(jacobian @ jacobian.T if gram is None else gram)
        lefts, sigma = columns[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    else:
        lefts, sigma, _ = lapack.singular_vectors(compact(jacobian), whole=False)
    first, last = 0, condition.rank - 1
    top, bottom = (jacobian.T @ lefts[:, _equal_to(sigma, index)] for index in (first, last))
    return sigma**2, top, bottom


def top_eigenvectors(op: NetworkGram, seed: int, limits: Limits) -> tuple[float, np.ndarray]:
    """The largest eigenvalue of G, on the side of the parameters, and an eigenvector (p, 1)."""
    found = spectrum.eigenvalues(op, k=1, rtol=_RESIDUAL, vectors=True, seed=seed, limits=limits)
    assert found.vectors is not None
    return float(found.values[0]), found.vectors.T


def rescaling_curvature(net: Network, jacobian: np.ndarray, bottom: np.ndarray) -> float:
    """How little the outputs change along directions that only rescale whole arrays of weights.

    Such a direction w = R c multiplies each array by a factor of its own: R has one column for each
    array, with its weights as entries. The answer is the least |J w|^2 over those with v . w = 1,
    where v is the first eigenvector in ``bottom`` (p, m), those of G = J^T J for lambda_min:

        1 / (r^T (R^T J^T J R)^+ r) with r = R^T v.

    It is at least lambda_min, because |J w|^2 >= lambda_min (v . w)^2. And a non-zero eigenvalue is
    at most as large: |J w|^2 / |u|^2 is a Rayleigh quotient of the part u of w in the range of J^T,
    and |u| >= v . u = 1.
    """
    v = bottom[:, 0] / np.linalg.norm(bottom[:, 0])
    weights = np.asarray(gather(net, net.leaves), np.float64)
    # the first entry of each array that is not empty
    counts = [count for count in net.counts if count]
    starts = np.cumsum([0, *counts[:-1]])
    images = np.add.reduceat(jacobian * weights, starts, axis=1)  # J R
    along = np.add.reduceat(weights * v, starts)  # r
    _, sigma, rights = lapack.singular_vectors(images, whole=False)
    is_positive = sigma > len(sigma) * np.finfo(np.float64).eps * sigma[0]
    coefficients = (rights @ along)[is_positive] / sigma[is_positive]
    return 1 / max(float(coefficients @ coefficients), np.finfo(np.float64).tiny)


def _equal_to(values: np.ndarray, index: int) -> np.ndarray:
    """Which values are equal, to a relative 1e-6, to the one at ``index``: its repetitions."""
    return np.abs(values - values[index]) <= _CLUSTER * values[index]
