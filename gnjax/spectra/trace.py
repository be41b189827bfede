"""The trace of any symmetric operator: exact, or from random products with their standard error.

Hutchinson's estimator uses random vectors alone. Hutch++ and XTrace compute an orthonormal basis
from products with them, so that the part of the trace from the largest eigenvalues is exact and
only the rest is random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import (
    MEASURED,
    UNKNOWN,
    Certificate,
    Error,
    certificate,
    unknown,
)
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.rounding import gamma, spectral_error
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import error_of, factorisation_of, facts_of, positivity_of, symmetry_of
from gnjax.operators.near_one import check_stated_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.krylov.host_products import host_product, refuse_nonfinite
from gnjax.spectra.stochastic.hutchinson import TraceEstimate, hutch_plus_plus, hutchinson
from gnjax.spectra.stochastic.probes import (
    beyond_chance,
    probe_stream,
    row_lengths,
    student,
    together,
)
from gnjax.spectra.stochastic.tolerance import SHARE, looks, most_probes
from gnjax.spectra.stochastic.xtrace import xtrace
from gnjax.spectra.watch import Progress, Watch, watching

_USUAL_PROBES = 100
_LEAST_PROBES = {"exact": 0, "hutchinson": 1, "hutch++": 3, "xtrace": 2}
_STORED = {"hutch++": 2.0, "xtrace": 3.5}  # vectors in memory for each product, measured
_UNSTATED = unknown("the operator does not state how far its products are from its matrix")
_UNCERTIFIED = certificate(_UNSTATED)


@dataclass(frozen=True, repr=False)
class Trace(Result):
    """tr A with its errors.

    Attributes:
      value: tr A, or the estimate of it.
      standard_error: the standard deviation of the estimate over the random vectors, estimated from
        their spread. It is 0.0 where nothing is random (rounding is in ``certificate``), and
        infinite for a single random vector, and for samples that are equal but too few to exclude
        chance: Hutchinson's with less than 47. In simulations over thirteen spectra, tr A was
        within two standard errors in at least 80% of the draws with 24 products or more, and in at
        least 85% with 60 or more. For "xtrace", whose terms share their vectors, it is a jackknife
        estimate. Its square is in the mean at least the variance (Efron and Stein, 1981); in the
        simulations it was 1.2 to 9 times the standard deviation, and more where the range needs all
        of the vectors.
      method: the name of the method.
      products: how many products with the operator were made; 0 where the structure or the matrix
        gives the answer.
      certificate: the errors of the answer. That of the random vectors is the 95% half-width of
        Student's distribution. It is "measured" because the samples are not normal: in the
        simulations it covered tr A in at least 80% of the draws for each spectrum, and in 92% to
        100% in the average over spectra.
      finished: False where Hutchinson's estimator was interrupted; the answer is then that of the
        vectors so far, with their standard error.
      converged: whether the known errors of ``certificate`` add up to at most the ``rtol`` that was
        asked for times the value. True where none was.

    >>> answer = gnjax.trace(np.diag([4.0, 2.0, 1.0]), method="exact")
    >>> answer.value, answer.standard_error, answer.certificate.kind
    (7.0, 0.0, 'proved')
    """

    value: float
    standard_error: float
    method: str
    products: int
    certificate: Certificate = _UNCERTIFIED
    finished: bool = True
    converged: bool = True

    def __str__(self) -> str:
        return (
            f"trace = {self.value:.6g} +- {self.standard_error:.2g} "
            f"({self.method}, {self.products} products; {self.certificate}"
            f"{'' if self.finished else '; INTERRUPTED'}"
            f"{'' if self.converged else '; NOT CONVERGED'})"
        )


@one_operator
def trace(
    op: Operator | ArrayLike,
    *,
    method: str = "hutchinson",
    probes: int | None = None,
    rtol: float | None = None,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> Trace:
    """tr A for a symmetric A, definite or not.

    Args:
      op: an operator, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      method: "exact" (from the structure, or from n unit vectors where that gives no trace);
        "hutchinson", whose error falls with the square root of the number of products; "hutch++"
        (Meyer, Musco, Musco and Woodruff, 2021) and "xtrace" (Epperly, Tropp and Webber, 2023),
        which are far more accurate where the spectrum decays, but store ``probes`` vectors.
      probes: the largest number of products with the operator, at least 3 for "hutch++" and 2 for
        "xtrace"; "exact" ignores it. It is 100 by default, and 10,000 where an ``rtol`` is given.
        Two more products test the symmetry of an operator that does not state it.
      rtol: if given, "hutchinson" adds random vectors until its error is at most ``rtol`` times the
        value. It looks after 16, 32, 64, .. of them, and its half-width is wider than that of a
        number of vectors fixed beforehand, so that it holds with 95% at all looks together. If
        ``probes`` do not suffice, ``converged`` is False.
      seed: of the random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected. Ctrl-C
        then returns Hutchinson's answer so far, with ``finished`` False; the other methods have
        none before their end.
      limits: the limits of memory. "hutchinson" and "exact" multiply sixteen vectors at once, fewer
        where ``basis_bytes`` has no room for them, and keep none. "hutch++" stores two vectors
        for each product, "xtrace" three and a half, and what takes more than ``density_bytes`` is
        refused.

    >>> print(gnjax.trace(np.diag([4.0, 2.0, 1.0]), method="exact").value)
    7.0
    >>> answer = gnjax.trace(np.ones((20, 20)), method="hutch++", probes=15)  # of rank 1
    >>> abs(answer.value - 20.0) < 1e-9
    True
    """
    operator = as_operator(op, limits=limits)
    if method not in _LEAST_PROBES:
        msg = f"method={method!r} is not one of {', '.join(_LEAST_PROBES)}"
        raise ValueError(msg)
    if rtol is not None and method in _STORED:
        msg = f"method={method!r} takes a number of probes=, no rtol=; use method='hutchinson'"
        raise ValueError(msg)
    probes = most_probes(probes, rtol, usual=_USUAL_PROBES, least=_LEAST_PROBES[method])
    # refuses numbers so large or small that squares of them over- or underflow, if op states that
    check_stated_near_one(operator)
    if method == "exact":
        with watching(progress, operator.shape[0], op=operator, seconds=limits.seconds) as watch:
            return _judged(_exact(operator, limits, watch), rtol)
    # ``block``: how many vectors are multiplied at once. The limit of stored vectors is that of
    # spectral_density, which is computed from random vectors by the same kind of methods.
    block, rng = together(operator, limits), probe_stream(seed)
    _check_stored(operator.shape[0], method, probes, limits)
    with watching(
        progress, probes, stoppable=method == "hutchinson", op=operator, seconds=limits.seconds
    ) as watch:
        product = watch(host_product(operator))  # tests the symmetry if op does not state it
        counts = looks(probes, rtol)
        if method == "hutchinson":

            def is_accurate(estimate: TraceEstimate) -> bool:
                """Whether the random vectors are as many as the tolerance needs."""
                assert rtol is not None  # there is one look otherwise, and nothing to ask
                half_width = _half_width(operator, estimate, len(counts))
                return half_width <= SHARE * rtol * abs(estimate.value)

            stop = watch.is_stopped
            estimate = hutchinson(operator, product, counts, rng, stop, block, is_accurate)
        else:
            estimator = {"hutch++": hutch_plus_plus, "xtrace": xtrace}[method]
            estimate = estimator(operator, product, probes, rng)
        answer = _judged(_from_random_vectors(operator, estimate, method, len(counts)), rtol)
        # Ctrl-C during the last product leaves nothing undone.
        finished = not watch.stopped or estimate.products == probes
        return replace(answer, finished=finished)


def _judged(answer: Trace, rtol: float | None) -> Trace:
    """The answer, with ``converged`` False where its error is above ``rtol`` times the value.

    As for eigenvalues, an error that the operator does not state does not count here.
    """
    if rtol is None:
        return answer
    known = sum(part.value for part in answer.certificate.parts if part.kind != UNKNOWN)
    converged = math.isfinite(answer.standard_error) and known <= rtol * abs(answer.value)
    return replace(answer, converged=converged)


def _check_stored(size: int, method: str, probes: int, limits: Limits) -> None:
    """Refuse a method whose vectors of ``size`` numbers take more than ``limits.density_bytes``."""
    # no method makes more than 3 n products, for n = ``size``
    size_in_bytes = 8.0 * size * _STORED.get(method, 0.0) * min(probes, 3 * size)
    if size_in_bytes > limits.density_bytes:
        allowed_probes = int(limits.density_bytes / (8 * size * _STORED[method]))
        msg = (
            f"method={method!r} with probes={probes} stores vectors of {size:,} numbers that take "
            f"{1e-9 * size_in_bytes:,.0f} GB, and limits allow {1e-9 * limits.density_bytes:.3g}; "
            f"use method='hutchinson', which stores none, or probes={allowed_probes}, or pass "
            f"limits=gnjax.Limits(density_bytes={size_in_bytes:_.0f}) if the machine has the memory"
        )
        raise ValueError(msg)


def _half_width(op: Operator, estimate: TraceEstimate, looks: int) -> float:
    """Half of Hutchinson's 95% interval, for a number of samples that is chosen at ``looks``."""
    return student(estimate.samples, looks) * _spread(op, estimate)


def _spread(op: Operator, estimate: TraceEstimate) -> float:
    """The standard error of Hutchinson's estimator; infinite where equal samples may be chance.

    Its samples are polynomials of degree 2 in random signs.
    """
    rounding = _rounding(op, estimate.lengths).value
    return float(beyond_chance(estimate.standard_error, rounding, estimate.samples, degree=2))


def _from_random_vectors(op: Operator, estimate: TraceEstimate, method: str, looks: int) -> Trace:
    """The :class:`Trace` of an estimate by ``method``, with the certificate of its errors."""
    symmetry = symmetry_of(op)
    # ``lengths`` is the sum of |x| |A x| over the random vectors x. It stands for ||A||_2, which it
    # exceeds unless all of them miss the largest eigenvectors.
    matrix_error = _matrix_error(op, estimate.value, estimate.lengths)
    rounding = _rounding(op, estimate.lengths)
    samples, spread = estimate.samples, estimate.standard_error
    errors = [rounding, matrix_error, symmetry]
    # A spread of zero may be chance. That of Hutch++ and XTrace is zero where these have found the
    # range of A.
    if method == "hutchinson":
        spread = _spread(op, estimate)
    if math.isinf(spread):
        errors.append(unknown(f"the spread of {samples} samples, too few to exclude chance"))
    elif samples:
        width, often = spread * student(samples, looks), f", at all {looks} looks together"
        reason = f"the spread of {samples} samples{often if looks > 1 else ''}"
        errors.append(Error(width, MEASURED, reason=reason))
    return Trace(estimate.value, spread, method, estimate.products, certificate(*errors))


def _exact(op: Operator, limits: Limits, watch: Watch) -> Trace:
    """tr A without random vectors: by a formula that the operator states, or as sum_i A_ii.

    The diagonal is that of the matrix if that has at most ``limits.small_rows`` rows, and comes
    from n products with unit vectors otherwise. A sum of n terms in float64 has an error of at most
    gamma_n times the sum of their absolute values.
    """
    products, size = 0, op.shape[0]
    structure = facts_of(op).trace
    if structure is not None:
        value, rounding = structure()  # with the error of its evaluation
        refuse_nonfinite(value)
        # tr A is at least ||A||_2 if no eigenvalue is negative, and will do where the error of A
        # does not depend on the norm.
        needs_norm = positivity_of(op) is None and callable(facts_of(op).error)
        norm = operator_norm(op, limits) if needs_norm else abs(value)
    elif size <= limits.small_rows:
        matrix = np.asarray(op.as_matrix()).astype(np.float64)
        diagonal, norm = np.diagonal(matrix), float(row_lengths(matrix.reshape(1, -1))[0])
        value = float(diagonal.sum())
        refuse_nonfinite(value)
        # gamma_n bounds the relative rounding of a sum of n terms
        rounding = Error(gamma(size, np.dtype(float)) * float(np.abs(diagonal).sum()))
    else:
        value, lengths = _sum_of_diagonal(op, together(op, limits), watch)
        refuse_nonfinite(value)
        products, rounding, norm = size, _rounding(op, lengths), lengths
    # The sum of absolute values is rounded, too, by far less than one part in a million.
    rounding = replace(rounding.scaled(1 + 1e-6), reason="rounding of the sum")
    matrix_error = _matrix_error(op, value, norm)
    return Trace(value, 0.0, "exact", products, certificate(rounding, matrix_error))


def _sum_of_diagonal(op: Operator, block: int, watch: Watch) -> tuple[float, float]:
    """sum_i e_i^T A e_i by products with ``block`` unit vectors at once, and sum_i |A e_i|."""
    product, size = watch(host_product(op)), op.shape[0]
    total, lengths = 0.0, 0.0
    for first in range(0, size, block):
        units = np.eye(min(block, size - first), size, first)
        images = product(units)
        total += float(np.trace(images[:, first:]))
        lengths += float(row_lengths(images).sum())
    return total, lengths


def _rounding(op: Operator, lengths: float) -> Error:
    """The rounding of a sum of x^T A x: a few eps times ``lengths``, the sum of |x| |A x|.

    Each entry of A x may also be as far from exact as the smallest normal number.
    """
    level = spectral_error(op.shape[0], op.dtype) * lengths
    level += op.shape[0] * float(jnp.finfo(op.dtype).tiny)
    return Error(level, MEASURED, reason="rounding of the products")


def _matrix_error(op: Operator, value: float, norm: float) -> Error:
    """How far the trace of the stored numbers, ``value``, can be from that of the exact matrix.

    Without a factor this is n times the error in the 2-norm, and ``norm`` is about ||A||_2 or more:
    eigenvalues of both signs cancel in the trace and not in its error. An error E of a factor J,
    with ||E||_F <= sqrt(rank) ||E||_2, changes ||J||_F^2 by at most (2 ||J||_F + ||E||_F) ||E||_F.
    """
    factor = factorisation_of(op)
    if factor is None:
        return error_of(op, norm).scaled(op.shape[0])
    error = factor.error()
    moved = min(factor.shape) ** 0.5 * error.value
    return error.to((2 * abs(value) ** 0.5 + moved) * moved)
