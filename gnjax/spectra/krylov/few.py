"""The k largest or smallest eigenvalues by Lanczos, each as often as it is repeated.

A run from a random start finds one eigenvector of a repeated eigenvalue. Whether eigenvalues are
hidden from it is decided by :mod:`gnjax.spectra.krylov.hidden`. If so, a run from more vectors
follows.

When a basis is full, the run is restarted with the Ritz vectors whose values are nearest to the end
of the spectrum. The recurrence, on which that decision rests, holds for those as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gnjax.numerics.certificate import PROBABLE, PROVED, Error, unknown
from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.hidden import MISSED, excludes, hides, is_outermost, threshold
from gnjax.spectra.krylov.ritz_places import position_errors
from gnjax.spectra.krylov.search import (
    SPARE,
    RitzPairs,
    Search,
    most_products,
    never,
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
    stop: Callable[[], bool] = never,
) -> OuterRitzPairs:
    """The k outermost Ritz pairs of an operator of ``size`` rows.

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
      rtol: the tolerance of residuals, relative to the scale.
      noise: the rounding of a product, relative to the scale.
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
    block, level = 1, MISSED / 2
    limit = most_products(search.rows)
    while True:
        pairs = _search(search, block, limit - products, level)
        if pairs.run.complete or search.stop() or not small(search, pairs):
            answer = _answer(search, pairs, False)
            break
        hidden = hides(search, pairs, level)
        answer = _answer(search, pairs, hidden is False)
        if search.stop() or not _more_vectors(search, pairs, block, hidden):
            answer = replace(answer, converged=answer.converged and not hidden)
            break
        block, level = min(2 * block, k if block < k else 2 * k), level / 2
    return replace(answer, products=products)


def _more_vectors(search: Search, pairs: RitzPairs, block: int, hidden: bool | None) -> bool:
    """Whether a run from more vectors may find eigenvalues that are hidden from this one.

    Where that is undecided, more vectors are needed only after a run from one vector, or if one
    value occurs as often as there are vectors.
    """
    if hidden is not None:
        return hidden and block < 2 * search.k
    errors = pairs.residuals[: search.k] + search.noise * pairs.scale
    return block < search.k and (block < 2 or _copies(pairs.values[: search.k], errors) >= block)


def _copies(values: np.ndarray, errors: np.ndarray) -> int:
    """The largest number of values that may all be equal."""
    distinct = np.abs(np.subtract.outer(values, values)) > np.add.outer(errors, errors)
    return int((~distinct).sum(axis=1).max())


def _search(search: Search, block: int, products: int, level: float) -> RitzPairs:
    """Run Lanczos, with restarts, until the k outermost Ritz values have small residuals."""
    options = {"noise": 0.0, "relative_noise": search.noise, "check_every": 1}
    run = krylov.lanczos(
        search.apply,
        krylov.random_rows(search.size, block, search.start),
        max_steps=max(2, search.rows // block),
        enough=_converged(search, level),
        **options,
    )
    restart_size, restarts = search.k + (search.rows - search.k) // 2, False
    while not (run.complete or search.stop() or small(search, ritz_pairs(run, search.sign))):
        if run.products >= products:
            break
        restarts = True
        run = krylov.restarted(run, ritz_pairs(run, search.sign).vectors[:, :restart_size])
        run = krylov.extended(
            search.apply, run, rows=search.rows, enough=_converged(search, level), **options
        )
    return ritz_pairs(_confirmed(search, run) if restarts else run, search.sign)


def _converged(search: Search, level: float) -> Callable[[krylov.Run], bool]:
    """A test of a run: whether the residuals are small.

    The residuals are computed again after half of the steps that they would need if they decayed as
    they have since the last time. Where the k values are the outermost Ritz values, the run goes on
    for the few steps that it takes to prove that no eigenvalue lies further out.
    """
    due, before = 0, (0, -float(np.log(search.rtol)))

    def enough(run: krylov.Run) -> bool:
        nonlocal due, before
        steps = len(run.basis)
        if search.stop():
            return True
        if steps < max(due, search.k):
            return False
        pairs = ritz_pairs(run, search.sign)
        worst, target = pairs.residuals[: search.k].max(), search.rtol * pairs.scale
        if worst <= target:
            return (
                not run.unbroken
                or not is_outermost(search, pairs)
                or excludes(search, pairs, level)
            )
        excess = float(np.log(worst / target))
        rate = (before[1] - excess) / (steps - before[0])
        ahead = excess / rate if rate > 0 else np.inf
        due = steps + run.block * int(np.clip(ahead / 2 / run.block, 1, _LOOK))
        before = steps, excess
        return False

    return enough


def _confirmed(search: Search, run: krylov.Run) -> krylov.Run:
    """Reduce the run to a few outermost Ritz vectors, and measure ``dropped`` by new products.

    After restarts the difference between the products with these vectors and the recurrence is all
    that was dropped. The smallest symmetric perturbation of A without such a difference has at most
    2 / sqrt(3) times the norm of the difference.
    """
    if run.complete:
        return run
    run = krylov.restarted(run, ritz_pairs(run, search.sign).vectors[:, : search.k + SPARE])
    images = rowwise(search.apply, run.basis)
    recurrence = run.projection @ run.basis + run.remainder.T @ run.following
    return replace(run, dropped=2 / 3**0.5 * float(np.linalg.norm(images - recurrence)))


def _answer(search: Search, pairs: RitzPairs, decided: bool) -> OuterRitzPairs:
    """The k values with their vectors and errors."""
    run = pairs.run
    unseen = min(search.k, search.size - len(pairs.values)) if run.complete else 0
    values = np.append(pairs.values, np.zeros(unseen))  # zeros of the null space outside the run
    outermost = np.argsort(search.sign * values, kind="stable")[: search.k]
    descending = outermost[np.argsort(-values[outermost])]
    inside = descending < len(pairs.values)
    vectors, images, lengths = _pairs(search, pairs, descending[inside])
    residuals = np.full(len(descending), run.null_error + run.dropped)
    residuals[inside] = lengths
    count, errors = _counted(search, pairs, search.sign * values[descending], residuals, decided)
    tolerance = max(search.rtol, 4 * search.noise)
    return OuterRitzPairs(
        values[descending],
        residuals,
        pairs.scale,
        vectors,
        images,
        bool(residuals[inside].max(initial=0.0) <= tolerance * pairs.scale),
        errors=errors,
        count=count,
    )


def _pairs(
    search: Search, pairs: RitzPairs, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz vectors V^T w as rows, their images A V^T w = theta V^T w + Q^T R w, and the residuals.

    If what was dropped may change a residual, the images are computed by new products.
    """
    run, coefficients, values = pairs.run, pairs.vectors[:, places].T, pairs.values[places]
    vectors = coefficients @ run.basis
    if run.dropped > _MATTERS * search.rtol * pairs.scale:
        images = rowwise(search.apply, vectors) if len(vectors) else vectors
        return vectors, images, np.linalg.norm(images - values[:, None] * vectors, axis=1)
    onward = coefficients[:, -run.block :] @ run.remainder.T @ run.following
    return vectors, values[:, None] * vectors + onward, pairs.residuals[places] + run.dropped


def _counted(
    search: Search, pairs: RitzPairs, signed: np.ndarray, residuals: np.ndarray, decided: bool
) -> tuple[Error, np.ndarray]:
    """The statement ``count`` about eigenvalues outside the run, and ``errors`` of the values."""
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
    edge = search.sign * threshold(search, pairs) - run.dropped
    errors = np.maximum(position_errors(signed, residuals, edge), run.dropped)
    room = max(float(signed.max()) - edge, run.dropped)
    return Error(room, PROBABLE, MISSED, "eigenvalues that a random start may have missed"), errors
