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

from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate, unknown
from gnjax.numerics.result import Result
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.operators.base import Operator, dense
from gnjax.operators.facts import error_of, factorisation_of
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import check_products, host_product
from gnjax.spectra.watch import Progress, Watch, watching

_LEAST_PROBES = {"exact": 0, "hutchinson": 1, "hutch++": 3, "xtrace": 2}
_SMALL = 1000
_BLOCK = 16
_STREAM = 7919
_COVERED = 0.975  # two-sided 95%
_UNSTATED = unknown("the operator does not state how far its products are from its matrix")
_UNCERTIFIED = certificate(_UNSTATED)


@dataclass(frozen=True, repr=False)
class Trace(Result):
    """tr A, and what it rests on.

    Attributes:
      standard_error: the standard deviation of the estimate over the random vectors, estimated from
        their spread; 0.0 where nothing is random (rounding is in ``certificate``), and infinite
        where a single random vector leaves nothing to compare. Two of them covered tr A, in
        simulations over thirteen spectra, in at least 80% of the draws from 24 products on, and in
        at least 85% from 60 on. The terms of "xtrace" share their vectors and have no standard
        error; its number is a jackknife whose square is, in the mean, at least the variance (Efron
        and Stein, 1981). In the simulations it was 1.2 to 9 times the deviation, and more where one
        vector fewer would miss a part of the range.
      products: operator applications; 0 where the structure or the matrix gives the answer.
      certificate: the errors that the answer is made of. That of the random vectors is Student's
        95% half-width of a normal sample. It is "measured", because the samples are not normal: it
        covered tr A in 80% of the draws at least, and in 92% to 100% on the average over spectra.

    >>> found = gnjax.trace(np.diag([4.0, 2.0, 1.0]), method="exact")
    >>> found.value, found.standard_error, found.certificate.kind
    (7.0, 0.0, 'proved')
    """

    value: float
    standard_error: float
    method: str
    products: int
    certificate: Certificate = _UNCERTIFIED

    def __str__(self) -> str:
        return (
            f"trace = {self.value:.6g} +- {self.standard_error:.2g} "
            f"({self.method}, {self.products} products; {self.certificate})"
        )


def trace(
    op: Operator | ArrayLike,
    *,
    method: str = "hutchinson",
    probes: int = 100,
    seed: int = 0,
    progress: Progress = None,
) -> Trace:
    """tr A for a symmetric A, definite or not.

    Args:
      op: an operator, or a symmetric matrix.
      method: "exact" (from the structure, else from n unit vectors); "hutchinson", whose error
        falls with the square root of the products; "hutch++" (Meyer, Musco, Musco and Woodruff,
        2021) and "xtrace" (Epperly, Tropp and Webber, 2023), whose error also falls with the
        spectrum: better by far where it decays, at the price of storing ``probes`` vectors.
      probes: the number of products with the operator that may be spent, in total and whatever
        the method ("hutch++" needs 3, "xtrace" 2; "exact" takes what it takes). Two more test the
        symmetry of an operator that does not state it.
      seed: of the random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected.

    >>> print(gnjax.trace(np.diag([4.0, 2.0, 1.0]), method="exact").value)
    7.0
    >>> found = gnjax.trace(np.ones((20, 20)), method="hutch++", probes=15)  # of rank 1
    >>> abs(found.value - 20.0) < 1e-9
    True
    """
    operator = op if isinstance(op, Operator) else dense(op)
    if method not in _LEAST_PROBES:
        msg = f"method={method!r} is not one of {', '.join(_LEAST_PROBES)}"
        raise ValueError(msg)
    if not isinstance(probes, int | np.integer) or probes < _LEAST_PROBES[method]:
        msg = f"method={method!r} needs at least {_LEAST_PROBES[method]} probes, got {probes}"
        raise ValueError(msg)
    if method == "exact":
        with watching(progress, operator.shape[0]) as watch:
            return _exact(operator, watch)
    estimate = {"hutchinson": _hutchinson, "hutch++": _hutch_plus_plus, "xtrace": _xtrace}[method]
    with watching(progress, probes) as watch:
        return estimate(operator, probes, probe_stream(seed), watch)


def _exact(op: Operator, watch: Watch) -> Trace:
    """||J||_F^2 for J J^T, sum_l tr A_l tr B_l for Kronecker products, else the diagonal.

    Sums of n terms are in float64 and off by at most gamma_n times the sum of their sizes.
    """
    products, size = 0, op.shape[0]
    structure = getattr(op, "trace_by_structure", None)
    if structure is not None:
        value, rounding = structure()
        check_products(value)
    elif size <= _SMALL:
        diagonal = np.asarray(jnp.diagonal(op.as_matrix()), np.float64)
        value = _finite(diagonal.sum())
        rounding = Error(_gamma(size) * float(np.abs(diagonal).sum()))
    else:
        value, rounding = _sum_of_diagonal(op, watch)
        products = size
    # The sum of sizes is rounded, too, by far less than one part in a million.
    rounding = Error(rounding.value * (1 + 1e-6), rounding.kind, reason="rounding of the sum")
    return Trace(value, 0.0, "exact", products, certificate(rounding, _stated(op, value)))


def _finite(value: float) -> float:
    check_products(value)
    return float(value)


def _gamma(terms: int) -> float:
    return gamma(terms, jnp.dtype(jnp.float64))


def _stated(op: Operator, value: float) -> Error:
    """How far the trace of what the operator stores can be from that of its matrix.

    That is n times a bound in the 2-norm. For a factor, ||E||_F <= sqrt(rank) ||E||_2 moves
    ||J||_F^2 by at most (2 ||J||_F + ||E||_F) ||E||_F.
    """
    factor = factorisation_of(op)
    if factor is None:
        return error_of(op, abs(value)).scaled(op.shape[0])
    error = factor.error()
    moved = min(factor.shape) ** 0.5 * error.value
    return error.to((2 * abs(value) ** 0.5 + moved) * moved)


def _sum_of_diagonal(op: Operator, watch: Watch) -> tuple[float, Error]:
    """sum_i e_i^T A e_i by blocks of unit vectors, and what rounding of the products is like."""
    product, size, total, lengths = watch(host_product(op)), op.shape[0], 0.0, 0.0
    for first in range(0, size, _BLOCK):
        units = np.eye(min(_BLOCK, size - first), size, first)
        images = product(units)
        total += float(np.trace(images[:, first:]))
        lengths += float(np.linalg.norm(images, axis=1).sum())
    return _finite(total), _rounding(op, lengths)


def _rounding(op: Operator, lengths: float) -> Error:
    """Of x^T A x: a few units of eps |x| |A x|, of which ``lengths`` is the sum."""
    level = spectral_error(op.shape[0], op.dtype) * lengths
    return Error(level, MEASURED, reason="rounding of the products")


def _lengths(rows: np.ndarray, images: np.ndarray) -> np.ndarray:
    """|x| |A x| for every row x."""
    return np.linalg.norm(rows, axis=1) * np.linalg.norm(images, axis=1)


def _estimated(
    op: Operator,
    samples: np.ndarray,
    method: str,
    products: int,
    lengths: float,
    error: float | None = None,
) -> Trace:
    """The mean of the samples; they are independent where no error of the mean is given."""
    value, error = float(samples.mean()), _standard_error(samples) if error is None else error
    parts = [_rounding(op, lengths), _stated(op, value)]
    if error:
        width = error * student(len(samples))
        parts.append(Error(width, MEASURED, reason=f"the spread of {len(samples)} samples"))
    return Trace(value, error, method, products, certificate(*parts))


def student(samples: int) -> float:
    """The 95% half-width for a normal sample, in standard errors."""
    from scipy.special import stdtrit  # it takes 0.1 s, as part of gnjax's own import

    return float(stdtrit(samples - 1, _COVERED)) if samples > 1 else math.inf


def _hutchinson(op: Operator, probes: int, rng: np.random.Generator, watch: Watch) -> Trace:
    """The mean of g^T A g over random signs g."""
    product, samples, lengths = watch(host_product(op)), [], 0.0
    for first in range(0, probes, _BLOCK):
        signs = _signs(rng, min(_BLOCK, probes - first), op.shape[0])
        images = product(signs)
        samples.append((images * signs).sum(axis=1))
        lengths += float(_lengths(signs, images).sum())
    values = np.concatenate(samples)
    check_products(values)
    return _estimated(op, values, "hutchinson", probes, lengths / probes)


def _hutch_plus_plus(op: Operator, probes: int, rng: np.random.Generator, watch: Watch) -> Trace:
    """tr(Q^T A Q) + the mean of g^T P A P g, a third of the products for Q, a third for each term.

    Q is an orthonormal basis of A S for a Gaussian S (n, k); with k = n nothing is left for P, and
    nothing but rounding is left of the error.
    """
    product, size, third = watch(host_product(op)), op.shape[0], probes // 3
    sketch = rng.standard_normal((min(third, size), size))
    basis = np.linalg.qr(_images(product, sketch).T)[0].T  # (k, n)
    images = _images(product, basis)
    captured, lengths = float((images * basis).sum()), float(_lengths(basis, images).sum())
    used = 2 * len(basis)
    if len(basis) == size:
        parts = _rounding(op, lengths), _stated(op, captured)
        return Trace(captured, 0.0, "hutch++", used, certificate(*parts))
    rest = krylov.outside(_signs(rng, probes - used, size), basis)
    images = _images(product, rest)
    lengths += float(_lengths(rest, images).mean())
    values = captured + (images * rest).sum(axis=1)
    return _estimated(op, values, "hutch++", probes, lengths)


def _xtrace(op: Operator, probes: int, rng: np.random.Generator, watch: Watch) -> Trace:
    """The mean over i of Hutch++ with all test vectors but the i-th for Q, that one for the rest.

    For Gaussian test vectors w_1 .. w_k, Q_i spans A w_j for j != i. Given Q_i, the direction of
    p_i = P_i w_i is uniform on the sphere of the complement, of dimension n - k + 1, and

        t_i = tr(Q_i^T A Q_i) + (n - k + 1) p_i^T A p_i / |p_i|^2

    has the mean tr A. With the norm of p_i gone, t_i = tr A for k = n. All Q_i come from one
    factorisation [A w_1 .. A w_k] = Q S V^T: the columns other than the i-th are orthogonal to
    Q r_i for r_i along S^{-1} V^T e_i, so that Q_i Q_i^T = Q (I - r_i r_i^T) Q^T for |r_i| = 1.
    Where the rank is below k, no column is missed (r_i = 0): any k - 1 of them span the range.

    Any two t_i share k - 2 vectors, so that their spread says little of the deviation of their mean
    T: it is too small by any factor where the rank is k. By Efron and Stein (1981) the variance of
    T is at most the mean of sum_i (T - T_i)^2, whatever T_i is made of the other vectors; here T_i
    is XTrace without w_i. The root of that sum is what is reported.
    """
    product, size = watch(host_product(op)), op.shape[0]
    tests = rng.standard_normal((min(probes // 2, size), size))  # rows w_i
    count = len(tests)
    images = _images(product, tests)
    columns, scales, right = np.linalg.svd(images.T, full_matrices=False)
    rank = int((scales > spectral_error(size, op.dtype) * scales[0]).sum())
    basis = columns[:, :rank].T
    missed = _unit_rows(right.T / scales) if rank == count else np.zeros((count, rank))
    basis_images = _images(product, basis)
    inside = tests @ basis.T
    rest = tests - inside @ basis
    rest_images = images - inside @ basis_images
    small = _Compressed(
        basis_images @ basis.T,
        inside,
        (rest**2).sum(axis=1),
        (rest * rest_images).sum(axis=1),
        rest_images @ basis.T,
    )
    left = size - min(rank, count - 1)
    values = small.estimates(missed[:, None], left)
    lengths = float(_lengths(basis, basis_images).sum())
    lengths += left * float(
        (np.linalg.norm(images, axis=1) / small.forms(missed[:, None])[1] ** 0.5).mean()
    )
    if count == size:  # every t_i is tr A
        parts = _rounding(op, lengths), _stated(op, float(values.mean()))
        return Trace(float(values.mean()), 0.0, "xtrace", count + rank, certificate(*parts))
    error = math.inf if count == 1 else _jackknife(small, missed, values.mean(), left)
    return _estimated(op, values, "xtrace", count + rank, lengths, error)


@dataclass(frozen=True)
class _Compressed:
    """What XTrace needs of A for parts of its basis Q: with w = Q c + p, and p orthogonal to Q."""

    matrix: np.ndarray  # Q^T A Q
    inside: np.ndarray  # rows c
    squares: np.ndarray  # |p|^2
    quadratic: np.ndarray  # p^T A p
    mixed: np.ndarray  # rows Q^T A p

    def forms(self, missed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x^T A x and |x|^2 for w less its part in Q, but for the directions that Q misses.

        Those are orthonormal, (count, directions, rank), for every w.
        """
        weights = (missed @ self.inside[:, :, None])[:, :, 0]
        part = (weights[:, None] @ missed)[:, 0]  # of c, rows
        linear = 2 * (part * self.mixed).sum(axis=1) + ((part @ self.matrix) * part).sum(axis=1)
        return self.quadratic + linear, self.squares + (part**2).sum(axis=1)

    def estimates(self, missed: np.ndarray, left: int) -> np.ndarray:
        """t_i; ``left`` is the dimension of what the basis leaves out."""
        top, bottom = self.forms(missed)
        lost = ((missed @ self.matrix) * missed).sum(axis=(1, 2))
        return np.trace(self.matrix) - lost + left * top / bottom


def _jackknife(small: _Compressed, missed: np.ndarray, value: float, left: int) -> float:
    """The root of sum_i (T - T_i)^2. A basis without A w_i and A w_j misses r_i and r_j."""
    count, squares = len(missed), 0.0
    for index, first in enumerate(missed):
        others = np.delete(np.arange(count), index)
        second = missed[others]
        for _ in range(2):
            second = second - (second @ first)[:, None] * first
        lengths = np.linalg.norm(second, axis=1, keepdims=True)
        second = np.divide(second, lengths, out=np.zeros_like(second), where=lengths > 0)
        pairs = np.stack([np.broadcast_to(first, second.shape), second], axis=1)
        parts = (small.inside, small.squares, small.quadratic, small.mixed)
        without = _Compressed(small.matrix, *(part[others] for part in parts))
        fewer = left + 1 if missed.any() else left
        squares += float((value - without.estimates(pairs, fewer).mean()) ** 2)
    return squares**0.5


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
