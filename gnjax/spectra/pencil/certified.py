"""One end of a spectrum with a certificate: a Ritz value, and a shift that no eigenvalue passes.

A Lanczos run on C from a random start decides whether C is positive definite, to the probability of
:func:`gnjax.spectra.krylov.missed.missed_probability`. With R R^T near (A - s I)^{-1}, C has its
spectrum in a short interval around 1, so that few steps are enough.
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
    """One end of a spectrum: the Ritz value bounds it from inside, ``bound`` from outside."""

    ritz: float
    bound: float
    missed: float
    products: int


def certified(
    end: End, rtol: float, missed: float, seed: int = 0, stopped: Stopped = lambda: False
) -> Enclosed:
    """Locate the end, then certify that no eigenvalue lies beyond a bound near it.

    Where that takes too many steps, a wider bound is tried. Each attempt may be wrong with a
    probability of at most ``share``, and these probabilities add up. When it is ``stopped``, or
    where no attempt succeeds, the bound is 0 or infinite.
    """
    share, spent = missed / (_TRIES * len(_WIDENINGS)), 0.0
    located = locate(end, rtol, stopped)
    if located is None:
        return _unbounded(end, 0.0, 0)
    best, products = located.ritz, located.products
    below = np.inf  # the largest floor that C is expected to exceed
    seeds = iter(range(seed, seed + _TRIES * len(_WIDENINGS)))  # a start knows of no run before it
    for widening in _WIDENINGS:
        for _ in range(_TRIES):
            pencil = located.pencil.at(beside(end, best.value, rtol * widening))
            apart = deflation(end, pencil, best, below)
            start = random_rows(end.size, end.block, next(seeds), apart=apart.rows)
            enough = partial(
                _decided, pencil=pencil, floor=apart.floor, missed=share, stopped=stopped
            )
            run = lanczos(
                partial(_image, pencil),
                start,
                max_steps=_CERTIFY_STEPS,
                noise=pencil.noise,
                enough=enough,
                check_every=1,
                apart=apart.rows,
            )
            products += run.products
            floor = apart.floor + pencil.moved(run.products)
            exceeds = _exceeds(run, floor)
            if exceeds:
                chance = 0.0 if run.complete else float(missed_probability(run, floor)[0])
                if chance <= share:
                    return Enclosed(best.value, pencil.shift, spent + chance, products)
            if stopped():
                return _unbounded(end, best.value, products)
            spent += share
            least = float(np.linalg.eigvalsh(run.projection)[0])
            if 0 < least <= floor:
                below = least / 2
            elif not exceeds:
                again = locate(end, rtol, stopped, _beyond(end, pencil, run, best))
                if again is None:
                    return _unbounded(end, 0.0, products)
                best, products = again.ritz, products + again.products
            if exceeds:  # but the probability is too large: try a wider bound
                break
    return _unbounded(end, best.value, products)


def _unbounded(end: End, value: float, products: int) -> Enclosed:
    return Enclosed(value, 0.0 if end.sign > 0 else np.inf, 0.0, products)


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
        return bool(values[0] < 0 and residuals[0] <= 0.1 * abs(values[0]))
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
