"""Eigenvalues at one end of a spectrum with a certificate: Ritz values, and shifts beside them.

A Lanczos run on C from a random start decides whether C is positive definite, to the probability of
:func:`gnjax.spectra.krylov.missed.missed_probability`. With R R^T near (A - s I)^{-1}, C has its
spectrum in a short interval around 1, so that few steps are enough. For several eigenvalues C at
the innermost shift is positive definite on the complement of the vectors that are deflated. At the
other shifts, further out, it is larger there. So one run certifies them all.

What the run has to exceed includes what rounding may have done to its products, which is little for
an R near (A - s I)^{-1/2} and a lot for others. Such a run decides nothing, and the bound is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gnjax.spectra.krylov.lanczos import Run, lanczos, missed_probability, random_rows
from gnjax.spectra.krylov.lanczos import ritz as ritz_values
from gnjax.spectra.pencil.locate import Deflation, Ritz, Stopped, deflation, locate
from gnjax.spectra.pencil.one_end import End, Pencil, beside

_CERTIFY_STEPS = 200
_WIDENINGS = (1.0, 8.0, 64.0)
_TRIES = 2  # attempts with each widening


@dataclass(frozen=True)
class Enclosed:
    """Eigenvalues at one end of a spectrum, the outermost first.

    Each Ritz value of A bounds its eigenvalue from inside, and each of ``bounds`` from outside.
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
            beside_them = DeflatedProducts(pencil, deflated_space)
            products += beside_them.products
            start = random_rows(end.size, end.block, next(seeds), orthogonal_to=deflated_space.rows)
            run = lanczos(
                beside_them,
                start,
                max_steps=_CERTIFY_STEPS,
                noise=pencil.noise,
                enough=partial(_decided, test=beside_them, missed=share, stopped=stopped),
                check_every=1,
                orthogonal_to=deflated_space.rows,
            )
            products += run.products
            floor = beside_them.floor(run.products)
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


class DeflatedProducts:
    """Products with C beside deflated vectors, and what its eigenvalues there must exceed.

    How far rounding moves C depends on the longest w = R v and C v of the run. Where it may be far,
    C v for the rows R^T X is among them: a rounded v has a part there.
    """

    def __init__(self, pencil: Pencil, deflated: Deflation) -> None:
        self._pencil, self._deflated = pencil, deflated
        self._longest, self._size = 0.0, 0.0
        self.products = len(deflated.rows) if pencil.needs_size else 0
        if self.products:
            self(deflated.rows)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        image, inner, _ = self._pencil.congruence(rows, self._deflated.ritz)
        self._longest = max(self._longest, float(np.linalg.norm(inner, axis=1).max()))
        self._size = max(self._size, float(np.linalg.norm(image, axis=1).max()))
        return image

    def rounding(self, count: int) -> float:
        """How far rounding may move an eigenvalue of a run of so many products."""
        return self._pencil.moved(count, self._longest, self._size)

    def floor(self, count: int) -> float:
        """What the eigenvalues of such a run must exceed."""
        return self._deflated.floor + self.rounding(count)


def _decided(run: Run, *, test: DeflatedProducts, missed: float, stopped: Stopped) -> bool:
    """Whether the run may stop.

    It may once the smallest eigenvalue of C is above the floor, with a probability of at most
    ``missed`` that this is wrong. It may also stop once the smallest Ritz value is below the floor
    and has settled, to a tenth of itself or to the rounding of the products. Before it has settled,
    it may be on its way to a negative value.
    """
    if stopped():
        return True
    rounding, floor = test.rounding(run.products), test.floor(run.products)
    if not _exceeds(run, floor):
        values, residuals, _ = ritz_values(run)
        settled = residuals[0] <= max(0.1 * abs(values[0]), rounding)
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
