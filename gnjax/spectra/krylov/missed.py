"""The probability that a Lanczos run from a random start has missed an eigenvalue.

**What can be missed.** Let u be a unit eigenvector of A with eigenvalue t and x_i = V_i u. The
recurrence, t x_i = beta_{i-1} x_{i-1} + alpha_i x_i + beta_i^T x_{i+1}, gives x_i = G_i x_{i+1}
with G_i = S_i^{-1} beta_i^T and S_i = t - alpha_i - beta_{i-1} G_{i-1}, the pivots of t - T, which
are definite for t outside its spectrum. Hence x_1 = N_j x_j with N_j = G_1 .. G_{j-1}, and
|x_1|^2 + .. + |x_j|^2 = x_j^T Q_j x_j with Q_j = I + G_{j-1}^T Q_{j-1} G_{j-1}. The sum is at most
1 because the rows are orthonormal. Therefore

    |x_1|^2 <= || N_j Q_j^{-1} N_j^T || =: c(t),

the Christoffel function of the run. V_1 spans a uniformly random space, so |x_1|^2 has the
distribution Beta(b/2, (n - b)/2) whatever u is. If A has an eigenvalue at t, a start with this run
had the probability I_c(b/2, (n - b)/2). Outside the hull of the Ritz values c decreases, so the
same probability holds for everything beyond t. This is the bound of Kuczynski and Wozniakowski
(1992) a posteriori, with the computed coefficients in place of the worst case, in the spirit of van
Dorsselaer, Hochstenbach and van der Vorst (2000), for blocks. The bound is about A itself, because
nothing is dropped before the first breakdown.

**The null space.** Let Z be a block of b random orthonormal rows in the complement of the basis, of
dimension N, and C the compression of A to this complement. With u a unit eigenvector of C for the
eigenvalue mu, ||C Z^T|| >= |mu| |Z u|, and |Z u|^2 has the distribution Beta(b/2, (N - b)/2),
because Z is drawn after C is fixed. If ||C Z^T|| = h, then ||C||_2 > h / x^{1/2} has a probability
of at most I_x(b/2, (N - b)/2). This bound is all that is claimed by a run that ends because C Z^T
is no larger than the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnjax.numerics.certificate import PROBABLE, Error
from gnjax.numerics.rounding import LAPACK_ROUNDING

if TYPE_CHECKING:
    from gnjax.spectra.krylov.lanczos import Run


def chance(failure: float) -> Error:
    """The part of a certificate that states with what probability an eigenvalue was missed.

    If the probability is 0, because the basis spans the whole space, only rounding remains.
    """
    if failure == 0:
        return LAPACK_ROUNDING
    return Error(0.0, PROBABLE, failure, "a random start may have missed an eigenvalue")


def missed_probability(run: Run, t: np.ndarray | float) -> np.ndarray:
    """For every t, the probability that a random start misses an eigenvalue at t or beyond.

    Beyond means away from the Ritz values; for t among them the probability is 1. It is the
    distribution function of Beta(b/2, (n - b)/2) at c(t), see the module.

    If no row follows the basis V, its span is invariant under a matrix A' with
    ||A - A'||_2 <= dropped. Then T = V A' V^T gives (t - T) V u = V (A - A') u, hence a second
    bound, |x_1| <= |V u| <= dropped / |t - theta| for the Ritz value theta that is nearest to t.
    """
    points = np.atleast_1d(np.asarray(t, float))
    block = run.diagonals[0].shape[0]
    if run.size <= block:  # the start spans the whole space
        return np.zeros(len(points))
    share = _christoffel(run, points)
    if not len(run.following):
        distances = np.abs(np.subtract.outer(points, np.linalg.eigvalsh(run.projection))).min(
            axis=1
        )
        component = np.divide(  # the bound on |x_1|, at most 1
            run.dropped, distances, out=np.ones(len(points)), where=distances > run.dropped
        )
        share = np.minimum(share, component**2)
    from scipy.special import betainc  # 0.1 s of import, which not every user needs

    return betainc(block / 2, (run.size - block) / 2, share)


def _christoffel(run: Run, points: np.ndarray) -> np.ndarray:
    """c(t) for every t of ``points``: what an eigenvector may have in the start of this run.

    It is ||N Q_j^{-1} N^T||_2 with N = G_1 .. G_{j-1}, see the module, and 1, which says nothing,
    where the pivots are not all definite with one sign, as for a t between the smallest and the
    largest Ritz value, and for every t if one of them is a Ritz value.
    """
    if run.diagonals[0].shape[0] == 1:
        return _christoffel_of_vector(run, points)
    identity = np.eye(run.diagonals[0].shape[0])
    # N and Q_i start as the identity, for every t; the last axes are (b, b).
    steps_product = gram = np.broadcast_to(identity, (len(points), *identity.shape))
    coupled: np.ndarray | float = 0.0  # beta_{i-1} G_{i-1}
    side = np.sign(points - run.diagonals[0][0, 0])  # 1 for a t above the spectrum, -1 below
    is_outside = np.ones(len(points), bool)
    for alpha, beta in zip(run.diagonals, run.couplings, strict=False):  # one alpha more than beta
        pivot = points[:, None, None] * identity - alpha - coupled
        is_outside &= (side[:, None] * np.linalg.eigvalsh(pivot) > 0).all(axis=1)
        try:
            step = np.linalg.solve(pivot, beta.T)  # G_i
        except np.linalg.LinAlgError:
            return np.ones(len(points))
        gram = identity + np.swapaxes(step, 1, 2) @ gram @ step
        steps_product, coupled = steps_product @ step, beta @ step
    solved = np.linalg.solve(gram, np.swapaxes(steps_product, 1, 2))
    share = np.linalg.norm(steps_product @ solved, 2, axis=(1, 2)).clip(0.0, 1.0)
    return np.where(is_outside, share, 1.0)


def _christoffel_of_vector(run: Run, points: np.ndarray) -> np.ndarray:
    """:func:`_christoffel` for a run from one vector, whose blocks are numbers: much less work."""
    alphas = np.array([alpha[0, 0] for alpha in run.diagonals])
    betas = np.array([beta[0, 0] for beta in run.couplings])
    steps_product = gram = np.ones(len(points))  # N and Q_i
    coupled: np.ndarray | float = 0.0  # beta_{i-1} G_{i-1}
    side = np.sign(points - alphas[0])  # 1 for a t above the spectrum, -1 below
    is_outside = np.ones(len(points), bool)
    for alpha, beta in zip(alphas, betas, strict=False):  # one alpha more than beta
        pivot = points - alpha - coupled
        is_outside &= side * pivot > 0
        step = beta / np.where(is_outside, pivot, 1.0)  # G_i
        gram = 1 + gram * step**2
        steps_product, coupled = steps_product * step, beta * step
    return np.where(is_outside, np.minimum(steps_product**2 / gram, 1.0), 1.0)


def none_missed_beyond(run: Run, edge: float, reach: float, probability: float) -> float:
    """The t between edge and edge + reach beyond which the run missed no eigenvalue.

    ``edge`` is the smallest Ritz value, with a negative ``reach``, or the largest one, with a
    positive one. The statement fails with at most the given probability. If it cannot be made even
    for edge + reach, the answer is infinity with the sign of ``reach``.
    """
    near, far = 0.0, 1.0  # the fractions of reach between which t lies
    for _ in range(4):  # each round has 16 points, and narrows the interval to a sixteenth
        points = np.linspace(near, far, 17)[1:]
        excluded = missed_probability(run, edge + reach * points) <= probability
        if not excluded[-1]:
            return float(np.copysign(np.inf, reach))
        first = int(np.argmax(excluded))
        near, far = (near if first == 0 else float(points[first - 1])), float(points[first])
    return edge + reach * far


def null_bound(run: Run, chance: float) -> float:
    """A bound on ||C||_2, where C is the compression of A to what the run took for its null space.

    The run is complete if its basis spans the whole space, or if C Z^T was no larger than rounding
    for a block Z of random rows in the complement of the basis. For any other run the bound is
    infinite.

    It fails with a probability of at most ``chance``. Z has b = ``null_rows`` rows, the complement
    has the dimension N = ``null_room``, and ``null_image`` is ||C Z^T||_F. For the unit eigenvector
    u of the largest eigenvalue |Z u|^2 is at least the quantile x of Beta(b/2, (N - b)/2) at
    ``chance``, and then ||C Z^T|| >= ||C||_2 |Z u| gives ||C||_2 <= ||C Z^T|| / x^{1/2}.
    """
    if not run.complete:
        return np.inf
    # No chance is left if Z spans the complement, or where the basis spans the whole space, so that
    # there is no complement: then both numbers and the image are 0.
    if run.null_rows == run.null_room:
        return run.null_image
    from scipy.special import betaincinv

    quantile = betaincinv(run.null_rows / 2, (run.null_room - run.null_rows) / 2, chance)  # x
    return run.null_image / float(quantile) ** 0.5
