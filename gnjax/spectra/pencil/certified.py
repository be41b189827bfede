"""Eigenvalues at one end of a spectrum with a certificate: Ritz values, and shifts beside them.

A Lanczos run on C from a random start decides whether C is positive definite, to the probability of
:func:`gnjax.spectra.krylov.missed.missed_probability`. With R R^T near (A - s I)^{-1}, C has its
spectrum in a short interval around 1, so that few steps are enough. For several eigenvalues C at
the innermost shift is positive definite on the complement of the vectors that are deflated. At the
other shifts, further out, it is larger there. So one run certifies them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gnjax.spectra.krylov.lanczos import Run, lanczos, missed_probability, random_rows
from gnjax.spectra.krylov.lanczos import ritz as ritz_values
from gnjax.spectra.pencil.base import End, Pencil, beside
from gnjax.spectra.pencil.davidson import Ritz
from gnjax.spectra.pencil.locate import Stopped, deflation, locate

_CERTIFY_STEPS = 200
_WIDENINGS = (1.0, 8.0, 64.0)
_TRIES = 2  # attempts with each widening


@dataclass(frozen=True)
class Enclosed:
    """Eigenvalues at one end of a spectrum, the outermost first.

    Each Ritz value bounds its eigenvalue from inside, and each of ``bounds`` from outside.
    """

    values: np.ndarray
    bounds: np.ndarray
    missed: float
    products: int

    @property
    def ritz(self) -> float:
        """The Ritz value of the outermost eigenvalue."""
        return float(self.values[0])

    @property
    def bound(self) -> float:
        """The bound on the outermost eigenvalue."""
        return float(self.bounds[0])


def certified(
    end: End,
    rtol: float,
    missed: float,
    seed: int = 0,
    stopped: Stopped = lambda: False,
    count: int = 1,
) -> Enclosed:
    """Locate the outermost eigenvalues, then certify that none lies beyond bounds near them.

    Where that takes too many steps, wider bounds are tried. Each attempt may be wrong with a
    probability of at most ``share``, and these probabilities add up. When it is ``stopped``, or
    where no attempt succeeds, the bounds are 0 or infinite.
    """
    share, failure = missed / (_TRIES * len(_WIDENINGS)), 0.0
    located = locate(end, rtol, stopped, count=count)
    if located is None:
        return _unbounded(end, np.zeros(count), 0)
    best, products = located.ritz, located.products
    below = np.inf  # the largest floor that C is expected to exceed
    seeds = iter(range(seed, seed + _TRIES * len(_WIDENINGS)))  # a start knows of no run before it
    for widening in _WIDENINGS:
        for _ in range(_TRIES):
            shifts = [beside(end, value, rtol * widening) for value in best.values[:count]]
            pencil = located.pencil.at(shifts[-1])
            deflated_space = deflation(end, pencil, best, shifts, below)
            if deflated_space is None:
                break
            start = random_rows(end.size, end.block, next(seeds), orthogonal_to=deflated_space.rows)
            enough = partial(
                _decided, pencil=pencil, floor=deflated_space.floor, missed=share, stopped=stopped
            )
            run = lanczos(
                partial(_image, pencil),
                start,
                max_steps=_CERTIFY_STEPS,
                noise=pencil.noise,
                enough=enough,
                check_every=1,
                orthogonal_to=deflated_space.rows,
            )
            products += run.products
            floor = deflated_space.floor + pencil.moved(run.products)
            exceeds = _exceeds(run, floor)
            if exceeds:
                chance = 0.0 if run.complete else float(missed_probability(run, floor)[0])
                if chance <= share:
                    bounds = np.array(shifts)
                    return Enclosed(best.values[:count], bounds, failure + chance, products)
            if stopped():
                return _unbounded(end, best.values[:count], products)
            failure += share
            least = float(np.linalg.eigvalsh(run.projection)[0])
            if 0 < least <= floor:
                below = least / 2
            elif not exceeds:
                beyond = _beyond(end, pencil, run, best)
                again = locate(end, rtol, stopped, beyond, count=count)
                if again is None:
                    return _unbounded(end, np.zeros(count), products)
                best, products = again.ritz, products + again.products
            if exceeds:  # but the probability is too large: try a wider bound
                break
    return _unbounded(end, best.values[:count], products)


def _unbounded(end: End, values: np.ndarray, products: int) -> Enclosed:
    return Enclosed(values, np.full(len(values), 0.0 if end.sign > 0 else np.inf), 0.0, products)


def _image(pencil: Pencil, rows: np.ndarray) -> np.ndarray:
    return pencil.congruence(rows)[0]


def _decided(run: Run, *, pencil: Pencil, floor: float, missed: float, stopped: Stopped) -> bool:
    """Whether it is decided that C exceeds the floor, but with probability ``missed``, or does not.

    It cannot be decided from products whose rounding is larger than the smallest Ritz value.
    """
    if stopped():
        return True
    rounding = pencil.moved(run.products)
    floor += rounding
    if not _exceeds(run, floor):
        values, residuals, _ = ritz_values(run)
        if abs(values[0]) <= rounding:
            return True
        settled = residuals[0] <= 0.1 * abs(values[0])
        return bool(settled)  # the smallest Ritz value never rises in later steps
    return bool(missed_probability(run, floor)[0] <= missed)


def _exceeds(run: Run, floor: float) -> bool:
    return bool(np.linalg.eigvalsh(run.projection)[0] > floor)


def _beyond(end: End, pencil: Pencil, run: Run, best: Ritz) -> np.ndarray:
    """Rows that span what a run shows beyond the shift, and the best vectors so far.

    A search may have begun in an invariant space, which the end of the spectrum is not in.
    """
    values, _, vectors = ritz_values(run)
    count = min(max(int((values < 0).sum()), 1), end.block)
    rows = pencil.inner(vectors[:, :count].T @ run.basis)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.linalg.qr(np.concatenate([rows, best.rows]).T)[0].T
