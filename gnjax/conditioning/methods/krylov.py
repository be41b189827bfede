"""Block Lanczos on products with any operator.

lambda_max is at least the largest Ritz value, and lambda_min at most the smallest. The probability
that a run from a random start missed an eigenvalue further out is bounded by
:func:`gnjax.spectra.krylov.missed.missed_probability`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gnjax.conditioning.ends import (
    FLOOR,
    FULL,
    GIVEN,
    Ends,
    Problem,
    ends_of_spectrum,
)
from gnjax.conditioning.methods.method import Method
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.rounding import LAPACK_ROUNDING, spectral_error
from gnjax.operators.facts import facts_of, symmetry_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvalues import NORM_PRODUCTS, operator_norm
from gnjax.spectra.forecast import Products
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.host_products import beside_xla, host_product, singly, too_large
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.semidefinite import Enclosure, check_semidefinite
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.whole import error_and_level

MISSED_AT_EITHER_END = 1e-3  # the probability, for both ends together, that an eigenvalue is missed
_BLOCK = 4
_OF = "kappa by Lanczos"
OVERHEAD = 2e10  # the time of compiling and of many small calls, counted in multiplications
_RUN_ROUNDING = 2.0  # that of the recurrence and of T's eigenvalues, in units of LAPACK's error
_CHECK_EVERY = 8  # steps from one check of both ends to the next
_OPAQUE = 3.4e10  # the cost where only products are known; above 1500 rows "dense" costs more


def _refuses(problem: Problem) -> str:
    """Why the method does not apply, or "": two blocks of vectors have no room in memory."""
    return too_large(problem.size, 2 * _BLOCK, problem.limits)


def _cost(problem: Problem) -> float:
    """Multiplications; a constant for an operator of which nothing but products is known."""
    if not facts_of(problem.op).forms_cheaply:
        return _OPAQUE
    return OVERHEAD + 40.0 * problem.size**3  # a basis may become as large as the matrix


def _ends(problem: Problem) -> Ends | None:
    """Both ends by block Lanczos, which runs until they are certified or memory is full.

    A run may also end because its basis spans all that the operator does not map to zero: it then
    has the whole spectrum. The answer is None where the norm of the operator is at most the error
    of its products.
    """
    op, size = problem.op, problem.size
    most_vectors = min(problem.limits.basis_rows(size), problem.most_products)
    steps = max(2, int(most_vectors // _BLOCK) + 1)
    problem.watch.takes(_products(problem, _BLOCK * steps))
    norm = operator_norm(op)
    error, noise = error_and_level(op, norm)
    if norm <= noise:
        return None
    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        run = lanczos.lanczos(
            singly(op, problem.watch(host_product(op))),
            lanczos.random_rows(size, _BLOCK, problem.seed),
            max_steps=steps,
            noise=noise,
            stop_when=_nothing_missed(problem, noise),
            check_every=1,
            seed=problem.seed,
        )
    error += Error(run.dropped, reason="entries of T that Lanczos set to zero as rounding")
    error += LAPACK_ROUNDING.to(_RUN_ROUNDING * spectral_error(size, op.dtype) * norm)
    values, residuals, _ = lanczos.ritz(run)
    check_semidefinite(float(values[0]), float(values[-1]), noise + run.dropped, answer="kappa")
    if run.complete:
        ends = ends_of_spectrum(problem, _complete(op, run, values, residuals, error))
        return None if ends is None else replace(ends, products=run.products)
    _check_answerable(problem, run)
    ends = _incomplete(problem, run, values, residuals, error)
    return replace(ends, finished=not problem.watch.stopped)


def _products(problem: Problem, most: int) -> Products:
    """How many products there will be at the most, with those for the norm, and what takes less."""
    rows = problem.limits.matrix_rows
    formed = f"of up to {rows:,} rows the matrix is formed instead, so take fewer samples"
    advice = (
        f"{formed if problem.size > rows else 'fewer samples take less'}; Ctrl-C or "
        "limits=gnjax.Limits(seconds=..) end it with the bounds so far; "
        "gnjax.eigenvalues(op, k=1) has lambda_max alone"
    )
    most = min(most, problem.size)
    return Products(min(NORM_PRODUCTS + 2 * _BLOCK, most), NORM_PRODUCTS + most, _OF, advice)


def _check_answerable(problem: Problem, run: lanczos.Run) -> None:
    """Raise an error where an incomplete run gives no answer to the problem."""
    assumed = problem.rank not in (None, problem.size)
    if problem.watch.stopped and (run.products <= _BLOCK or assumed):
        raise KeyboardInterrupt  # before anything was known
    if assumed:
        msg = (
            f"rank={problem.rank}: Lanczos did not find the whole range within {run.products} "
            f"products, so it cannot tell which eigenvalue has the number {problem.rank}; use "
            "method='factored' or 'dense', or leave the rank out"
        )
        raise ValueError(msg)


def _nothing_missed(problem: Problem, error: float) -> Callable[[lanczos.Run], bool]:
    """A test of whether a run is long enough, to be called at every step.

    It is where the caller has asked to stop, or where it is certain enough that no eigenvalue lies
    far outside the range of Ritz values, which is asked at every eighth step.

    With the smallest and the largest Ritz value a and b, all eigenvalues must be between
    (1 - rtol / 2) a and (1 + rtol / 3) b, and the former must be above ``error``, that of the
    products. So kappa is b / a times at most (1 + rtol / 3) / (1 - rtol / 2), which is about
    1 + 5/6 rtol; the interval of the answer adds ``error`` to that. It is wrong with a probability
    of at most ``MISSED_AT_EITHER_END`` for both ends together.
    """
    steps, rtol = 0, problem.rtol

    def may_end(run: lanczos.Run) -> bool:
        nonlocal steps
        steps += 1
        if problem.watch.stopped or steps % _CHECK_EVERY:
            return problem.watch.stopped
        values = np.linalg.eigvalsh(run.projection)
        bottom = values[0] * (1 - rtol / 2)
        if bottom <= error:
            return False
        chances = lanczos.missed_probability(run, np.array([bottom, values[-1] * (1 + rtol / 3)]))
        return bool((chances <= MISSED_AT_EITHER_END / 2).all())

    return may_end


def _complete(
    op: Operator, run: lanczos.Run, values: np.ndarray, residuals: np.ndarray, error: Error
) -> Spectrum:
    """The spectrum from a complete run: its Ritz values, and zeros for the remaining dimensions."""
    size = op.shape[0]
    has_zeros = size > len(values)
    null_error = run.null_error if has_zeros else 0.0
    missed = chance(run.null_chance if has_zeros else 0.0)
    rests_on = certificate(error, missed, symmetry_of(op))
    padding = (0, size - len(values))
    all_values = np.pad(values[::-1], padding)
    errors = np.pad(
        residuals[::-1] + error.value, padding, constant_values=error.value + null_error
    )
    order = np.argsort(-all_values, kind="stable")
    return Spectrum(all_values[order], errors[order], "krylov", rests_on)


def _incomplete(
    problem: Problem,
    run: lanczos.Run,
    values: np.ndarray,
    residuals: np.ndarray,
    error: Error,
) -> Ends:
    """Both ends from an incomplete run, with its Ritz ``values`` from the smallest up.

    The smallest non-zero eigenvalue is known only if every eigenvalue is certified to be positive.
    Otherwise it is bounded from above alone, by the smallest Ritz value that is certainly not zero
    with its residual. The rank is then the caller's, or the largest that it can be: the bound holds
    for no smaller one.
    """
    size, top, bottom = run.size, float(values[-1]), float(values[0])
    rests_on = certificate(error, chance(MISSED_AT_EITHER_END), symmetry_of(problem.op))
    if not np.isfinite(error.value):  # nothing is known about the products: values without bounds
        largest = Enclosure(top, 0.0, np.inf)
        smallest = Enclosure(max(bottom, 0.0), 0.0, np.inf)
        return Ends(
            largest, smallest, *_unseen_rank(problem, 0), 0.0, "krylov", rests_on, run.products
        )
    floor = error.value
    chance_of_end = MISSED_AT_EITHER_END / 2
    # Bounds beyond which the run missed no eigenvalue: between top and 2 top, and from bottom down
    # to 0 or below; infinite if there is none.
    upper = lanczos.none_missed_beyond(run, top, top, chance_of_end)
    lower = lanczos.none_missed_beyond(run, bottom, -max(bottom, floor), chance_of_end)
    if lower > floor:  # no eigenvalue lies below lower - floor > 0: the rank is full
        smallest = Enclosure(bottom, lower - floor, bottom + floor)
        rank, source = size, FULL if problem.rank is None else GIVEN
    else:
        is_nonzero = values - residuals > floor  # value +- residual contains an eigenvalue
        first = int(np.argmax(is_nonzero))
        end = values[first] + residuals[first] if is_nonzero.any() else top
        smallest = Enclosure(max(float(values[first]), 0.0), 0.0, float(end + floor))
        rank, source = _unseen_rank(problem, int(is_nonzero.sum()))
    largest = Enclosure(top, top - floor, upper + floor)
    return Ends(largest, smallest, rank, source, floor, "krylov", rests_on, products=run.products)


def _unseen_rank(problem: Problem, positive: int) -> tuple[int, str]:
    """The rank, and what it rests on, where a run did not see all of the spectrum.

    It is the caller's, or the largest that structure allows, unless more eigenvalues are
    ``positive``.
    """
    if problem.rank is not None:
        return problem.rank, GIVEN
    bound = problem.bound.value
    return bound if positive <= bound else problem.size, FLOOR


METHOD = Method(
    "krylov",
    "block Lanczos on products alone; certified by the chance that a random start misses an "
    "eigenvalue",
    "any operator",
    _refuses,
    _cost,
    _ends,
)
