"""Whether eigenvalues further out than those of a run are hidden from it.

A run with the rows V (j, n) yields T = V A V^T and R with A V^T = V^T T + Q^T R, where Q are the
next rows. From one start vector it finds one eigenvector of a repeated eigenvalue. The other
eigenvectors of that eigenvalue are orthogonal to V. By Sylvester's law the number of eigenvalues of
A above t is that of T plus that of

    S(t) = A - Q^T R (T - t)^{-1} R^T Q    on the complement of V.

The eigenvalues of T are known. Whether S has any above t is decided by a second run, from a random
start in the complement; :mod:`gnjax.spectra.krylov.missed` gives the probability that it misses
one. Where t lies beyond all eigenvalues of T, the start of the first run decides.
"""

from __future__ import annotations

import numpy as np

from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.wanted import RitzPairs, Wanted

MISSED = 1e-3  # the probability that an eigenvalue is missed
_CHECK_EVERY = 6  # steps of the second run from one check to the next


def hides(wanted: Wanted, found: RitzPairs, level: float) -> bool | None:
    """Whether the run misses an eigenvalue beyond the threshold; None where undecided."""
    if is_outermost(wanted, found) and excludes(wanted, found, level):
        return False
    return any_beyond(wanted, found, threshold(wanted, found), level)


def threshold(wanted: Wanted, found: RitzPairs) -> float:
    """The t beyond which eigenvalues are counted.

    It lies further out than the k-th value and than all values that cannot be told from it.
    """
    errors = found.residuals[: wanted.k] + found.run.dropped
    inner = wanted.sign * found.values[: wanted.k] - errors
    outer = inner + 2 * errors
    room = max(errors[-1], wanted.rtol / 2 * found.scale, 4 * wanted.noise * found.scale)
    room = max(room, 2 * found.run.dropped, float(np.finfo(float).tiny))  # also for a zero matrix
    reach = inner[-1]
    for low, high in zip(inner[::-1], outer[::-1], strict=True):
        if high > reach - 2 * room:
            reach = min(reach, low)
    return float(wanted.sign * (reach - room))


def is_outermost(wanted: Wanted, found: RitzPairs) -> bool:
    """Whether no Ritz value lies beyond the threshold."""
    return bool(wanted.sign * found.values[0] > wanted.sign * threshold(wanted, found))


def excludes(wanted: Wanted, found: RitzPairs, level: float) -> bool:
    return bool(krylov.missed_probability(found.run, threshold(wanted, found))[0] <= level)


def any_beyond(wanted: Wanted, found: RitzPairs, t: float, level: float = MISSED) -> bool | None:
    """Whether S(t) has an eigenvalue beyond t; None where that takes too many steps."""
    run = found.run
    start = krylov.random_rows(wanted.size, len(run.diagonals[0]), 1, apart=run.basis)
    fit = max(len(run.basis), wanted.rows - len(run.basis))
    rows = min(wanted.size - len(run.basis), fit, 2 * run.products)

    def verdict(second: krylov.Run) -> bool | None:
        outermost = float((wanted.sign * np.linalg.eigvalsh(second.projection)).min())
        if outermost < wanted.sign * t:
            return True
        return False if krylov.missed_probability(second, t)[0] <= level else None

    second = krylov.lanczos(
        _on_complement(wanted, found, t),
        start,
        max_steps=max(2, rows // len(start)),
        noise=wanted.noise * found.scale,
        enough=lambda second: wanted.stop() or verdict(second) is not None,
        check_every=_CHECK_EVERY,
        apart=run.basis,
    )
    return verdict(second)


def _on_complement(wanted: Wanted, found: RitzPairs, t: float) -> krylov.Apply:
    """S(t), without the projection onto the complement of V."""
    run = found.run
    pushed = run.remainder.T @ run.following  # R^T Q
    last = found.vectors[-run.block :]
    inverse = (last / (found.values - t)) @ last.T  # of T - t, its last block

    def apply(rows: np.ndarray) -> np.ndarray:
        return wanted.apply(rows) - (rows @ pushed.T) @ inverse @ pushed

    return apply
