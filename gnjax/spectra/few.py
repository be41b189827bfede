"""The k largest or smallest eigenvalues by Lanczos, each as often as it is repeated.

From rows V (j, n) a run knows T = V A V^T and R with A V^T = V^T T + Q^T R, Q the rows that would
follow. One vector leads to one eigenvector of a repeated eigenvalue; the others are orthogonal to
V. By Sylvester's law A has as many eigenvalues above t as T has, and

    S(t) = A - Q^T R (T - t)^{-1} R^T Q    on the complement of V

together. T's are known. Whether S has any a second run decides, from a random start in the
complement, with the chance of :mod:`gnjax.spectra.lanczos` that it misses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnjax.spectra import lanczos as krylov

_MISSED = 1e-3
_LOOK = 6  # steps without a look at the residuals, at most


@dataclass(frozen=True)
class Extremes:
    """Ritz values from the largest down; an eigenvalue lies within the residual of each."""

    values: np.ndarray
    residuals: np.ndarray
    scale: float  # of the operator
    vectors: np.ndarray  # unit rows; fewer than values where these are a null space's
    images: np.ndarray  # A on each of them, as the run knows it


@dataclass(frozen=True)
class _End:
    """Where eigenvalues are wanted: the k least values of sign * A."""

    apply: krylov.Apply
    size: int
    k: int
    sign: float
    rtol: float  # of the scale, for the residuals of those wanted
    noise: float  # of the scale, what a product rounds
    most: int  # columns that a basis may have


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
    apply: krylov.Apply, size: int, k: int, *, sign: float, rtol: float, noise: float, most: int
) -> Extremes:
    """A run from one vector, and from twice as many where one of the k may be hidden from it.

    A run from k vectors sees as many copies of an eigenvalue as can be asked for.
    """
    end, block = _End(apply, size, k, sign, rtol, noise, most), 1
    found = _run(end, block)
    while block < k and not found.run.complete and _hides(end, found):
        block = min(2 * block, k)
        found = _run(end, block)
    values, residuals = found.values, found.residuals
    if found.run.complete:  # what is outside the run is the null space
        unseen = np.zeros(min(k, size - len(values)))
        values, residuals = np.append(values, unseen), np.append(residuals, unseen)
    wanted = np.argsort(sign * values, kind="stable")[:k]
    descending = wanted[np.argsort(-values[wanted])]
    vectors, images = _pairs(found, descending[descending < len(found.values)])
    return Extremes(values[descending], residuals[descending], found.scale, vectors, images)


def _pairs(found: _Found, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz vectors V^T w as rows, and A V^T w = theta V^T w + Q^T R w."""
    run, coefficients = found.run, found.vectors[:, chosen].T
    vectors = coefficients @ run.basis
    onward = coefficients[:, -run.block :] @ run.remainder.T @ run.following
    return vectors, found.values[chosen, None] * vectors + onward


def _run(end: _End, block: int) -> _Found:
    """Until the residuals of the k outermost Ritz values are small."""
    run = krylov.lanczos(
        end.apply,
        krylov.random_rows(end.size, block, 0),
        max_steps=max(2, end.most // block),
        noise=0.0,
        relative_noise=end.noise,
        enough=_converged(end),
        check_every=1,
    )
    return _ritz(run, end.sign)


def _converged(end: _End) -> Callable[[krylov.Run], bool]:
    """Whether the residuals are small, looked at again half-way to where they would be.

    That is by their decay since the last look, at first since they were as long as the operator.
    """
    due, before = end.k, (0, -float(np.log(end.rtol)))

    def enough(run: krylov.Run) -> bool:
        nonlocal due, before
        steps = len(run.basis)
        if steps < due:
            return False
        found = _ritz(run, end.sign)
        worst, target = found.residuals[: end.k].max(), end.rtol * found.scale
        if worst <= target:
            return True
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


def _hides(end: _End, found: _Found) -> bool:
    """Whether an eigenvalue beyond the k-th value is, or may be, outside the run.

    Copies of the k-th itself change nothing. Where the second run stays undecided, a run from
    several vectors is taken at its word unless it holds one value as often as there are vectors.
    """
    errors = found.residuals[: end.k] + end.noise * found.scale
    inner, outer = (
        end.sign * found.values[: end.k] - errors,
        end.sign * found.values[: end.k] + errors,
    )
    apart = np.flatnonzero(outer < inner[-1])
    if not len(apart):
        return False
    threshold = float(end.sign * outer[apart[-1]])
    counted = _any_beyond(end, found, threshold)
    if counted is None:
        block = found.run.block
        return block < 2 or _copies(found.values[: end.k], errors) >= block
    return counted


def _copies(values: np.ndarray, errors: np.ndarray) -> int:
    """How many of the values, at most, may be one and the same."""
    apart = np.abs(np.subtract.outer(values, values)) > np.add.outer(errors, errors)
    return int((~apart).sum(axis=1).max())


def _any_beyond(end: _End, found: _Found, t: float) -> bool | None:
    """Whether S(t) has an eigenvalue beyond t; None where that takes more than the run itself."""
    run = found.run
    start = krylov.random_rows(end.size, run.block, 1, apart=run.basis)

    def verdict(second: krylov.Run) -> bool | None:
        outermost = float((end.sign * np.linalg.eigvalsh(second.projection)).min())
        if outermost < end.sign * t:
            return True
        exhausted = not second.remainder.any()
        chance = 0.0 if exhausted else krylov.missed_probability(second, t)[0]
        return False if chance <= _MISSED else None

    second = krylov.lanczos(
        _beyond(end, found, t),
        start,
        max_steps=max(2, min(len(run.basis), end.size - len(run.basis)) // len(start)),
        noise=end.noise * found.scale,
        enough=lambda second: verdict(second) is not None,
        check_every=2,
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
