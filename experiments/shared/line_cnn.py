"""Two-layer linear CNNs in one dimension, on images taken as a line, as paper A's code has them.

An image of d pixels is a line of length d. T_1 (F P, d) and T_2 (F Q, F P) are the matrices of two
convolutions with F kernels of K entries, stride 1 and no padding, P = d - K + 1, Q = P - K + 1.
Every entry of both matrices is a parameter (Appendix B applies Lemma 2 to them), so that

    G = T_2 T_2^T (x) Sigma + I (x) R T_1^T T_1 R,   R = Sigma^(1/2).

In the axes of T_2 T_2^T it falls apart into one matrix a_i Sigma + R T_1^T T_1 R of d rows for each
eigenvalue a_i. All of them grow with a_i, so that the ends of G are the largest eigenvalue at the
largest a_i and the smallest at the smallest.

The published code of paper A has Sigma / 2 in place of R: it writes Sigma to the power of 1/2 as
Sigma ** 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import gnjax
from experiments.shared.linear_cnn import ExtremeEigenvalues, extreme_eigenvalues
from gnjax import papers
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.operators import Dense

Array = NDArray[np.float64]
_FLOAT64 = jnp.dtype(jnp.float64)


@dataclass(frozen=True, eq=False)
class Covariance:
    """Sigma on its range: its eigenvalues above rounding, and its axes (d, r) there."""

    values: Array
    axes: Array

    @property
    def condition(self) -> float:
        return float(self.values[-1] / self.values[0])


def covariance_of(x: Array) -> Covariance:
    """Of samples x (n, d), not centred; directions in which they vanish up to rounding are left."""
    _, singular, rights = np.linalg.svd(x / len(x) ** 0.5, full_matrices=False)
    seen = singular > max(x.shape) * np.finfo(float).eps * singular[0]
    return Covariance(singular[seen][::-1] ** 2, rights[seen][::-1].T)


def matrices(length: int, size: int, filters: int, gain: float, seed: int) -> tuple[Array, Array]:
    """T_1 and T_2, whose kernels have variance gain / K and gain / (F K)."""
    key = jax.random.key(seed)
    drawn = []
    for index, channels in enumerate((1, filters)):
        widths = (channels * size, filters)
        layer = jax.random.fold_in(key, index)
        (kernels,) = gnjax.initializers.chain(layer, widths, "kaiming_normal", gain=gain)
        drawn.append(np.asarray(kernels).reshape(filters, channels, size))
    first = np.asarray(papers.toeplitz(drawn[0], length))
    return first, np.asarray(papers.toeplitz(drawn[1], length - size + 1))


def conditioning(first: Array, second: Array, sigma: Covariance, *, half: bool) -> dict[str, Any]:
    """kappa with its interval and the bounds; ``half``: with Sigma / 2 in place of Sigma^(1/2)."""
    outer = extreme_eigenvalues(_gram(second.T))
    root = sigma.values / 2 if half else np.sqrt(sigma.values)
    inner = _gram(first @ sigma.axes * root)
    ends = [
        extreme_eigenvalues(_shifted(inner, at, sigma.values))
        for at in (outer.largest, outer.smallest)
    ]
    moved = outer.error * sigma.values[-1]
    largest, smallest = ends[0].largest, ends[1].smallest
    above, below = (end.error + moved for end in ends)
    rank = outer.size * len(sigma.values)
    return {
        "kappa": largest / smallest,
        "kappa_low": (largest - above) / (smallest + below),
        "kappa_high": (largest + above) / (smallest - below) if smallest > below else np.inf,
        "evidence": ends[1].evidence,
        "failure": 0.0,
        "resolved": bool(smallest > below),
        "method": "blocks of Sigma",
        "rank": rank,
        "size": outer.size * len(sigma.axes),
        "lambda_max": largest,
        "lambda_min": smallest,
        **_bounds(first, outer, sigma),
    }


def _gram(factor: Array) -> Dense:
    """A^T A with a bound on its rounding; the factor has been multiplied once before."""
    error = 3 * gamma(max(factor.shape) + 4, _FLOAT64) * float(np.linalg.norm(factor)) ** 2
    return Dense(jnp.asarray(factor.T @ factor), jnp.asarray(error))


def _shifted(inner: Dense, at: float, values: Array) -> Dense:
    """a Sigma + R T_1^T T_1 R in the axes of Sigma."""
    matrix = np.asarray(inner.matrix) + at * np.diag(values)
    rounding = spectral_error(len(values), _FLOAT64) * at * values[-1]
    return Dense(jnp.asarray(matrix), jnp.asarray(float(inner.stored_error) + rounding))


def _bounds(first: Array, outer: ExtremeEigenvalues, sigma: Covariance) -> dict[str, float | None]:
    """Lemma 2's bound, and the one of the published code.

    That code has T_1 T_1^T in place of T_1^T T_1, whose smallest eigenvalue is 0 where T_1 has more
    rows than columns, so that one term of the denominator is lost.
    """
    inner = extreme_eigenvalues(_gram(first))
    error = outer.error + inner.error
    above = sigma.condition * (outer.largest + inner.largest + error)
    least = outer.smallest + max(inner.smallest, 0.0) - error
    alone = outer.smallest - outer.error
    return {
        "bound": above / least if least > 0 else None,
        "bound_published": above / alone if alone > 0 else None,
    }
