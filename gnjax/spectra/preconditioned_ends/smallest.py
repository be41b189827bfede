"""A few of the smallest eigenvalues of A = J J^T, without forming A."""

from __future__ import annotations

import numpy as np

from gnjax.numerics.certificate import certificate
from gnjax.numerics.limits import Limits
from gnjax.operators.facts import factorisation_of, symmetry_of
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.hidden import MISSED
from gnjax.spectra.krylov.missed import chance
from gnjax.spectra.preconditioned_ends.certified import certified
from gnjax.spectra.preconditioned_ends.cholesky_ends import largest_end, smallest_end
from gnjax.spectra.preconditioned_ends.plan import TOGETHER, planned
from gnjax.spectra.preconditioned_ends.preconditioned_matrix import by_factor
from gnjax.spectra.preconditioned_ends.triangle import least_of
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import Watch

_LOOSEST, _FINEST = 1e-3, 1e-9  # tolerances relative to an eigenvalue
_SPARE, _FEWEST = 8, 2  # vectors of a block beside those that are asked for, and at least


def smallest_of_factor(
    op: Operator, k: int, rtol: float, seed: int, limits: Limits, watch: Watch
) -> Spectrum | None:
    """The k smallest eigenvalues of A = J J^T, or None where this method has no answer.

    It has one for a matrix of full rank with a factor J whose rows fit in memory. J J^T is not
    formed in full precision: a triangle L with L L^T near it is the preconditioner of a search for
    Ritz values, and a Lanczos run certifies them (:func:`certified`). The errors are relative to
    each eigenvalue, and at most ``rtol`` times the norm, as far as J is known.
    """
    factor, size = factorisation_of(op), op.shape[0]
    if factor is None or factor.shape[1] < size or size > limits.matrix_rows:
        return None
    plan, block = planned(factor, limits), min(max(TOGETHER, k + _SPARE), size // 2)
    # The search needs a block of a few vectors more than the k that are asked for.
    if plan.refused or block < k + _FEWEST:
        return None
    preconditioned = by_factor(factor, plan, _LOOSEST, seed, watch)
    if preconditioned is None:
        return None
    # about ||A||, from the start of a search at the other end
    norm = largest_end(preconditioned.matrix, min(TOGETHER, block)).norm
    # rtol is relative to the norm, and the method's tolerance to the smallest eigenvalue.
    relative = float(np.clip(rtol * norm / least_of(preconditioned.triangle), _FINEST, _LOOSEST))
    end = smallest_end(preconditioned.matrix, preconditioned.triangle, block, norm)
    answer = certified(end, relative, MISSED, stopped=watch.is_stopped, count=k)
    pairs = zip(answer.bounds.tolist(), answer.values.tolist(), strict=True)
    bounds = np.array(
        [preconditioned.widened(pair, norm) for pair in pairs]
    )  # (k, 2), for the exact J
    converged = bool((bounds[:, 0] > 0).all())  # all eigenvalues are certified to be positive
    if not converged and not watch.stopped:
        return None
    errors = np.abs(bounds - answer.values[:, None]).max(axis=1)
    parts = preconditioned.error(norm), chance(answer.missed), symmetry_of(op)
    return Spectrum(
        answer.values[::-1],
        errors[::-1],
        "sketched",
        certificate(*parts),
        converged,
    )
