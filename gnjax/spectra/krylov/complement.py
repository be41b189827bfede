"""Which eigenvalues a symmetric matrix has besides those of a subspace.

With orthonormal rows Q (m, n) that span the subspace, in a basis that begins with Q,

    A = [[T, B^T], [B, C]],   T = Q A Q^T,   beta = ||B||_2.

By Weyl each eigenvalue of A is within beta of the eigenvalue of T or C with the same number: m of
them are near those of T, and the other n - m near those of C. A Lanczos run with C from a random
start bounds the eigenvalues of C on both sides. Outside these bounds the run has missed nothing,
with the probability that :mod:`gnjax.spectra.krylov.missed` computes. Its Ritz values
rho_1 >= rho_2 >= .. are lower bounds: with their space added to Q, at least i + #{j: t_j >= rho_i}
eigenvalues of A are rho_i - beta or above (Cauchy and Weyl).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.certificate import PROBABLE, Error
from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.hidden import MISSED

_BLOCK = 4
_LOOK = 4  # steps from one check to the next
_NEAR = 0.02  # of the range of the Ritz values: how close a bound comes that nobody waits for


@dataclass(frozen=True)
class Complement:
    """The eigenvalues of the compression C, as far as a run from a random start knows them.

    Attributes:
      low, high: all eigenvalues of C are between them, unless ``chance`` says otherwise.
      ritz: the Ritz values of the run in ascending order; empty where the subspace is the whole.
      chance: the probability that an eigenvalue was missed.
      dropped: how far the Ritz values can be from those of C, by what the run left out as rounding.
      products: how many rows the run multiplied.
    """

    low: float
    high: float
    ritz: np.ndarray
    chance: Error
    dropped: Error
    products: int


_WHOLE = Error(0.0, reason="a basis of the whole space")
NOTHING = Complement(np.inf, -np.inf, np.empty(0), _WHOLE, Error(0.0), 0)


def complement(
    apply: HostProduct,
    basis: np.ndarray,
    *,
    below: float,
    above: float,
    noise: float,
    rows: int,
    seed: int,
    stop: Callable[[], bool],
) -> Complement:
    """Bounds on the eigenvalues of C, which is A compressed to the complement of a subspace.

    A Lanczos run with C from a random start goes on until it has missed no eigenvalue of C below
    ``below`` and none above ``above``, but for a probability of ``MISSED`` / 2 each. Where a Ritz
    value lies beyond one of these points, a point a fiftieth of the Ritz values' range outside of
    them takes its place.

    Args:
      apply: products of A with rows (b, n).
      basis: the orthonormal rows (m, n) of the subspace.
      below, above: the points beyond which the caller asks whether C has eigenvalues.
      noise: how large a zero may become by rounding in a product.
      rows: the largest number of rows of the run's basis.
      seed: of the random start.
      stop: returns whether to end with the bounds so far.
    """
    size = basis.shape[1]
    if len(basis) == size:
        return NOTHING
    start = lanczos.random_rows(size, _BLOCK, seed, orthogonal_to=basis)

    def nothing_missed(run: lanczos.Run) -> bool:
        """Whether the run has missed no eigenvalue beyond both points, or is to stop."""
        if stop():
            return True
        ritz = np.linalg.eigvalsh(run.projection)
        distance = _NEAR * float(ritz[-1] - ritz[0])
        low = below if below < ritz[0] else ritz[0] - distance
        high = above if above > ritz[-1] else ritz[-1] + distance
        missed = lanczos.missed_probability(run, np.array([low, high]))
        return bool((missed <= MISSED / 2).all())

    run = lanczos.lanczos(
        apply,
        start,
        max_steps=max(2, rows // len(start)),
        noise=noise,
        stop_when=nothing_missed,
        check_every=_LOOK,
        seed=seed,
        orthogonal_to=basis,
    )
    ritz = np.linalg.eigvalsh(run.projection)
    low, high, chance = (
        _of_complete(run, ritz) if run.complete else _likely(run, ritz, below, above)
    )
    dropped = Error(run.dropped, reason="entries of T that Lanczos set to zero as rounding")
    return Complement(low, high, ritz, chance, dropped, run.products)


def _of_complete(run: lanczos.Run, ritz: np.ndarray) -> tuple[float, float, Error]:
    """Bounds on all eigenvalues of C from a complete run, and the probability that they fail."""
    lost, values, chance = 0.0, ritz, 0.0
    if run.size > len(ritz):  # C has eigenvalues within null_error of zero beside the Ritz values
        lost, values, chance = run.null_error, np.append(ritz, 0.0), run.null_chance
    found_at_random = Error(0.0, PROBABLE, chance, "a null space found with random vectors")
    evidence = found_at_random if chance else _WHOLE
    return float(values.min() - lost), float(values.max() + lost), evidence


def _likely(
    run: lanczos.Run, ritz: np.ndarray, below: float, above: float
) -> tuple[float, float, Error]:
    """Bounds on all eigenvalues of C, and the probability ``MISSED`` that one of them fails.

    A bound lies at most the range of ``ritz`` (ascending) beyond the outermost, and is infinite
    where the run is too short. ``below`` and ``above`` are taken where they hold and are closer.
    """
    level, ritz_range = MISSED / 2, float(ritz[-1] - ritz[0])
    bounds = []
    for edge, target, reach in ((ritz[0], below, -ritz_range), (ritz[-1], above, ritz_range)):
        bound = lanczos.none_missed_beyond(run, float(edge), reach, level)
        is_outside = (target - edge) * reach > 0
        if is_outside and lanczos.missed_probability(run, target)[0] <= level:
            bound = max(bound, target) if reach < 0 else min(bound, target)
        bounds.append(bound)
    reason = "a random start may have missed an eigenvalue besides those of the vectors"
    return bounds[0], bounds[1], Error(0.0, PROBABLE, MISSED, reason)
