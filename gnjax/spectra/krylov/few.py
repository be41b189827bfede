"""The k largest or smallest eigenvalues by Lanczos, each as often as it is repeated.

From rows V (j, n) a run knows T = V A V^T and R with A V^T = V^T T + Q^T R, Q the rows that would
follow. One vector leads to one eigenvector of a repeated eigenvalue; the others are orthogonal to
V. By Sylvester's law A has as many eigenvalues above t as T has, and

    S(t) = A - Q^T R (T - t)^{-1} R^T Q    on the complement of V

together. T's are known. Whether S has any a second run decides, from a random start in the
complement, with the chance of :mod:`gnjax.spectra.krylov.lanczos` that it misses one. Where t lies
beyond all of T, the first run's own start decides.

A basis that is full is restarted with the Ritz vectors nearest to the end. The recurrence, and with
it S(t), holds for those as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gnjax.numerics.certificate import PROBABLE, PROVED, Error, unknown
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.places import position_errors

_MISSED = 1e-3
_LOOK = 6  # steps without a look at the residuals or at the count, at most
_SPARE = 6  # rows of the least basis beyond 2 k
_CYCLES = 20  # products, as a multiple of the rows of a basis
_LEAST_PRODUCTS = 1000
_MATTERS = 0.1  # of the tolerance: what was dropped is then seen in products of its own
_UNCOUNTED = unknown("it was not decided whether eigenvalues further out are missing")


@dataclass(frozen=True)
class Extremes:
    """Ritz values from the largest down.

    Attributes:
      values: the k values.
      residuals: an eigenvalue lies this close to each value: ||A x - theta x|| for its vector.
      scale: the largest absolute Ritz value, for the norm of the operator.
      vectors: unit rows; fewer than values where these are a null space's.
      images: A on each of the vectors.
      converged: whether every residual is below the tolerance, and no eigenvalue further out is
        known to be missing. Otherwise these are the best values so far.
      products: how many rows were multiplied in all.
      errors: the i-th eigenvalue from the end, repeated ones counted, lies this close to the i-th
        value, if ``count`` holds; infinite where it was not decided.
      count: "no eigenvalue further out than the k-th is missing", with its chance to be wrong; its
        value is how far beyond the k-th value the k-th eigenvalue can be.
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

    @property
    def counted(self) -> bool | None:
        """True where ``count`` was decided, with the chance ``count.failure``; else None."""
        return True if self.count.value < np.inf else None

    @property
    def chance(self) -> float:
        """The chance that eigenvalues are missing although ``counted`` is True."""
        return self.count.failure


def _never() -> bool:
    return False


@dataclass(frozen=True)
class _End:
    """Where eigenvalues are wanted: the k least values of sign * A."""

    apply: krylov.Apply
    size: int
    k: int
    sign: float
    rtol: float  # of the scale, for the residuals of those wanted
    noise: float  # of the scale, what a product rounds
    most: int  # rows that a basis may have
    stop: Callable[[], bool] = _never  # whether the best values so far are asked for

    @property
    def rows(self) -> int:
        """``most``, but never fewer than the answer and what a restart needs to proceed."""
        return min(self.size, max(self.most, least_rows(self.k)))


def least_rows(k: int) -> int:
    """How many rows a basis has at least: those of the answer, and what a restart proceeds with."""
    return 2 * k + _SPARE


def most_products(rows: int) -> int:
    """After how many products with a basis of so many rows a run ends, converged or not."""
    return _CYCLES * rows + _LEAST_PRODUCTS


@dataclass(frozen=True)
class _Found:
    """A run, and its Ritz pairs from the end inwards."""

    run: krylov.Run
    values: np.ndarray
    residuals: np.ndarray
    vectors: np.ndarray  # coefficients (j, j)

    @property
    def scale(self) -> float:
        return float(np.abs(self.values).max())


def extremes(
    apply: krylov.Apply,
    size: int,
    k: int,
    *,
    sign: float,
    rtol: float,
    noise: float,
    most: int,
    stop: Callable[[], bool] = _never,
) -> Extremes:
    """A run from one vector, and from twice as many where one of the k may be hidden from it.

    A run from k vectors sees as many copies of an eigenvalue as can be asked for. A basis has
    ``most`` rows, or 2 k + 6 where those are more; a restart and a count need up to as many again.
    After 20 times the rows of a basis and 1000 products, and once ``stop`` says so, the best values
    so far come back with ``converged`` False.
    """
    products = 0

    def counting(rows: np.ndarray) -> np.ndarray:
        nonlocal products
        products += len(rows)
        return apply(rows)

    end, block, level = _End(counting, size, k, sign, rtol, noise, most, stop), 1, _MISSED / 2
    limit = most_products(end.rows)
    while True:
        found = _search(end, block, limit - products, level)
        if found.run.complete or end.stop() or not _small(end, found):
            answer = _answer(end, found, False)
            break
        hidden = _hides(end, found, level)
        answer = _answer(end, found, hidden is False)
        if end.stop() or not _more_vectors(end, found, block, hidden):
            answer = replace(answer, converged=answer.converged and not hidden)
            break
        block, level = min(2 * block, k if block < k else 2 * k), level / 2
    return replace(answer, products=products)


def _more_vectors(end: _End, found: _Found, block: int, hidden: bool | None) -> bool:
    """Whether a run from more vectors may find what this one hides.

    Where the count stays undecided, a run from several vectors is taken at its word unless it holds
    one value as often as there are vectors.
    """
    if hidden is not None:
        return hidden and block < 2 * end.k
    errors = found.residuals[: end.k] + end.noise * found.scale
    return block < end.k and (block < 2 or _copies(found.values[: end.k], errors) >= block)


def _copies(values: np.ndarray, errors: np.ndarray) -> int:
    """How many of the values, at most, may be one and the same."""
    apart = np.abs(np.subtract.outer(values, values)) > np.add.outer(errors, errors)
    return int((~apart).sum(axis=1).max())


def _search(end: _End, block: int, products: int, level: float) -> _Found:
    """Until the residuals of the k outermost Ritz values are small, restarted where need be."""
    options = {"noise": 0.0, "relative_noise": end.noise, "check_every": 1}
    run = krylov.lanczos(
        end.apply,
        krylov.random_rows(end.size, block, 0),
        max_steps=max(2, end.rows // block),
        enough=_converged(end, level),
        **options,
    )
    kept, restarts = end.k + (end.rows - end.k) // 2, False
    while not (run.complete or end.stop() or _small(end, _ritz(run, end.sign))):
        if run.products >= products:
            break
        run, restarts = krylov.restarted(run, _ritz(run, end.sign).vectors[:, :kept]), True
        run = krylov.extended(
            end.apply, run, rows=end.rows, enough=_converged(end, level), **options
        )
    return _ritz(_confirmed(end, run) if restarts else run, end.sign)


def _confirmed(end: _End, run: krylov.Run) -> krylov.Run:
    """The few outermost Ritz vectors, with what their images differ from the recurrence.

    After restarts that difference, seen in products of their own, is all that was dropped. The
    symmetric perturbation that makes it zero has at most 2 / sqrt(3) of its norm.
    """
    if run.complete:
        return run
    run = krylov.restarted(run, _ritz(run, end.sign).vectors[:, : end.k + _SPARE])
    images = _rowwise(end.apply, run.basis)
    known = run.projection @ run.basis + run.remainder.T @ run.following
    return replace(run, dropped=2 / 3**0.5 * float(np.linalg.norm(images - known)))


def _rowwise(apply: krylov.Apply, rows: np.ndarray) -> np.ndarray:
    """A on every row by itself, as in the run: a block may be compiled anew."""
    return np.concatenate([apply(row[None]) for row in rows])


def _small(end: _End, found: _Found) -> bool:
    """Whether the residuals of the k outermost Ritz values are below the tolerance."""
    known = found.residuals[: end.k]
    return len(known) == end.k and bool(known.max() <= end.rtol * found.scale)


def _converged(end: _End, level: float) -> Callable[[krylov.Run], bool]:
    """Whether the residuals are small, looked at again half-way to where they would be.

    That is by their decay since the last look, at first since they were as long as the operator.
    Where all values wanted are at the very end, a few steps more make the run itself prove that
    nothing lies beyond them.
    """
    due, before = 0, (0, -float(np.log(end.rtol)))

    def enough(run: krylov.Run) -> bool:
        nonlocal due, before
        steps = len(run.basis)
        if end.stop():
            return True
        if steps < max(due, end.k):
            return False
        found = _ritz(run, end.sign)
        worst, target = found.residuals[: end.k].max(), end.rtol * found.scale
        if worst <= target:
            return not run.unbroken or not _at_the_end(end, found) or _excludes(end, found, level)
        excess = float(np.log(worst / target))
        rate = (before[1] - excess) / (steps - before[0])
        ahead = excess / rate if rate > 0 else np.inf
        due = steps + run.block * int(np.clip(ahead / 2 / run.block, 1, _LOOK))
        before = steps, excess
        return False

    return enough


def _ritz(run: krylov.Run, sign: float) -> _Found:
    values, residuals, vectors = krylov.ritz(run)
    order = np.argsort(sign * values)
    return _Found(run, values[order], residuals[order], vectors[:, order])


def _threshold(end: _End, found: _Found) -> float:
    """The t beyond the k-th value, and beyond those not told apart from it, to count at."""
    errors = found.residuals[: end.k] + found.run.dropped
    inner = end.sign * found.values[: end.k] - errors
    outer = inner + 2 * errors
    room = max(errors[-1], end.rtol / 2 * found.scale, 4 * end.noise * found.scale)
    room = max(room, 2 * found.run.dropped, float(np.finfo(float).tiny))  # of zero, too
    reach = inner[-1]
    for low, high in zip(inner[::-1], outer[::-1], strict=True):
        if high > reach - 2 * room:
            reach = min(reach, low)
    return float(end.sign * (reach - room))


def _at_the_end(end: _End, found: _Found) -> bool:
    """Whether no Ritz value lies beyond the threshold."""
    return bool(end.sign * found.values[0] > end.sign * _threshold(end, found))


def _excludes(end: _End, found: _Found, level: float) -> bool:
    return bool(krylov.missed_probability(found.run, _threshold(end, found))[0] <= level)


def _hides(end: _End, found: _Found, level: float) -> bool | None:
    """Whether an eigenvalue beyond the threshold is outside the run; None where undecided."""
    if _at_the_end(end, found) and _excludes(end, found, level):
        return False
    return _any_beyond(end, found, _threshold(end, found), level)


def _any_beyond(end: _End, found: _Found, t: float, level: float = _MISSED) -> bool | None:
    """Whether S(t) has an eigenvalue beyond t; None where that takes too many steps."""
    run = found.run
    start = krylov.random_rows(end.size, len(run.diagonals[0]), 1, apart=run.basis)
    fit = max(len(run.basis), end.rows - len(run.basis))
    rows = min(end.size - len(run.basis), fit, 2 * run.products)

    def verdict(second: krylov.Run) -> bool | None:
        outermost = float((end.sign * np.linalg.eigvalsh(second.projection)).min())
        if outermost < end.sign * t:
            return True
        return False if krylov.missed_probability(second, t)[0] <= level else None

    second = krylov.lanczos(
        _beyond(end, found, t),
        start,
        max_steps=max(2, rows // len(start)),
        noise=end.noise * found.scale,
        enough=lambda second: end.stop() or verdict(second) is not None,
        check_every=_LOOK,
        apart=run.basis,
    )
    return verdict(second)


def _beyond(end: _End, found: _Found, t: float) -> krylov.Apply:
    """S(t), up to rows of V."""
    run = found.run
    pushed = run.remainder.T @ run.following  # R^T Q
    last = found.vectors[-run.block :]
    inverse = (last / (found.values - t)) @ last.T  # of T - t, its last block

    def apply(rows: np.ndarray) -> np.ndarray:
        return end.apply(rows) - (rows @ pushed.T) @ inverse @ pushed

    return apply


def _answer(end: _End, found: _Found, decided: bool) -> Extremes:
    """The k values with their vectors, and what is known of each."""
    run = found.run
    unseen = min(end.k, end.size - len(found.values)) if run.complete else 0
    values = np.append(found.values, np.zeros(unseen))  # of the null space outside the run
    wanted = np.argsort(end.sign * values, kind="stable")[: end.k]
    descending = wanted[np.argsort(-values[wanted])]
    inside = descending < len(found.values)
    vectors, images, lengths = _pairs(end, found, descending[inside])
    residuals = np.full(len(descending), run.null_error + run.dropped)
    residuals[inside] = lengths
    count, errors = _counted(end, found, end.sign * values[descending], residuals, decided)
    return Extremes(
        values[descending],
        residuals,
        found.scale,
        vectors,
        images,
        bool(residuals[inside].max(initial=0.0) <= max(end.rtol, 4 * end.noise) * found.scale),
        errors=errors,
        count=count,
    )


def _pairs(
    end: _End, found: _Found, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz vectors V^T w as rows, A V^T w = theta V^T w + Q^T R w, and residuals of A itself.

    The images come from products of their own where what was dropped matters for the residuals.
    """
    run, coefficients, values = found.run, found.vectors[:, chosen].T, found.values[chosen]
    vectors = coefficients @ run.basis
    if run.dropped > _MATTERS * end.rtol * found.scale:
        images = _rowwise(end.apply, vectors) if len(vectors) else vectors
        return vectors, images, np.linalg.norm(images - values[:, None] * vectors, axis=1)
    onward = coefficients[:, -run.block :] @ run.remainder.T @ run.following
    return vectors, values[:, None] * vectors + onward, found.residuals[chosen] + run.dropped


def _counted(
    end: _End, found: _Found, signed: np.ndarray, residuals: np.ndarray, decided: bool
) -> tuple[Error, np.ndarray]:
    """What is known of eigenvalues outside the run, and of the place of each value among all."""
    run = found.run
    if run.complete:
        everywhere = np.full(len(signed), run.dropped + run.null_error)
        reason = "a null space found with random vectors"
        chance = run.null_chance
        return Error(
            float(everywhere[0]), PROBABLE if chance else PROVED, chance, reason
        ), everywhere
    if not decided:
        return _UNCOUNTED, np.full(len(signed), np.inf)
    edge = end.sign * _threshold(end, found) - run.dropped
    errors = np.maximum(position_errors(signed, residuals, edge), run.dropped)
    room = max(float(signed.max()) - edge, run.dropped)
    return Error(room, PROBABLE, _MISSED, "eigenvalues that a random start hides"), errors
