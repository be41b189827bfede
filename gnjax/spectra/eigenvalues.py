"""Eigenvalues of operators, each with a bound on its error."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gnjax.networks.network import rounding as network_rounding
from gnjax.numerics.rounding import singular_values, spectral_error, unit_roundoff
from gnjax.operators.base import Dense, Factored, KroneckerFactors, Operator, SumOfKroneckers
from gnjax.operators.linearised import Prepared
from gnjax.operators.network import NetworkGram
from gnjax.spectra import float32_first as single
from gnjax.spectra import lanczos as krylov
from gnjax.spectra.few import extremes
from gnjax.spectra.host_products import beside_xla, host_product, most_rows

_WHICH = ("all", "largest", "smallest")
_DENSE_UP_TO = 3000
LARGEST_MATRIX = 20_000  # 3.2 GB in float64
_LARGEST_FACTOR_BYTES = 4e9
_BLOCK = 4


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues from the largest down; the true ones differ by at most ``errors``."""

    values: np.ndarray
    errors: np.ndarray
    method: str

    def __len__(self) -> int:
        return len(self.values)


def eigenvalues(
    op: Operator, *, k: int | None = None, which: str = "all", rtol: float = 1e-10
) -> Spectrum:
    """All eigenvalues, or the k largest or smallest, from the largest down.

    All of them come from the singular values of a factor where one is known and small enough, else
    from the dense matrix. A few of a large operator come from Lanczos, repeated ones as often as
    they are, with the residual norm as error: an eigenvalue lies that close to each value; they are
    at most rtol times the operator's norm. For an rtol from 1e-6 on, networks multiply in float32,
    and values and residuals are computed in float64 from the vectors that this leads to.
    """
    size = op.shape[0]
    if which not in _WHICH:
        msg = f"which={which!r} is not one of {', '.join(_WHICH)}"
        raise ValueError(msg)
    if not 0 < rtol < 1:
        msg = f"rtol={rtol} is not between 0 and 1; 1e-10 is the default"
        raise ValueError(msg)
    if which == "all" and k is not None:
        msg = f"k={k} needs which='largest' or which='smallest'"
        raise ValueError(msg)
    if which != "all" and (k is None or not 1 <= k <= size):
        msg = f"which={which!r} needs k between 1 and {size}, got k={k}"
        raise ValueError(msg)
    if k is not None and size > _DENSE_UP_TO:
        return _few(op, k, which, rtol)
    whole = factored_spectrum(op) if has_factor(op) and fits_factored(op) else dense_spectrum(op)
    if k is None:
        return whole
    kept = slice(0, k) if which == "largest" else slice(size - k, size)
    return Spectrum(whole.values[kept], whole.errors[kept], whole.method)


def dense_spectrum(op: Operator) -> Spectrum:
    """LAPACK's values-only driver on the matrix; the error by Weyl, rounding and formation."""
    values = scipy.linalg.eigvalsh(host_matrix(op), check_finite=False)[::-1]
    return Spectrum(values, np.full(len(values), dense_error(op, values[0])), "dense")


def dense_error(op: Operator, norm: float) -> float:
    """How far an eigenvalue computed from the formed matrix can be from the operator's."""
    return spectral_error(op.shape[0], op.dtype) * abs(float(norm)) + formation_error(op, norm)


def formation_error(op: Operator, norm: float) -> float:
    """A bound on ||M - the matrix it stands for||_2, M being what is stored, of 2-norm ``norm``."""
    if isinstance(op, Factored):
        length = float(jnp.linalg.norm(op.factor))
        columns = op.factor.shape[1]
        rounding = columns * unit_roundoff(op.dtype) * length**2
        return (2 * length + float(op.error)) * float(op.error) + rounding
    if isinstance(op, Dense | SumOfKroneckers):
        return float(op.error)
    if isinstance(op, Prepared):
        return formation_error(op.op, norm)
    if isinstance(op, NetworkGram):
        moved = _network_error(op)
        return (2 * abs(float(norm)) ** 0.5 + moved) * moved
    return 0.0


def _network_error(op: NetworkGram) -> float:
    """A bound on ||stored factor - exact||, measured by adjoint products."""
    return float(network_rounding(op.net)) * op.scale**0.5


def host_matrix(op: Operator) -> np.ndarray:
    """The matrix in host memory, in float64, refused where it would not fit."""
    if op.shape[0] > LARGEST_MATRIX:
        msg = (
            f"a dense {op.shape[0]} x {op.shape[0]} matrix needs "
            f"{8e-9 * op.shape[0] ** 2:.0f} GB; use method='krylov'"
        )
        raise ValueError(msg)
    return np.asarray(op.as_matrix(), np.float64)


def has_factor(op: Operator) -> bool:
    """Whether F with F F^T = G can be formed."""
    if isinstance(op, SumOfKroneckers):
        return op.factors is not None
    return isinstance(op, Factored | NetworkGram)


def fits_factored(op: Operator) -> bool:
    """Whether the factor and its QR fit in memory."""
    return 8.0 * op.shape[0] * _columns(op) <= _LARGEST_FACTOR_BYTES


def factored_spectrum(op: Operator) -> Spectrum:
    """Squares of the singular values of J with G = J J^T.

    A singular value known to e gives sigma^2 to 2 sigma e + e^2, so that eigenvalues down to
    about (eps ||J||)^2 are resolved where the matrix itself stops at eps ||J||^2.
    """
    if not has_factor(op):
        msg = (
            "method='factored' needs a factor J with G = J J^T, and this operator has none; "
            "use gnjax.factored(J), or method='dense'"
        )
        raise ValueError(msg)
    if not fits_factored(op):
        msg = (
            f"the factor, {op.shape[0]} x {_columns(op)}, needs "
            f"{8e-9 * op.shape[0] * _columns(op):.0f} GB; use method='krylov'"
        )
        raise ValueError(msg)
    factor, formed = _factor(op)
    sigma = singular_values(factor)
    error = spectral_error(max(factor.shape), op.dtype) * sigma[0] + formed
    sigma = np.pad(sigma, (0, op.shape[0] - len(sigma)))
    return Spectrum(sigma**2, (2 * sigma + error) * error, "factored")


def closed_form_spectrum(op: Operator) -> Spectrum:
    """One layer: the eigenvalues of Sigma, k times. Two layers: sums of squares.

    With S_1 = W_2 and T_2 = Sigma^{1/2} W_1^T, a rotation of the outputs turns G into k blocks
    sigma_i(W_2)^2 Sigma + T_2 T_2^T, whose factor is [sigma_i(W_2) Sigma^{1/2}, T_2]. For whitened
    data the blocks share their eigenvectors and G has the eigenvalues
    sigma_i(W_2)^2 + sigma_j(W_1)^2.
    """
    factors = op.factors if isinstance(op, SumOfKroneckers) else None
    if factors is None or len(factors.lefts) > 2:
        depth = "no network" if factors is None else f"depth {len(factors.lefts)}"
        msg = (
            f"method='closed_form' knows linear networks of depth 1 and 2, got {depth}; use 'auto'"
        )
        raise ValueError(msg)
    k, d = (side[0].shape[0] for side in (factors.lefts, factors.rights))
    inner, inner_error = _sigma(factors.rights[-1], factors.right_errors[-1])
    if len(factors.lefts) == 1:
        return _squares(np.tile(inner, k), inner_error)
    outer, outer_error = _sigma(factors.lefts[0], factors.left_errors[0])
    if not factors.whitened:
        return _blocks(factors, outer, outer_error)
    outer, inner = np.pad(outer, (0, k - len(outer))), np.pad(inner, (0, d - len(inner)))
    sums = np.add.outer(outer**2, inner**2).ravel()
    errors = np.add.outer(
        (2 * outer + outer_error) * outer_error, (2 * inner + inner_error) * inner_error
    ).ravel()
    order = np.argsort(-sums)
    return Spectrum(sums[order], errors[order], "closed_form")


def _blocks(factors: KroneckerFactors, outer: np.ndarray, outer_error: float) -> Spectrum:
    """The singular values of [sigma_i T_1, T_2] for every singular value sigma_i of W_2."""
    first, second = (np.asarray(t) for t in factors.rights)
    outer = np.pad(outer, (0, factors.lefts[0].shape[0] - len(outer)))
    sigma = [singular_values(np.concatenate([s * first, second], axis=1)) for s in outer]
    norm = max(values[0] for values in sigma)
    first_norm = np.linalg.norm(first, 2)
    moved = outer_error * first_norm + outer[0] * float(factors.right_errors[0])
    error = spectral_error(sum(first.shape), first.dtype) * norm + moved
    return _squares(np.concatenate(sigma), error + float(factors.right_errors[1]))


def _sigma(factor: jax.Array, formed: jax.Array) -> tuple[np.ndarray, float]:
    values = singular_values(np.asarray(factor))
    return values, spectral_error(max(factor.shape), factor.dtype) * values[0] + float(formed)


def _squares(sigma: np.ndarray, error: float) -> Spectrum:
    descending = np.sort(sigma)[::-1]
    return Spectrum(descending**2, (2 * descending + error) * error, "closed_form")


def _columns(op: Operator) -> int:
    if isinstance(op, Factored):
        return op.factor.shape[1]
    if isinstance(op, NetworkGram):
        return op.factor_shape[1]
    assert isinstance(op, SumOfKroneckers)
    assert op.factors is not None
    sides = zip(op.factors.lefts, op.factors.rights, strict=True)
    return sum(min(s.shape) * min(t.shape) for s, t in sides)


def _factor(op: Operator) -> tuple[np.ndarray, float]:
    """J, and a bound on ||stored - J||_2."""
    if isinstance(op, Factored):
        return np.asarray(op.factor), float(op.error)
    if isinstance(op, NetworkGram):
        return op.factor(), _network_error(op)
    assert isinstance(op, SumOfKroneckers)
    assert op.factors is not None
    return kronecker_factor(op.factors)


def kronecker_factor(factors: KroneckerFactors) -> tuple[np.ndarray, float]:
    """J = [S_1 (x) T_1, .., S_L (x) T_L], so that J J^T = sum_l S_l S_l^T (x) T_l T_l^T.

    A factor with more columns than rows is replaced by the triangular factor of its transpose,
    which has the same product with its own transpose.
    """
    blocks, squared = [], 0.0
    pairs = zip(
        factors.lefts, factors.rights, factors.left_errors, factors.right_errors, strict=True
    )
    for left, right, left_error, right_error in pairs:
        s, t = _compact(np.asarray(left)), _compact(np.asarray(right))
        blocks.append(np.kron(s, t))
        s_norm, t_norm = float(np.linalg.norm(s, 2)), float(np.linalg.norm(t, 2))
        s_error = float(left_error) + _compaction_error(left, s_norm)
        t_error = float(right_error) + _compaction_error(right, t_norm)
        rounding = unit_roundoff(left.dtype) * float(np.linalg.norm(s) * np.linalg.norm(t))
        moved = s_error * t_norm + (s_norm + s_error) * t_error + rounding
        squared += moved**2
    return np.concatenate(blocks, axis=1), float(squared**0.5)


def _compact(factor: np.ndarray) -> np.ndarray:
    rows, columns = factor.shape
    if columns <= rows:
        return factor
    return scipy.linalg.qr(factor.T, mode="r", check_finite=False)[0][:rows].T


def _compaction_error(factor: jnp.ndarray, norm: float) -> float:
    rows, columns = factor.shape
    return 0.0 if columns <= rows else spectral_error(columns, factor.dtype) * norm


def _few(op: Operator, k: int, which: str, rtol: float) -> Spectrum:
    """k Ritz values from one end, when the residuals of all of them are small."""
    size = op.shape[0]
    sign = -1.0 if which == "largest" else 1.0
    product = host_product(op)
    with beside_xla():
        found = single.extremes_of(op, product, k, sign=sign, rtol=rtol)
        if found is None:
            found = extremes(
                product,
                size,
                k,
                sign=sign,
                rtol=rtol,
                noise=spectral_error(size, op.dtype),
                most=most_rows(size),
            )
    return Spectrum(found.values, found.residuals + dense_error(op, found.scale), "krylov")


def operator_norm(op: Operator) -> float:
    """||G||_2 to a few per cent, for scales of rounding."""
    start = krylov.random_rows(op.shape[0], _BLOCK, 1)
    with beside_xla():
        run = krylov.lanczos(host_product(op), start, max_steps=8, noise=0.0)
    return float(np.abs(np.linalg.eigvalsh(run.projection)).max())
