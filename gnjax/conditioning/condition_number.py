"""The pseudo-condition number lambda_max / lambda_rank of a positive semidefinite operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.conditioning.answer import ConditionNumber, answer_of, undefined
from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods import METHODS, Method, methods_for
from gnjax.numerics.certificate import PROVED, Error, certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import error_of, factorisation_of, facts_of, on_range, twin_of
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.semidefinite import Enclosure, least_eigenvalue, matrix_on_range
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import Progress, watching
from gnjax.spectra.whole import dense_error, dense_spectrum, why_not_dense

__all__ = ["ConditionNumber", "condition_number", "condition_of_spectrum"]


@one_operator
def condition_number(
    op: Operator | ArrayLike,
    *,
    rank: int | None = None,
    rtol: float = 1e-3,
    method: str = "auto",
    certify: str = "ritz",
    preconditioner: Operator | ArrayLike | None = None,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> ConditionNumber:
    """kappa = lambda_max / (smallest non-zero lambda), with a certified interval.

    An operator may state a smaller matrix with the same non-zero eigenvalues, such as the output
    side of a Gauss-Newton matrix. The work is then done on that one.

    Args:
      op: an operator, or a symmetric positive semidefinite matrix in any form that
        :func:`gnjax.as_operator` takes.
      rank: the number of non-zero eigenvalues, if you know it.
      rtol: the relative width of the interval at which iterative methods stop.
      method: "auto" takes the cheapest method that applies; the documentation lists all of them.
      certify: how it is shown that no eigenvalue lies outside the interval. "ritz" states the
        probability that a random start missed one; "inertia" proves it by two Cholesky
        factorisations.
      preconditioner: a positive definite matrix or operator near a multiple of this one, for
        method "sketched", which "auto" then takes. A bad one costs time and never truth.
      seed: the seed of the random start.
      progress: True for a bar on stderr with the time and the products made, or a function of the
        products made and expected (None). Ctrl-C then ends iterations on products with the answer
        so far, and ``finished`` is False.
      limits: the limits of memory and work.

    >>> model = gnjax.models.MLP((3, 8, 2), key=jax.random.key(0))
    >>> op = gnjax.ntk(model, jax.random.normal(jax.random.key(1), (4, 3)))
    >>> print(gnjax.condition_number(op))
    kappa = 128.173 in [128.173, 128.173] (rank 8 of 8, full; factored, measured)
    >>> gnjax.condition_number(gnjax.dense(np.diag([4.0, 1.0])), certify="inertia").certificate.kind
    'proved'
    """
    operator = as_operator(op, limits=limits)
    size, small = operator.shape[0], twin_of(operator)
    _check_arguments(size, rank, rtol, seed)
    methods = ("auto", *methods_for(small))
    for name, word, allowed in (
        ("method", method, methods),
        ("certify", certify, ("ritz", "inertia")),
    ):
        if word not in allowed:
            msg = f"{name}={word!r} is not one of {', '.join(allowed)}"
            if (name, word) == ("method", "preconditioned"):  # the name in older versions
                msg = (
                    "method='preconditioned' is called method='sketched' now, as it has nothing to "
                    "do with gnjax.preconditioned, which is kappa in a metric"
                )
            raise ValueError(msg)
    if certify == "inertia" and facts_of(small).eigenvalues is None:
        refused = why_not_dense(small.shape[0], limits)
        if refused:  # before the ends are computed that are to be proved
            msg = f"certify='inertia' factors the matrix, and {refused.partition(';')[0]}, "
            msg += f"where limits allow {limits.matrix_rows:,} rows; use certify='ritz'"
            raise ValueError(msg)
    with watching(progress, stoppable=True, op=small, seconds=limits.seconds) as watch:
        rank = None if rank is None else int(rank)
        problem = Problem(small, rank, float(rtol), int(seed), limits, watch)
        if preconditioner is not None:
            matrix = _preconditioner_matrix(preconditioner, small.shape[0], method)
            problem = replace(problem, preconditioner=matrix)
        return _solve(problem, method, certify, size)


def condition_of_spectrum(
    op: Operator, spectrum: Spectrum, size: int, limit: Callable[[], RankBound] | None = None
) -> ConditionNumber:
    """kappa of a semidefinite matrix of ``size`` rows from all of its eigenvalues.

    ``op`` is a matrix with the same non-zero eigenvalues, and ``limit()`` a bound on their number
    that ``op`` does not state itself.
    """
    problem = Problem(op, None, 1e-3, 0, limit=limit)
    ends = ends_of_spectrum(problem, spectrum)
    if ends is None:
        return undefined(
            spectrum.method, size, spectrum.certificate, float(spectrum.errors.max(initial=0.0))
        )
    return answer_of(problem, ends, size)


def _solve(problem: Problem, method: str, certify: str, size: int) -> ConditionNumber:
    """kappa of the operator of a problem, whose caller's operator has ``size`` rows.

    Method "auto" is followed by a sharper one where the bounds are too wide. With ``certify``
    "inertia" the bounds are proved afterwards.
    """
    rank, is_automatic = problem.rank, method == "auto"
    if rank is not None and rank > problem.size:
        msg = (
            f"rank={rank} cannot be: the operator of size {size} has the non-zero eigenvalues of "
            f"one of size {problem.size}"
        )
        raise ValueError(msg)
    chosen = _cheapest(problem) if is_automatic else _asked_for(problem, method)
    check_near_one(problem.op)
    by_lanczos = is_automatic and chosen is METHODS["krylov"] and rank is None
    if by_lanczos and not METHODS["dense"].refuses(problem):
        # Lanczos often needs a few hundred products, and sometimes more than the n by which a
        # matrix of n rows is formed. Given up after n / 2 it costs at most half as much again.
        problem = replace(problem, most_products=problem.size // 2)
    ends = chosen.ends(problem)
    if ends is None:
        error = dense_error(problem.op, operator_norm(problem.op, problem.limits))
        return undefined(chosen.name, size, certificate(error), error.value)
    if ends.finished:
        if is_automatic and not chosen.sharp and _too_wide(ends, problem.rtol):
            ends = _sharper(problem, ends)
        if certify == "inertia" and ends.certificate.kind != PROVED:
            ends = _by_inertia(problem, ends)
    return answer_of(problem, ends, size)


def _preconditioner_matrix(
    preconditioner: Operator | ArrayLike, size: int, method: str
) -> np.ndarray:
    """The preconditioner as an array (size, size), as many rows as the matrix of the problem has.

    It is refused for a method that takes none, and where its shape is another one.
    """
    if method not in ("auto", "sketched"):
        msg = f"preconditioner= is for method='sketched', got method={method!r}"
        raise ValueError(msg)
    matrix = np.asarray(as_operator(preconditioner).as_matrix(), np.float64)
    if matrix.shape != (size, size):
        msg = (
            f"preconditioner has the shape {matrix.shape}, and kappa is computed on a matrix of "
            f"{size} rows, the smaller of those with the same non-zero eigenvalues; pass a matrix "
            f"of shape ({size}, {size})"
        )
        raise ValueError(msg)
    return matrix


def _check_arguments(size: int, rank: Any, rtol: Any, seed: Any) -> None:
    """Refuse arguments of :func:`condition_number` that are no numbers of their range."""
    if rank is not None and (not is_count(rank) or not 1 <= rank <= size):
        msg = f"rank={rank!r} is not an integer between 1 and the size of the operator, {size}"
        raise ValueError(msg)
    if not isinstance(rtol, int | float | np.floating) or not 0 < rtol < 1:
        msg = f"rtol={rtol!r} is not a number between 0 and 1; 1e-3 is the default"
        raise ValueError(msg)
    if not is_count(seed) or seed < 0:
        msg = f"seed={seed!r} is not an integer of at least 0"
        raise ValueError(msg)


def _too_wide(ends: Ends, rtol: float) -> bool:
    """Whether kappa is not resolved, or its interval is wider than ``rtol`` allows."""
    both_ends = (ends.largest, ends.smallest)
    if not ends.resolved or any(end.value <= 0 for end in both_ends):
        return True
    # To first order the relative widths of both ends add up to that of kappa. "not .. <= .." is
    # true for nan as well.
    return not sum((end.high - end.low) / end.value for end in both_ends) <= rtol


def _sharper(problem: Problem, ends: Ends) -> Ends:
    """Both ends by the singular values of a small factor, or after Lanczos from the matrix."""
    method = METHODS["factored"]
    if method.refuses(problem) or not _has_small_factor(problem):
        if ends.products < problem.most_products:
            return ends
        method = METHODS["dense"]
    sharper = method.ends(problem)
    return ends if sharper is None else sharper


def _by_inertia(problem: Problem, ends: Ends) -> Ends:
    """Prove both ends by Cholesky factorisations of M, the matrix of the problem on its range.

    M - s I has a Cholesky factor for s just below lambda_min, and t I - M for t just above
    lambda_max. Where a factorisation fails, an eigenvalue was missed, and the dense method finds
    it. Ends that are not resolved, and a rank that is not the number of rows of M, are returned as
    they are.
    """
    if not ends.resolved or ends.rank != on_range(problem.op).shape[0]:
        return ends
    matrix, operator, asymmetry = matrix_on_range(problem.op, problem.limits)
    shift_rtol = problem.rtol / 4  # how far a shift is from its eigenvalue, relative to that
    least = least_eigenvalue(matrix, ends.smallest.value, shift_rtol)
    least_of_negative = least_eigenvalue(-matrix, -ends.largest.value, shift_rtol)
    if least is None or least_of_negative is None:
        dense_ends = ends_of_spectrum(problem, dense_spectrum(problem.op, problem.limits))
        return ends if dense_ends is None else dense_ends
    product_error = error_of(operator, -least_of_negative.low)
    error = product_error + asymmetry
    top = Enclosure(  # lambda_max(M) = -lambda_min(-M)
        -least_of_negative.value, -least_of_negative.high, -least_of_negative.low
    ).widened(error.value)
    bottom = least.widened(error.value)
    bottom = replace(bottom, low=max(bottom.low, 0.0))
    proof = Error(0.0, PROVED, 0.0, "Cholesky factors and Rayleigh quotients, with their rounding")
    return replace(
        ends, largest=top, smallest=bottom, certificate=certificate(product_error, asymmetry, proof)
    )


def _asked_for(problem: Problem, name: str) -> Method:
    """The method called ``name``; raises a ValueError if it does not apply to the problem."""
    method = methods_for(problem.op)[name]
    refused = method.refuses(problem)
    if refused:
        raise ValueError(refused)
    return method


def _cheapest(problem: Problem) -> Method:
    """The cheapest of the methods that use structure; if none of them applies, the cheapest of all.

    A preconditioner that the caller has given decides at once. Methods that use structure are those
    that the operator itself brings, and those that are preferred for A = J J^T with a small J:
    singular values of J resolve the smallest eigenvalues, and are preferred where they take at most
    ``limits.factor_work`` multiplications. For a larger J the eigenvalues of A, or products with J,
    take a tenth of the time. Where these leave kappa unresolved, the caller computes the singular
    values after them.
    """
    if problem.preconditioner is not None:
        return _asked_for(problem, "sketched")
    methods = methods_for(problem.op).values()
    by_structure = {method.name for method in facts_of(problem.op).methods}
    if _has_small_factor(problem):
        few = METHODS["factored"].cost(problem) <= problem.limits.factor_work
        by_structure |= {"factored"} if few else {"dense", "sketched"}
    preferred = [method for method in methods if method.name in by_structure]
    for candidates in (preferred, methods):
        applying = [method for method in candidates if not method.refuses(problem)]
        if len(applying) == 1:  # its cost need not be asked, which may take work
            return applying[0]
        if applying:
            return min(applying, key=lambda method: method.cost(problem))
    reasons = "; ".join(method.refuses(problem) for method in methods)
    msg = f"no method applies: {reasons}"
    raise ValueError(msg)


def _has_small_factor(problem: Problem) -> bool:
    """Whether the operator states a factor whose shorter side is at most ``limits.factor_rows``."""
    factor = factorisation_of(problem.op)
    return factor is not None and min(factor.shape) <= problem.limits.factor_rows
