"""How far a metric P is from a matrix A: ||A - P||_F / ||A||_F, with its error.

For A = F F^T with a factor F (n, q) nothing of n rows and n columns is formed:

    ||A - P||_F^2 = ||F^T F||_F^2 - 2 <F, P F> + ||P||_F^2.

An error E of A in the 2-norm counts in the Frobenius norm at most r^{1/2} times, for E of rank r,
and the distance from P changes by at most ||E||_F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, UNKNOWN, Certificate, Error, certificate, unknown
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import LAPACK_ROUNDING, spectral_error
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.factorisation import gram_error
from gnjax.operators.facts import error_of, factorisation_of, facts_of, symmetry_of
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.host_products import host_product, refuse_nonfinite
from gnjax.spectra.stochastic.probes import (
    FEWEST,
    half_width,
    probe_stream,
    signs,
    standard_error,
    together,
)
from gnjax.spectra.watch import Progress, Watch, watching
from gnjax.spectra.whole import host_matrix


@dataclass(frozen=True, repr=False)
class Distance(Result):
    """||A - P||_F / ||A||_F with its error.

    Attributes:
      value: the relative distance: 0 where both are equal, 1 where P = 0.
      error: how far it can be from the truth; of an estimate, with the half-width of 95% over the
        random vectors in it.
      standard_error: over the random vectors; 0.0 where nothing is random.
      norm: ||A||_F.
      method: "dense" or "factored", or "estimate" from random vectors.
      products: how many products with A, and as many with P, were made.
      certificate: what the error rests on.

    >>> print(gnjax.distance(np.diag([3.0, 4.0]), np.diag([3.0, 0.0])))
    0.8 of ||A||_F = 5, +- 7.8e-15 (dense, 0 products; measured)
    """

    value: float
    error: float
    standard_error: float
    norm: float
    method: str
    products: int
    certificate: Certificate
    finished: bool = True

    def __str__(self) -> str:
        return (
            f"{self.value:.6g} of ||A||_F = {self.norm:.6g}, +- {self.error:.2g} ({self.method}, "
            f"{self.products} products; {self.certificate.brief})"
            f"{'' if self.finished else '; INTERRUPTED'}"
        )


@one_operator
def distance(
    op: Operator | ArrayLike,
    metric: Operator | ArrayLike,
    *,
    probes: int = 100,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> Distance:
    """||A - P||_F / ||A||_F: how far a metric, or any other operator P, is from A.

    It is exact up to rounding for at most ``limits.whole_rows`` rows, and for A = F F^T with at
    most so many columns of F; else it is estimated from products with random signs.

    Args:
      op: an operator A, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      metric: P of the same size, such as ``gnjax.metrics.kfac(op, damping=0.0)``.
      probes: how many products an estimate takes, at least 10.
      seed: of its random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected.
      limits: the limits of memory and work.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> metric = gnjax.metrics.kfac(op, damping=0.0)  # exact for one layer with one output
    >>> gnjax.distance(op, metric).value < 1e-15
    True
    """
    a, p = as_operator(op, limits=limits), as_operator(metric, limits=limits)
    if tuple(a.shape) != tuple(p.shape):
        msg = f"A and P have one shape, got {tuple(a.shape)} and {tuple(p.shape)}"
        raise ValueError(msg)
    if not is_count(probes) or probes < FEWEST:
        msg = f"probes={probes!r} is not an integer of at least {FEWEST}"
        raise ValueError(msg)
    for operator in (a, p):
        check_near_one(operator)
    factor = factorisation_of(a)
    if a.shape[0] <= limits.whole_rows:
        with watching(progress, op=a):
            return _of_matrices(a, p, limits)
    if factor is not None and facts_of(p).eigenvalues is not None:
        is_narrow = factor.shape[1] <= limits.whole_rows
        if is_narrow and factor.size_in_bytes <= limits.factor_bytes:
            with watching(progress, op=a):
                return _by_factor(a, p)
    with watching(progress, probes, stoppable=True, op=a, seconds=limits.seconds) as watch:
        return _estimated(a, p, int(probes), seed, limits, watch)


def _of_matrices(a: Operator, p: Operator, limits: Limits) -> Distance:
    """The distance of both matrices, formed."""
    pairs = [host_matrix(op, limits) for op in (a, p)]
    (of_a, skew_a), (of_p, skew_p) = pairs
    norm, size = float(np.linalg.norm(of_a)), a.shape[0]
    between = float(np.linalg.norm(of_a - of_p))
    error_a = error_of(a, norm).scaled(size**0.5) + skew_a
    error_p = error_of(p, float(np.linalg.norm(of_p))).scaled(size**0.5) + skew_p
    rounding = LAPACK_ROUNDING.to(spectral_error(size, np.dtype(float)) * (norm + between))
    evidence = symmetry_of(a), symmetry_of(p)
    return _answer(between, norm, error_a, error_p, rounding, "dense", 0, evidence)


def _by_factor(a: Operator, p: Operator) -> Distance:
    """The distance from F^T F, P F and the eigenvalues of P, see the top of the module."""
    stated, eigenvalues = factorisation_of(a), facts_of(p).eigenvalues
    assert stated is not None
    assert eigenvalues is not None
    factor = stated.form()
    refuse_nonfinite(factor)
    values, error_of_values = eigenvalues()
    trace, norm = float((factor**2).sum()), float(np.linalg.norm(factor.T @ factor))
    mixed = float((factor * host_product(p)(np.ascontiguousarray(factor.T)).T).sum())
    norm_of_p = float(np.linalg.norm(values))
    squared = norm**2 - 2 * mixed + norm_of_p**2
    between = math.sqrt(max(squared, 0.0))
    size, rank = a.shape[0], factor.shape[1]
    level = spectral_error(size, np.dtype(float))
    error_of_p = error_of(p, float(np.abs(values).max())) + error_of_values
    # of the square: the rounding of three terms, and the error of P in both that have it
    moved = level * (norm + norm_of_p) ** 2 + 2 * error_of_p.value * trace
    moved += 2 * norm_of_p * error_of_values.value * size**0.5
    root = math.sqrt(max(squared, 0.0) + moved) - between
    root = max(root, between - math.sqrt(max(squared - moved, 0.0)))
    rounding = (LAPACK_ROUNDING + error_of_p).to(raised(root))
    # ||E||_F <= (2 q)^{1/2} ||E||_2, as A and the matrix in memory have the rank q each
    error_a = gram_error(norm, stated.error()).scaled((2 * rank) ** 0.5)
    evidence = symmetry_of(a), symmetry_of(p)
    return _answer(between, norm, error_a, Error(0.0), rounding, "factored", 0, evidence)


def _answer(
    between: float,
    norm: float,
    error_a: Error,
    error_p: Error,
    rounding: Error,
    method: str,
    products: int,
    evidence: tuple[Error, ...],
) -> Distance:
    """The relative distance from ||A - P||_F = ``between`` and ||A||_F = ``norm``.

    An error e of A changes both of them by at most e.
    """
    value = between / norm if norm else math.nan
    least = norm - error_a.value - rounding.value
    parts = [error_a.scaled(1 + value), error_p, rounding.scaled(1 + value)]
    if least > 0 and all(part.kind != UNKNOWN for part in parts):
        parts = [part.scaled(raised(1 / least)) for part in parts]
    else:
        parts.append(unknown("||A||_F is not known to be positive"))
    rests_on = certificate(*parts, *evidence)
    error = raised(sum(part.value for part in parts))
    return Distance(value, error, 0.0, norm, method, products, rests_on)


def _estimated(
    a: Operator, p: Operator, probes: int, seed: int, limits: Limits, watch: Watch
) -> Distance:
    """From |(A - P) g|^2 and |A g|^2 for vectors g of random signs, whose means are the squares.

    The spread of their quotient is that of |(A - P) g|^2 - q |A g|^2 for the quotient q of the
    means, over the mean of |A g|^2.
    """
    block, rng = min(together(a, limits), together(p, limits)), probe_stream(seed)
    product, of_p = watch(host_product(a)), host_product(p)
    squares: list[np.ndarray] = []
    while sum(map(len, squares)) < probes and not (squares and watch.stopped):
        tests = signs(rng, min(block, probes - sum(map(len, squares))), a.shape[0])
        images = product(tests)
        differences = images - of_p(tests)
        squares.append(np.stack([(differences**2).sum(axis=1), (images**2).sum(axis=1)], axis=1))
    samples = np.concatenate(squares)
    count, (mean, mean_of_a) = len(samples), samples.mean(axis=0)
    if not mean_of_a:
        return _answer(0.0, 0.0, Error(0.0), Error(0.0), Error(0.0), "estimate", count, ())
    quotient = float(mean / mean_of_a)
    value, norm = math.sqrt(quotient), math.sqrt(mean_of_a)
    apart = samples[:, 0] - quotient * samples[:, 1]  # whose mean is zero
    slope = 1 / (2 * value * float(mean_of_a)) if value else math.inf
    spread = standard_error(apart) * slope
    of_vectors = Error(
        half_width(apart) * slope,
        MEASURED,
        reason=f"the spread of {count} samples",
    )
    size = a.shape[0]
    level = spectral_error(size, max(a.dtype, p.dtype, key=lambda d: np.finfo(d).eps))
    rounding = Error(level * (1 + value) ** 2, MEASURED, reason="rounding of the products")
    matrices = [error_of(op, norm).scaled(size**0.5 * (1 + value) / norm) for op in (a, p)]
    parts = [of_vectors, rounding, *matrices]
    rests_on = certificate(*parts, symmetry_of(a), symmetry_of(p))
    error = raised(sum(part.value for part in parts))
    finished = count == probes
    return Distance(value, error, spread, norm, "estimate", count, rests_on, finished)
