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
_CHECK_EVERY = 2  # steps of the second run from one check to the next


def hides(search: Search, pairs: RitzPairs, level: float) -> bool | None:
    """Whether the run misses an eigenvalue further out than its k-th; None where undecided.

    ``level`` is the probability with which either random start may be misleading, that of the run
    and that of a second one. So the answer False may be wrong with twice this probability.
    """
    if excludes(search, pairs, level):
        return False  # the random start of the run itself decides, without a second run
    return any_beyond(search, pairs, threshold(search, pairs), level)


def threshold(search: Search, pairs: RitzPairs) -> float:
    """The point t; the eigenvalues of A that lie further out than t are counted.

    t is further out than the k-th Ritz value and than all values that cannot be distinguished from
    it, because their intervals touch. An eigenvalue that is hidden among those does not matter,
    since the k-th eigenvalue stays in the same place.
    """
    errors = pairs.residuals[: search.k] + pairs.run.dropped
    # Signed values: the least is the outermost, whichever end of the spectrum is searched.
    lower_ends = search.sign * pairs.values[: search.k] - errors
    upper_ends = lower_ends + 2 * errors
    # T - t is inverted, so that t keeps a distance from the values that rounding cannot close.
    distance = max(errors[-1], search.rtol / 2 * pairs.scale, 4 * search.noise * pairs.scale)
    distance = max(distance, 2 * pairs.run.dropped, float(np.finfo(float).tiny))  # for A = 0
    group_end = lower_ends[-1]  # of the k-th value, and of those that touch its group
    for lower, upper in zip(lower_ends[::-1], upper_ends[::-1], strict=True):
        if upper > group_end - 2 * distance:
            group_end = min(group_end, lower)
    return float(search.sign * (group_end - distance))


def excludes(search: Search, pairs: RitzPairs, level: float) -> bool | None:
    """Whether the start excludes an eigenvalue beyond the threshold but for the chance ``level``.

    None where a Ritz value lies beyond it, so that the start decides nothing.
    """
    t = threshold(search, pairs)
    if not search.sign * pairs.values[0] > search.sign * t:
        return None
    return bool(krylov.missed_probability(pairs.run, t)[0] <= level)


def any_beyond(search: Search, pairs: RitzPairs, t: float, level: float = MISSED) -> bool | None:
    """Whether the run missed an eigenvalue beyond t; None where that takes too many steps.

    Beyond t means above it in a search for the largest eigenvalues (``search.sign`` is -1), and
    below it for the smallest (1). A second Lanczos run, from an independent random start in the
    complement of the first, looks for an eigenvalue of S(t) there. If it has a Ritz value beyond t,
    so has S(t) an eigenvalue. Otherwise the answer is False once the second start misses an
    eigenvalue with a probability of at most ``level``.
    """
    first_run = pairs.run
    start = krylov.random_rows(
        search.size,
        len(first_run.diagonals[0]),
        2 * search.seed + 1,  # the first run began with the random numbers 2 * seed
        orthogonal_to=first_run.basis,
    )
    # The second basis has at most as many rows as fit beside the first, as the complement has
    # dimensions, and as take twice the work of the first run.
    fitting_rows = max(len(first_run.basis), search.rows - len(first_run.basis))
    most_rows = min(search.size - len(first_run.basis), fitting_rows, 2 * first_run.products)

    def verdict(second_run: krylov.Run) -> bool | None:
        """Whether S(t) has an eigenvalue beyond t; None while undecided."""
        # Times search.sign the outermost value is the least, at either end of the spectrum.
        outermost = float((search.sign * np.linalg.eigvalsh(second_run.projection)).min())
        if outermost < search.sign * t:
            return True
        return False if krylov.missed_probability(second_run, t)[0] <= level else None

    second_run = krylov.lanczos(
        _on_complement(search, pairs, t),
        start,
        max_steps=max(2, most_rows // len(start)),
        noise=search.noise * pairs.scale,  # search.noise is relative to the norm of A
        stop_when=lambda second_run: search.stop() or verdict(second_run) is not None,
        check_every=_CHECK_EVERY,
        orthogonal_to=first_run.basis,
    )
    return verdict(second_run)


def _on_complement(search: Search, pairs: RitzPairs, t: float) -> HostProduct:
    """Products of rows with S(t), which the caller projects onto the complement of V."""
    run = pairs.run
    coupling_rows = run.remainder.T @ run.following  # R^T Q, without the zero rows of R^T
    last_entries = pairs.vectors[-run.block :]  # of the eigenvectors of T
    last_block_of_inverse = (last_entries / (pairs.values - t)) @ last_entries.T  # of (T - t)^{-1}

    def apply(rows: np.ndarray) -> np.ndarray:
        return search.apply(rows) - (rows @ coupling_rows.T) @ last_block_of_inverse @ coupling_rows

    return apply
