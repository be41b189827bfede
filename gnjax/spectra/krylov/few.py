"""The k largest or smallest eigenvalues by Lanczos, each as often as it is repeated.

A run from a random start finds one eigenvector of a repeated eigenvalue. Whether others are hidden
from it is decided by :mod:`gnjax.spectra.krylov.hidden`; if so, a run from more vectors follows.
When a basis is full, the run is restarted with the outermost Ritz vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gnjax.numerics.certificate import PROBABLE, PROVED, Error, unknown
from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.hidden import MISSED, excludes, hides, threshold
from gnjax.spectra.krylov.ritz_places import position_errors
from gnjax.spectra.krylov.search import (
    SPARE,
    RitzPairs,
    Search,
    most_products,
    ritz_pairs,
    rowwise,
    small,
)

_LOOK = 6  # steps from one check of the residuals to the next, at most
_MATTERS = 0.1  # images are computed again if more than this times the tolerance was dropped
_UNCOUNTED = unknown("it was not decided whether eigenvalues further out are missing")


@dataclass(frozen=True)
class OuterRitzPairs:
    """k Ritz pairs from one end of the spectrum, from the largest value down.

    Attributes:
      values: the k Ritz values.
      residuals: ||A x - theta x|| for each pair; some eigenvalue is this close to the value.
      scale: the largest absolute Ritz value, an estimate of the norm of the operator.
      vectors: unit rows. There are fewer than values if some values are zeros for a null space that
        the run did not enter.
      images: the product of A with each of the vectors.
      converged: whether every residual is below the tolerance, and no eigenvalue further out is
        known to be missing. Otherwise these are the best values so far.
      products: how many rows were multiplied in all.
      errors: if ``count`` holds, the i-th eigenvalue from the end, counted with multiplicity, is
        this close to the i-th value. They are infinite where ``count`` was not decided.
      count: the statement that no eigenvalue further out than the k-th is missing, with the
        probability that it is wrong. Its value is how far beyond the k-th value the k-th eigenvalue
        can be.
    """

    values: np.ndarray
    residuals: np.ndarray
    scale: float
    vectors: np.ndarray
    images: np.ndarray
    converged: bool = True
    products: int = 0
    errors: np.ndarray = field(default_factory=lambda: np.empty(0))
    count: Error = _UNCOUNTED


def outer_ritz_pairs(
    apply: HostProduct,
    size: int,
    k: int,
    *,
    sign: float,
    rtol: float,
    noise: float,
    most: int,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> OuterRitzPairs:
    """The k outermost Ritz pairs of a symmetric operator, those of its largest or smallest values.

    The first run starts from one vector. As long as one of the k eigenvalues may be hidden, another
    run starts from twice as many vectors, since a run from k vectors finds k copies of a repeated
    eigenvalue. A basis has ``most`` rows, or 2 k + 6 if those are more. A restart and the search
    for hidden eigenvalues need up to as many again. If 20 products for each row of a basis and 1000
    more do not suffice, or once ``stop`` returns True, the best values so far come back with
    ``converged`` False.

    Args:
      apply: the product of the operator with rows.
      size: the number of rows of the operator.
      k: the number of eigenvalues.
      sign: -1 for the largest eigenvalues, 1 for the smallest.
      rtol: the tolerance of residuals, relative to the largest absolute Ritz value.
      noise: the rounding of a product, relative to the same.
      most: the largest number of rows of a basis.
      seed: the seed of the random starts.
      stop: returns whether to end with the best values so far.
    """
    products = 0

    def counting(rows: np.ndarray) -> np.ndarray:
        nonlocal products
        products += len(rows)
        return apply(rows)

    search = Search(counting, size, k, sign, rtol, noise, most, seed, stop)
    # ``level`` is the probability that a random start misleads. Every round has two starts and half
    # the level of the one before, so that all of them add up to at most MISSED.
    block, level = 1, MISSED / 4
    limit = most_products(search.rows)
    while True:
        pairs = _search(search, block, limit - products, level)
        if pairs.run.complete or search.stop() or not small(search, pairs):
            answer = _answer(search, pairs, False)
            break
        hidden = hides(search, pairs, level)  # None where it is not decided
        answer = _answer(search, pairs, hidden is False)
        if search.stop() or not _more_vectors(search, pairs, block, hidden):
            answer = replace(answer, converged=answer.converged and not hidden)
            break
        # A run from k vectors is always among them, and one from 2 k is the last.
        block, level = min(2 * block, k if block < k else 2 * k), level / 2
    return replace(answer, products=products)


def _more_vectors(search: Search, pairs: RitzPairs, block: int, hidden: bool | None) -> bool:
    """Whether another run, from more than ``block`` vectors, may find hidden eigenvalues.

    A run from ``block`` vectors finds up to ``block`` copies of a repeated eigenvalue. If any are
    ``hidden``, another run follows, but none from more than 2 k vectors. If that is undecided
    (None), it follows only after a run from one vector, or if a value occurs as often as there are
    vectors, and none from more than k.
    """
    if hidden is not None:
        return hidden and block < 2 * search.k
    values = pairs.values[: search.k]
    errors = pairs.residuals[: search.k] + search.noise * pairs.scale
    distinct = np.abs(np.subtract.outer(values, values)) > np.add.outer(errors, errors)
    copies = int((~distinct).sum(axis=1).max())  # of one value, itself included
    return block < search.k and (block < 2 or copies >= block)


def _search(search: Search, block: int, products: int, level: float) -> RitzPairs:
    """The Ritz pairs of a run from ``block`` random vectors, with restarts when its basis is full.

    It ends when the residuals of the k outermost pairs are below the tolerance
    (:func:`_converged`), or after ``products`` products.
    """
    options = {"noise": 0.0, "relative_noise": search.noise, "check_every": 1}
    run = krylov.lanczos(
        search.apply,
        krylov.random_rows(search.size, block, 2 * search.seed),
        max_steps=max(2, search.rows // block),
        stop_when=_converged(search, level),
        **options,
    )
    # A restart keeps the k vectors of the answer and half of the other rows of a basis.
    restart_size, is_restarted = search.k + (search.rows - search.k) // 2, False
    while not (run.complete or search.stop() or small(search, ritz_pairs(run, search.sign))):
        if run.products >= products:
            break
        is_restarted = True
        run = krylov.restarted(run, ritz_pairs(run, search.sign).vectors[:, :restart_size])
        run = krylov.extended(
            search.apply, run, rows=search.rows, stop_when=_converged(search, level), **options
        )
    # What restarts have dropped adds up in ``dropped``, and new products measure it anew.
    return ritz_pairs(_confirmed(search, run) if is_restarted else run, search.sign)


def _converged(search: Search, level: float) -> Callable[[krylov.Run], bool]:
    """A function of a run: whether its k outermost Ritz pairs have residuals below the tolerance.

    The residuals take an eigendecomposition. So they are computed again only after half of the
    steps that they would need if they decayed as fast as since the last time.

    If the k values are the outermost Ritz values, the run goes on for the few steps after which it
    missed an eigenvalue further out with a probability of at most ``level``, which saves a second
    run.
    """
    # The logarithm of residual / tolerance falls with the steps. At step 0 the residual counts as
    # large as the norm of A.
    next_check, last_check = 0, (0, -float(np.log(search.rtol)))

    def may_end(run: krylov.Run) -> bool:
        """Whether the run may end; most calls only count the steps until the next check."""
        nonlocal next_check, last_check
        steps = len(run.basis)
        if search.stop():
            return True
        if steps < max(next_check, search.k):
            return False
        pairs = ritz_pairs(run, search.sign)
        largest, tolerance = pairs.residuals[: search.k].max(), search.rtol * pairs.scale
        if largest <= tolerance:
            # in a broken run more steps do not lower the probability
            return not run.unbroken or excludes(search, pairs, level) is not False
        # ``excess`` falls about linearly with the steps, and is 0 at the tolerance.
        excess = float(np.log(largest / tolerance))
        decay = (last_check[1] - excess) / (steps - last_check[0])  # in a step
        remaining_steps = excess / decay if decay > 0 else np.inf
        next_check = steps + run.block * int(np.clip(remaining_steps / 2 / run.block, 1, _LOOK))
        last_check = steps, excess
        return False

    return may_end


def _confirmed(search: Search, run: krylov.Run) -> krylov.Run:
    """The run reduced to a few outermost Ritz vectors U, with ``dropped`` from new products.

    A run with T = U A U^T, the following rows Q and the remainder R fulfils
    A U^T = U^T T + Q^T R + E^T, where E (rows, n) holds all that was dropped, restarts included. E
    is measured here as the difference between new products and the recurrence.

    There is a symmetric matrix A' with A' U^T = U^T T + Q^T R and ||A - A'|| <= 2 / sqrt(3) ||E||.
    For A - A' has to map U^T to E^T. On the rows of U and on their complement it is the matrix of
    blocks [S, F^T; F, 0], where S and F are the parts of E^T on both. With e = ||E|| its norm is at
    most the maximum of (s + (4 e^2 - 3 s^2)^{1/2}) / 2 for 0 <= s <= e, at s = e / 3^{1/2}.
    """
    if run.complete:
        return run
    run = krylov.restarted(run, ritz_pairs(run, search.sign).vectors[:, : search.k + SPARE])
    images = rowwise(search.apply, run.basis)
    recurrence = run.projection @ run.basis + run.remainder.T @ run.following
    return replace(run, dropped=2 / 3**0.5 * float(np.linalg.norm(images - recurrence)))


def _answer(search: Search, pairs: RitzPairs, decided: bool) -> OuterRitzPairs:
    """The k outermost pairs from the largest value down, with their errors.

    ``decided`` says whether it is known that no eigenvalue further out is missing. A complete run
    that does not span the whole space has found that A is zero outside of its basis, up to
    ``null_error``: there are then eigenvalues near zero for which it has no vectors.
    """
    run = pairs.run
    # no more zeros than the complement of the basis has dimensions
    zeros = min(search.k, search.size - len(pairs.values)) if run.complete else 0
    values = np.append(pairs.values, np.zeros(zeros))
    outermost = np.argsort(search.sign * values, kind="stable")[: search.k]
    descending = outermost[np.argsort(-values[outermost])]
    has_vector = descending < len(pairs.values)
    vectors, images, lengths = _pairs(search, pairs, descending[has_vector])
    residuals = np.full(len(descending), run.null_error + run.dropped)
    residuals[has_vector] = lengths
    count, errors = _counted(search, pairs, search.sign * values[descending], residuals, decided)
    tolerance = max(search.rtol, 4 * search.noise)  # residuals below the rounding are not asked for
    return OuterRitzPairs(
        values[descending],
        residuals,
        pairs.scale,
        vectors,
        images,
        bool(residuals[has_vector].max(initial=0.0) <= tolerance * pairs.scale),
        errors=errors,
        count=count,
    )


def _pairs(
    search: Search, pairs: RitzPairs, selected: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (k, n), images (k, n) and residuals (k,) of the Ritz pairs with the given indices.

    With A V^T = V^T T + Q^T R and an eigenpair (theta, w) of T, the Ritz vector is x = V^T w and
    its image A x = theta x + Q^T R w. If rounding that was dropped from the recurrence may change a
    residual, the images are computed by new products instead.
    """
    run, coefficients, values = pairs.run, pairs.vectors[:, selected].T, pairs.values[selected]
    vectors = coefficients @ run.basis
    if run.dropped > _MATTERS * search.rtol * pairs.scale:
        images = rowwise(search.apply, vectors) if len(vectors) else vectors
        return vectors, images, np.linalg.norm(images - values[:, None] * vectors, axis=1)
    beyond_basis = coefficients[:, -run.block :] @ run.remainder.T @ run.following  # Q^T R w
    return (
        vectors,
        values[:, None] * vectors + beyond_basis,
        pairs.residuals[selected] + run.dropped,
    )


def _counted(
    search: Search, pairs: RitzPairs, signed: np.ndarray, residuals: np.ndarray, decided: bool
) -> tuple[Error, np.ndarray]:
    """The statement ``count`` about eigenvalues outside the run, and ``errors`` of the k values.

    ``signed`` are ``search.sign`` times the values, so that the least is the outermost. If it is
    ``decided`` that no eigenvalue beyond the threshold is missing, as many eigenvalues as Ritz
    values lie beyond it, and the i-th can be compared with the i-th.
    """
    run = pairs.run
    if run.complete:
        everywhere = np.full(len(signed), run.dropped + run.null_error)
        reason = "a null space found with random vectors"
        chance = run.null_chance
        return Error(
            float(everywhere[0]), PROBABLE if chance else PROVED, chance, reason
        ), everywhere
    if not decided:
        return _UNCOUNTED, np.full(len(signed), np.inf)
    # The threshold holds for the matrix that the run was made with, and A differs by ``dropped``.
    edge = search.sign * threshold(search, pairs) - run.dropped
    errors = np.maximum(position_errors(signed, residuals, edge), run.dropped)
    room = max(float(signed.max()) - edge, run.dropped)
    return Error(room, PROBABLE, MISSED, "eigenvalues that a random start may have missed"), errors
