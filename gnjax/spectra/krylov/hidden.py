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

from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.search import RitzPairs, Search

MISSED = 1e-3  # the probability that an eigenvalue is missed
_CHECK_EVERY = 6  # steps of the second run from one check to the next


def hides(search: Search, pairs: RitzPairs, level: float) -> bool | None:
    """Whether the run misses an eigenvalue beyond the threshold; None where undecided."""
    if is_outermost(search, pairs) and excludes(search, pairs, level):
        return False
    return any_beyond(search, pairs, threshold(search, pairs), level)


def threshold(search: Search, pairs: RitzPairs) -> float:
    """The t beyond which eigenvalues are counted.

    It lies further out than the k-th value and than all values that cannot be told from it.
    """
    errors = pairs.residuals[: search.k] + pairs.run.dropped
    inner = search.sign * pairs.values[: search.k] - errors
    outer = inner + 2 * errors
    room = max(errors[-1], search.rtol / 2 * pairs.scale, 4 * search.noise * pairs.scale)
    room = max(room, 2 * pairs.run.dropped, float(np.finfo(float).tiny))  # also for a zero matrix
    reach = inner[-1]
    for low, high in zip(inner[::-1], outer[::-1], strict=True):
        if high > reach - 2 * room:
            reach = min(reach, low)
    return float(search.sign * (reach - room))


def is_outermost(search: Search, pairs: RitzPairs) -> bool:
    """Whether no Ritz value lies beyond the threshold."""
    return bool(search.sign * pairs.values[0] > search.sign * threshold(search, pairs))


def excludes(search: Search, pairs: RitzPairs, level: float) -> bool:
    return bool(krylov.missed_probability(pairs.run, threshold(search, pairs))[0] <= level)


def any_beyond(search: Search, pairs: RitzPairs, t: float, level: float = MISSED) -> bool | None:
    """Whether S(t) has an eigenvalue beyond t; None where that takes too many steps."""
    run = pairs.run
    start = krylov.random_rows(
        search.size, len(run.diagonals[0]), search.start + 1, orthogonal_to=run.basis
    )
    fit = max(len(run.basis), search.rows - len(run.basis))
    rows = min(search.size - len(run.basis), fit, 2 * run.products)

    def verdict(second: krylov.Run) -> bool | None:
        outermost = float((search.sign * np.linalg.eigvalsh(second.projection)).min())
        if outermost < search.sign * t:
            return True
        return False if krylov.missed_probability(second, t)[0] <= level else None

    second = krylov.lanczos(
        _on_complement(search, pairs, t),
        start,
        max_steps=max(2, rows // len(start)),
        noise=search.noise * pairs.scale,
        enough=lambda second: search.stop() or verdict(second) is not None,
        check_every=_CHECK_EVERY,
        orthogonal_to=run.basis,
    )
    return verdict(second)


def _on_complement(search: Search, pairs: RitzPairs, t: float) -> HostProduct:
    """S(t), without the projection onto the complement of V."""
    run = pairs.run
    pushed = run.remainder.T @ run.following  # R^T Q
    last = pairs.vectors[-run.block :]
    inverse = (last / (pairs.values - t)) @ last.T  # of T - t, its last block

    def apply(rows: np.ndarray) -> np.ndarray:
        return search.apply(rows) - (rows @ pushed.T) @ inverse @ pushed

    return apply
