"""The weights of a linear network and Sigma^{1/2}, with the errors of the stored numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from gnjax.numerics.certificate import MEASURED, PROVED
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import conversion_error, raised
from gnjax.numerics.rounding import spectral_error, unit_roundoff
from gnjax.numerics.validation import check_covariance, check_weights


@dataclass(frozen=True)
class Layers:
    """W_1 .. W_L.

    Attributes:
      originals: as the caller gave them.
      stored: in the working precision.
      errors: bounds on ||original - stored||_F, 0 where nothing was rounded.
    """

    originals: tuple[NDArray | jax.Array, ...]
    stored: list[jax.Array]
    errors: tuple[float, ...]

    @property
    def dtype(self) -> jnp.dtype:
        return self.stored[0].dtype

    @property
    def inputs(self) -> int:
        return self.stored[0].shape[1]

    def error(self, index: int, skip: float) -> float:
        """A bound on the error in Frobenius norm of the stored W_l + beta I, for l = ``index`` + 1.

        beta = ``skip`` is rounded to the working precision, and so are the sums on the diagonal.
        """
        if skip == 0.0:
            return self.errors[index]
        unit, diagonal = unit_roundoff(self.dtype), np.diagonal(np.asarray(self.stored[index]))
        skip_error = abs(skip - float(np.asarray(skip, self.dtype)))
        size = float(np.linalg.norm(diagonal.astype(np.float64)))
        root = len(diagonal) ** 0.5
        rounding = unit * (size + (abs(skip) + skip_error) * root)
        return raised(self.errors[index] + skip_error * root + rounding)


def checked_layers(weights: Sequence[ArrayLike]) -> Layers:
    """W_1 .. W_L as given and in the working precision, refused where their shapes do not chain."""
    arrays = check_weights(weights)
    originals = tuple(w if isinstance(w, jax.Array) else np.asarray(w) for w in weights)
    errors = tuple(conversion_error(w, s) for w, s in zip(originals, arrays, strict=True))
    return Layers(originals, arrays, errors)


@dataclass(frozen=True)
class CovarianceRoot:
    """Sigma^{1/2}.

    Attributes:
      matrix: (d, d), or None for the identity.
      error: a bound on ||stored - exact||_2.
      rank: an upper bound on the rank of Sigma, which is exact for ``matrix``.
      inputs: (d,), True for each input whose row of Sigma is not zero.
      assumed: whether eigenvalues that are not zero were set to zero, because they are small.
      evidence: what ``error`` rests on: LAPACK's constant is measured.
    """

    matrix: jax.Array | None
    error: float
    rank: int
    inputs: NDArray[np.bool_]
    assumed: bool = False
    evidence: str = PROVED


def square_root(covariance: ArrayLike | None, inputs: int, dtype: jnp.dtype) -> CovarianceRoot:
    """Sigma^{1/2} of the covariance (d, d), computed in float64 and stored in ``dtype``.

    d is the number of ``inputs``; without a covariance, the root is the identity. Inputs whose row
    of Sigma is zero are left out exactly. Of the others, eigenvalues below d eps lambda_max, which
    rounding can have made of zero, are set to zero: an assumption. If Sigma moves by delta, the
    root moves by at most delta / sqrt(lambda_r) on its range, because
    ||A^{1/2} - B^{1/2}|| <= ||A - B|| / (sqrt lambda_min(A) + sqrt lambda_min(B)) there.
    """
    if covariance is None:
        return CovarianceRoot(None, 0.0, inputs, np.ones(inputs, bool))
    check_covariance(covariance, inputs)
    host = np.asarray(covariance)
    precision = host.dtype if host.dtype == dtype else np.dtype(np.float64)
    sigma = (host.astype(np.float64) + host.T.astype(np.float64)) / 2
    nonzero_rows = np.asarray(sigma.any(axis=1))
    if not (sigma - np.diag(np.diagonal(sigma))).any():
        return _diagonal_root(np.diagonal(sigma), dtype)
    block = sigma[np.ix_(nonzero_rows, nonzero_rows)]
    # By divide and conquer: MRRR was seen to be off by 40 eps in an eigenvalue that is zero.
    values, vectors = lapack.eigenpairs(block)
    nonzero = values > max(8, inputs) * float(jnp.finfo(precision).eps) * max(values[-1], 0.0)
    roots = np.where(nonzero, np.sqrt(np.where(nonzero, values, 0.0)), 0.0)
    root = np.zeros(sigma.shape)
    root[np.ix_(nonzero_rows, nonzero_rows)] = (vectors * roots) @ vectors.T
    array = on_device(root, dtype)
    rank = int(nonzero.sum())
    if rank == 0:
        return CovarianceRoot(array, 0.0, 0, nonzero_rows, assumed=True)
    share = spectral_error(inputs, np.dtype(np.float64))
    error = share * values[-1] / roots[nonzero].min() + share * roots.max()
    total_error = error + conversion_error(root, array)
    return CovarianceRoot(
        array, raised(total_error), rank, nonzero_rows, rank < nonzero_rows.sum(), MEASURED
    )


def _diagonal_root(variances: np.ndarray, dtype: jnp.dtype) -> CovarianceRoot:
    """Sigma^{1/2} of a diagonal Sigma with the entries ``variances`` (d,), stored in ``dtype``.

    Variances below zero, which are rounding, count as zero: an assumption.
    """
    roots = np.sqrt(np.maximum(variances, 0.0))
    array = on_device(np.diag(roots), dtype)
    error = unit_roundoff(np.dtype(np.float64)) * float(roots.max())
    nonzero = roots > 0
    total_error = raised(error + conversion_error(np.diag(roots), array))
    return CovarianceRoot(
        array, total_error, int(nonzero.sum()), nonzero, assumed=bool((variances < 0).any())
    )
