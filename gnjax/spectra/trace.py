"""The trace of any symmetric operator: exact, or from random products with their standard error.

With A = Q Q^T A Q Q^T + .. for an orthonormal Q (n, k), tr A = tr(Q^T A Q) + tr(P A P) where
P = I - Q Q^T. Hutchinson has no Q; Hutch++ and XTrace take Q from products with random vectors,
so that the top of the spectrum is exact and only the rest is random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.operators.base import Dense, Factored, Operator, SumOfKroneckers, dense
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra import lanczos as krylov
from gnjax.spectra.host_products import host_product

_LEAST_PROBES = {"exact": 0, "hutchinson": 1, "hutch++": 3, "xtrace": 2}
_SMALL = 1000
_BLOCK = 16
_STREAM = 7919


@dataclass(frozen=True)
class Trace:
    """tr A, with the standard error of the estimate.

    Attributes:
      standard_error: over the random vectors, without rounding; 0.0 for the exact method,
        infinite where a single random vector leaves nothing to compare.
      products: operator applications; 0 where the structure or the matrix gives the answer.
    """

    value: float
    standard_error: float
    method: str
    products: int

    def __str__(self) -> str:
        return (
            f"trace = {self.value:.6g} +- {self.standard_error:.2g} "
            f"({self.method}, {self.products} products)"
        )


def trace(
    op: Operator | ArrayLike, *, method: str = "hutchinson", probes: int = 100, seed: int = 0
) -> Trace:
    """tr A for a symmetric A, definite or not.

    Args:
      op: an operator, or a symmetric matrix.
      method: "exact" (from the structure, else from n unit vectors); "hutchinson", whose error
        falls with the square root of the products; "hutch++" (Meyer, Musco, Musco and Woodruff,
        2021) and "xtrace" (Epperly, Tropp and Webber, 2023), whose error also falls with the
        spectrum: better by far where it decays, at the price of storing ``probes`` vectors.
      probes: the number of products with the operator that may be spent, in total and whatever
        the method ("hutch++" needs 3, "xtrace" 2; "exact" takes what it takes).
      seed: of the random vectors.
    """
    operator = op if isinstance(op, Operator) else dense(op)
    if method not in _LEAST_PROBES:
        msg = f"method={method!r} is not one of {', '.join(_LEAST_PROBES)}"
        raise ValueError(msg)
    if not isinstance(probes, int | np.integer) or probes < _LEAST_PROBES[method]:
        msg = f"method={method!r} needs at least {_LEAST_PROBES[method]} probes, got {probes}"
        raise ValueError(msg)
    if method == "exact":
        return _exact(operator)
    estimate = {"hutchinson": _hutchinson, "hutch++": _hutch_plus_plus, "xtrace": _xtrace}[method]
    return estimate(operator, probes, probe_stream(seed))


def _exact(op: Operator) -> Trace:
    """||J||_F^2 for J J^T, sum_l tr A_l tr B_l for Kronecker products, else the diagonal."""
    products = 0
    if isinstance(op, Factored):
        value = float((np.asarray(op.factor, np.float64) ** 2).sum())
    elif isinstance(op, SumOfKroneckers):
        sides = (np.asarray(side, np.float64) for side in (op.lefts, op.rights))
        lefts, rights = (np.trace(side, axis1=1, axis2=2) for side in sides)
        value = float(lefts @ rights)
    elif isinstance(op, Dense) or op.shape[0] <= _SMALL:
        value = float(np.asarray(jnp.diagonal(op.as_matrix()), np.float64).sum())
    else:
        value, products = _sum_of_diagonal(op), op.shape[0]
    check_products(value)
    return Trace(value, 0.0, "exact", products)


def _sum_of_diagonal(op: Operator) -> float:
    """sum_i e_i^T A e_i by blocks of unit vectors."""
    product, size, total = host_product(op), op.shape[0], 0.0
    for first in range(0, size, _BLOCK):
        units = np.eye(min(_BLOCK, size - first), size, first)
        total += float(np.trace(product(units)[:, first:]))
    return total


def _hutchinson(op: Operator, probes: int, rng: np.random.Generator) -> Trace:
    """The mean of g^T A g over random signs g."""
    product, samples = host_product(op), []
    for first in range(0, probes, _BLOCK):
        signs = _signs(rng, min(_BLOCK, probes - first), op.shape[0])
        samples.append((product(signs) * signs).sum(axis=1))
    values = np.concatenate(samples)
    check_products(values)
    return Trace(float(values.mean()), _standard_error(values), "hutchinson", probes)


def _hutch_plus_plus(op: Operator, probes: int, rng: np.random.Generator) -> Trace:
    """tr(Q^T A Q) + the mean of g^T P A P g, a third of the products for Q, a third for each term.

    Q is an orthonormal basis of A S for a Gaussian S (n, k); with k = n nothing is left for P.
    """
    product, size, third = host_product(op), op.shape[0], probes // 3
    sketch = rng.standard_normal((min(third, size), size))
    basis = np.linalg.qr(_images(product, sketch).T)[0].T  # (k, n)
    captured = float((_images(product, basis) * basis).sum())
    used = 2 * len(basis)
    if len(basis) == size:
        return Trace(captured, 0.0, "hutch++", used)
    rest = krylov.outside(_signs(rng, probes - used, size), basis)
    values = captured + (_images(product, rest) * rest).sum(axis=1)
    return Trace(float(values.mean()), _standard_error(values), "hutch++", probes)


def _xtrace(op: Operator, probes: int, rng: np.random.Generator) -> Trace:
    """The mean over i of Hutch++ with all test vectors but the i-th for Q, that one for the rest.

    For Gaussian test vectors w_1 .. w_k, Q_i spans A w_j for j != i. Given Q_i, the direction of
    p_i = P_i w_i is uniform on the sphere of the complement, of dimension n - k + 1, and

        t_i = tr(Q_i^T A Q_i) + (n - k + 1) p_i^T A p_i / |p_i|^2

    has the mean tr A. With the norm of p_i gone, t_i = tr A for k = n. All Q_i come from one
    factorisation [A w_1 .. A w_k] = Q S V^T: the columns other than the i-th are orthogonal to
    Q r_i for r_i along S^{-1} V^T e_i, so that Q_i Q_i^T = Q (I - r_i r_i^T) Q^T for |r_i| = 1.
    Where the rank is below k, no column is missed (r_i = 0): any k - 1 of them span the range.
    """
    product, size = host_product(op), op.shape[0]
    tests = rng.standard_normal((min(probes // 2, size), size))  # rows w_i
    count = len(tests)
    images = _images(product, tests)
    columns, scales, right = np.linalg.svd(images.T, full_matrices=False)
    rank = int((scales > spectrum.dense_error(op, scales[0]).value).sum())
    basis = columns[:, :rank].T
    missed = _unit_rows(right.T / scales) if rank == count else np.zeros((count, rank))
    basis_images = _images(product, basis)
    compression = basis_images @ basis.T
    captured = np.trace(compression) - ((missed @ compression) * missed).sum(axis=1)
    inside = tests @ basis.T
    inside -= missed * (missed * inside).sum(axis=1, keepdims=True)
    rest = tests - inside @ basis  # rows p_i
    rest_images = images - inside @ basis_images
    quotients = (rest * rest_images).sum(axis=1) / (rest**2).sum(axis=1)
    values = captured + (size - min(rank, count - 1)) * quotients
    error = 0.0 if count == size else _standard_error(values)
    return Trace(float(values.mean()), error, "xtrace", count + rank)


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _images(product: krylov.Apply, rows: np.ndarray) -> np.ndarray:
    """A on every row, a few at a time."""
    images = np.empty_like(rows)
    for first in range(0, len(rows), _BLOCK):
        images[first : first + _BLOCK] = product(rows[first : first + _BLOCK])
    check_products(images)
    return images


def _signs(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    return rng.integers(0, 2, (count, size)) * 2.0 - 1.0


def _standard_error(values: np.ndarray) -> float:
    if len(values) == 1:
        return math.inf
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def probe_stream(seed: int) -> np.random.Generator:
    """Not ``default_rng(seed)``, from which the caller's weights and data may have come."""
    return np.random.default_rng([_STREAM, seed])


def check_products(result: np.ndarray | float) -> None:
    """Refuse what an operator made of NaN or Inf returns."""
    if not np.isfinite(result).all():
        msg = "the operator returns NaN or Inf; remove them from its weights and data"
        raise ValueError(msg)
