"""Eigenvalues at one end of a spectrum with a certificate: Ritz values, and shifts beside them.

A Lanczos run on C from a random start decides whether C is positive definite. With R R^T near
(A - s I)^{-1}, C has its spectrum in a short interval around 1, so that few steps are enough. For
several eigenvalues C at the innermost shift is positive definite on the complement of the vectors
that are deflated. At the other shifts, further out, it is larger there, so that one run certifies
them all. Rounding that may be large in its products leaves the bound open.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gnjax.spectra.krylov.lanczos import Run, lanczos, missed_probability, random_rows
from gnjax.spectra.krylov.lanczos import ritz as ritz_values
from gnjax.spectra.krylov.orthogonal import CERTIFYING
from gnjax.spectra.preconditioned_ends.locate import Deflation, Ritz, Stopped, deflation, locate
from gnjax.spectra.preconditioned_ends.one_end import End, Pencil, beside

_CERTIFY_STEPS = 200
_WIDENINGS = (1.0, 8.0, 64.0)
_TRIES = 2  # attempts with each widening


@dataclass(frozen=True)
class Enclosed:
    """Eigenvalues at one end of a spectrum, the outermost first.

    Each Ritz value of A bounds its eigenvalue from inside the spectrum, and each of ``bounds`` from
    outside. The bounds are wrong with a probability of at most ``missed``. ``products`` vectors
    were multiplied by A.
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
    """The ``count`` outermost eigenvalues of A at one end: Ritz values, and bounds beside them.

    A bound s lies a fraction of rtol beyond its Ritz value. It holds if sign (A - s I) is positive
    definite, sign being 1 at the smallest eigenvalues and -1 at the largest. This is tested on
    C = R^T sign (A - s I) R, as R with R R^T near |A - s I|^-1 gives C eigenvalues near 1. The
    vectors near the end are deflated, and a Lanczos run with C from a random start shows that the
    eigenvalues of C on their complement exceed a floor. The floor is how much deflation and
    rounding together may lower them. All attempts together are wrong with a probability of at most
    ``missed``.

    An attempt fails where the floor is too high for C. The next one then deflates vectors with a
    lower floor, or begins from what the run has found further out, or has wider bounds. When it is
    ``stopped``, or where no attempt succeeds, the bounds are 0 for the smallest eigenvalues and
    infinite for the largest.
    """
    share, failure = missed / (_TRIES * len(_WIDENINGS)), 0.0
    located = locate(end, rtol, stopped, count=count)
    if located is None:
        return _unbounded(end, np.zeros(count), 0)
    best, products = located.ritz, located.products
    highest_floor = np.inf  # the most that deflation may give; lower after a failure
    seeds = iter(range(seed, seed + _TRIES * len(_WIDENINGS)))  # a start knows of no run before it
    for widening in _WIDENINGS:
        for _ in range(_TRIES):
            shifts = [beside(end, value, rtol * widening) for value in best.values[:count]]
            # At the innermost shift C is smallest, so that one run certifies all shifts.
            pencil = located.pencil.at(shifts[-1])
            deflated_space = deflation(end, pencil, best, shifts, highest_floor)
            if deflated_space is None:
                break
            deflated_products = DeflatedProducts(pencil, deflated_space)
            products += deflated_products.products
            start = random_rows(
                end.size, end.block, next(seeds), deflated_space.rows, stream=CERTIFYING
            )
            run = lanczos(
                deflated_products,
                start,
                max_steps=_CERTIFY_STEPS,
                noise=pencil.noise,
                stop_when=partial(_decided, test=deflated_products, missed=share, stopped=stopped),
                check_every=1,
                orthogonal_to=deflated_space.rows,
            )
            products += run.products
            floor = deflated_products.floor(run.products)
            least = float(np.linalg.eigvalsh(run.projection)[0])
            exceeds = least > floor
            if exceeds:
                chance = 0.0 if run.complete else float(missed_probability(run, floor)[0])
                if chance <= share:
                    bounds = np.array(shifts)
                    return Enclosed(best.values[:count], bounds, failure + chance, products)
            if stopped():
                return _unbounded(end, best.values[:count], products)
            failure += share
            if 0 < least <= floor:  # C is positive: a smaller floor may do
                highest_floor = least / 2
            elif not exceeds:  # C is not positive: an eigenvalue lies beyond the innermost shift
                beyond = _beyond(end, pencil, run, best)
                again = locate(end, rtol, stopped, beyond, count=count)
                if again is None:
                    return _unbounded(end, np.zeros(count), products)
                best, products = again.ritz, products + again.products
            if exceeds:  # but the probability is too large: try a wider bound
                break
    return _unbounded(end, best.values[:count], products)


def _unbounded(end: End, values: np.ndarray, products: int) -> Enclosed:
    """Ritz values without a certificate: bounds that hold for any positive definite matrix."""
    return Enclosed(values, np.full(len(values), 0.0 if end.sign > 0 else np.inf), 0.0, products)


class DeflatedProducts:
    """Products with C on the complement of deflated vectors, and the floor that C must exceed.

    The floor includes what rounding may do to C. That depends on the longest R v and C v of the
    unit vectors v of the run, which are recorded here.
    """

    def __init__(self, pencil: Pencil, deflated: Deflation) -> None:
        """The deflated rows are multiplied at once where rounding may mix them into the run."""
        self._pencil, self._deflated = pencil, deflated
        self._longest, self._size = 0.0, 0.0  # the largest |R v| and |C v| so far
        self.products = len(deflated.rows) if pencil.needs_size else 0
        if self.products:
            self(deflated.rows)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """C v for every row v."""
        image, inner, _ = self._pencil.congruence(rows, self._deflated.ritz)
        self._longest = max(self._longest, float(np.linalg.norm(inner, axis=1).max()))
        self._size = max(self._size, float(np.linalg.norm(image, axis=1).max()))
        return image

    def rounding(self, count: int) -> float:
        """How far rounding may move an eigenvalue of a run of ``count`` products."""
        return self._pencil.moved(count, self._longest, self._size)

    def floor(self, count: int) -> float:
        """What the eigenvalues of a run of ``count`` products must exceed."""
        return self._deflated.floor + self.rounding(count)


def _decided(run: Run, *, test: DeflatedProducts, missed: float, stopped: Stopped) -> bool:
    """Whether the run with C may stop.

    It may once C exceeds the floor of ``test`` but for a probability of at most ``missed``, or once
    its smallest Ritz value has settled below the floor. Before that, it may be on its way to a
    negative value.
    """
    if stopped():
        return True
    rounding, floor = test.rounding(run.products), test.floor(run.products)
    if not np.linalg.eigvalsh(run.projection)[0] > floor:
        values, residuals, _ = ritz_values(run)
        settled = residuals[0] <= max(0.1 * abs(values[0]), rounding)
        return bool(settled)  # the smallest Ritz value never rises in later steps
    return bool(missed_probability(run, floor)[0] <= missed)


def _beyond(end: End, pencil: Pencil, run: Run, best: Ritz) -> np.ndarray:
    """Orthonormal rows (k, n) from which to search again for the end of the spectrum of A.

    A Ritz vector v of C with a negative value gives x = R v with x^T sign (A - s I) x < 0, so that
    an eigenvalue of A lies beyond s. The search before may have been in a space that A and R map
    into itself, and the rows R v lead out of it.
    """
    values, _, vectors = ritz_values(run)  # ascending: the most negative value first
    count = min(max(int((values < 0).sum()), 1), end.block)  # 1 if the smallest value is just 0
    rows = pencil.inner(vectors[:, :count].T @ run.basis)  # ``inner`` applies R to every row
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.linalg.qr(np.concatenate([rows, best.rows]).T)[0].T
