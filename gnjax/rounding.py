"""Bounds on what rounding can have done, in units that the certificates add up."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

_PROBES = 4
_POWERS = 3
# P(chi-square with 4 degrees of freedom < 2 sqrt(2e-9)) < 1e-9: see spectral_norm_bound.
_SMALLEST_PROBE_WEIGHT = 2.0 * (2e-9) ** 0.5


def unit_roundoff(dtype: jnp.dtype) -> float:
    """u = eps / 2, the relative error of one rounding."""
    return float(jnp.finfo(dtype).eps) / 2


def gamma(terms: int, dtype: jnp.dtype) -> float:
    """gamma_n = n u / (1 - n u): |fl(x.y) - x.y| <= gamma_n |x|.|y| for vectors of length n."""
    scaled = terms * unit_roundoff(dtype)
    return scaled / (1 - scaled)


def spectral_error(size: int, dtype: jnp.dtype) -> float:
    """Relative to the norm, how far a LAPACK eigenvalue or singular value can be from exact.

    The proofs give a low-degree polynomial of the size, practice a few units of eps that grow no
    faster than the square root; the constant here was not exceeded by any of 200 random matrices
    per shape against 50-digit arithmetic (``tests/test_certificates.py``).
    """
    return max(4.0, size**0.5) * float(jnp.finfo(dtype).eps)


def singular_values(matrix: np.ndarray) -> np.ndarray:
    """Singular values, largest first; a long thin matrix is first reduced by QR."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    if tall.shape[0] > 2 * tall.shape[1]:
        tall = scipy.linalg.qr(tall, mode="r", check_finite=False)[0][: tall.shape[1]]
    return scipy.linalg.svdvals(tall, check_finite=False)


@jax.jit
def spectral_norm_bound(matrix: jax.Array) -> jax.Array:
    """An upper bound on ||W||_2 by randomised power iteration, for large matrices.

    For Gaussian probes g and the top singular vector v, ||(W^T W)^q g|| >= sigma^{2q} |v.g|, and
    four probes have sum |v.g|^2 >= delta^2 except with probability 1e-9 (Dixon 1983), so
    sigma <= (||(W^T W)^q G||_F / delta)^{1/2q}.
    """
    probes = jax.random.normal(jax.random.key(0), (matrix.shape[1], _PROBES), matrix.dtype)
    scale = jnp.maximum(jnp.linalg.norm(matrix), jnp.finfo(matrix.dtype).tiny)
    unit = matrix / scale
    for _ in range(_POWERS):
        probes = unit.T @ (unit @ probes)
    weight = jnp.linalg.norm(probes) / _SMALLEST_PROBE_WEIGHT**0.5
    return scale * jnp.minimum(weight ** (1 / (2 * _POWERS)), 1.0)


@partial(jax.jit, static_argnames=("terms",))
def product_error(
    left: jax.Array,
    left_error: jax.Array,
    right: jax.Array,
    right_norm: jax.Array,
    right_error: jax.Array,
    terms: int,
) -> jax.Array:
    """||fl(PW) - exact||_F for P known to left_error and W (spectral norm right_norm) to its own.

    ``terms`` is the inner dimension, or 0 where the product is exact (a factor is the identity).
    """
    rounding = gamma(terms, left.dtype) * jnp.linalg.norm(left) * jnp.linalg.norm(right)
    return left_error * right_norm + (jnp.linalg.norm(left) + left_error) * right_error + rounding
