"""Eigenvectors of G for its largest and its smallest non-zero eigenvalue."""

from __future__ import annotations

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.networks.network import backward_products
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.host import on_device
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.factorisation import compact
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import beside_xla, host_product

_BLOCK = 4
_RESIDUAL = 1e-6
_SMALL_KAPPA = 1e8  # kappa for which the relative error eps kappa of lambda_min changes no share
_CLUSTER = 1e-6  # singular values whose relative difference is at most this count as equal


def end_eigenvectors(
    jacobian: np.ndarray, condition: ConditionNumber
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues of G, and the eigenvectors (p, .) of the largest and the smallest non-zero one.

    A repeated eigenvalue has several eigenvectors. They are right singular vectors of J, computed
    as v = J^T u (not of length 1) from the left singular vectors u. These come from a singular
    value decomposition of J, or of its triangular factor where J is wide. Where kappa is small,
    they are eigenvectors of J J^T, which take a fraction of the time but have eigenvalues that are
    accurate only to within eps lambda_max.
    """
    few, many = jacobian.shape
    if few < many and condition.resolved and condition.value < _SMALL_KAPPA:
        squares, columns = lapack.eigenpairs(jacobian @ jacobian.T)
        lefts, sigma = columns[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    else:
        lefts, sigma, _ = lapack.singular_vectors(compact(jacobian), whole=False)
    top, bottom = (jacobian.T @ lefts[:, _cluster(sigma, end)] for end in (0, condition.rank - 1))
    return sigma**2, top, bottom


def top_eigenvectors(op: NetworkGram, seed: int) -> np.ndarray:
    """Eigenvectors (p, .) of the largest eigenvalue, by block Lanczos."""

    def enough(run: krylov.Run) -> bool:
        values, residuals, _ = krylov.ritz(run)
        return bool(residuals[-1] <= _RESIDUAL * values[-1])

    size = op.shape[0]
    with beside_xla():
        run = krylov.lanczos(
            host_product(op),
            krylov.random_rows(size, _BLOCK, seed),
            max_steps=max(2, LIMITS.basis_rows(size) // _BLOCK),
            noise=spectral_error(size, op.dtype) * spectrum.operator_norm(op),
            enough=enough,
        )
    values, _, coefficients = krylov.ritz(run)
    vectors = run.basis.T @ coefficients[:, _cluster(values, -1)]
    if op.side == "parameters":
        return vectors
    return np.asarray(backward_products(op.net, on_device(vectors, op.dtype)))


def _cluster(values: np.ndarray, index: int) -> np.ndarray:
    """Which values are equal, up to rounding, to the one at ``index``: its repetitions."""
    return np.abs(values - values[index]) <= _CLUSTER * values[index]
