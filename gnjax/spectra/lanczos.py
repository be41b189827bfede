"""Block Lanczos with full reorthogonalisation, and what a run from a random start can have missed.

From orthonormal rows V_1 (b, n) the run builds V_2 .. V_j with

    A V_i^T = V_{i-1}^T beta_{i-1}^T + V_i^T alpha_i + V_{i+1}^T beta_i,

so that T = V A V^T is block tridiagonal; its eigenvalues are the Ritz values.

**What can be missed.** Let u be a unit eigenvector of A with eigenvalue t and x_i = V_i u. The
recurrence, t x_i = beta_{i-1} x_{i-1} + alpha_i x_i + beta_i^T x_{i+1}, gives x_i = G_i x_{i+1}
with G_i = S_i^{-1} beta_i^T and S_i = t - alpha_i - beta_{i-1} G_{i-1}, the pivots of t - T, which
are definite for t outside its spectrum. Hence x_1 = N_j x_j with N_j = G_1 .. G_{j-1}, and
|x_1|^2 + .. + |x_j|^2 = x_j^T Q_j x_j with Q_j = I + G_{j-1}^T Q_{j-1} G_{j-1}. The sum is at most
1 because the rows are orthonormal. Therefore

    |x_1|^2 <= || N_j Q_j^{-1} N_j^T || =: c(t),

the Christoffel function of the run. V_1 spans a uniformly random space, so |x_1|^2 has the law
Beta(b/2, (n - b)/2) whatever u is: a run that has an eigenvalue at t had a start whose chance was
I_c(b/2, (n - b)/2). Outside the hull of the Ritz values c falls monotonically, so the same chance
covers everything beyond t. This is the bound of Kuczynski and Wozniakowski (1992) a posteriori,
with the coefficients at hand in place of the worst case, in the spirit of van Dorsselaer,
Hochstenbach and van der Vorst (2000), for blocks. It is of A itself, because nothing is dropped
before the first breakdown.

**What is dropped.** The residual block of step i is W_i = V_{i+1}^T beta_i + E_i. The part E_i is
shorter than the noise level and is left out, because its direction is rounding; E_i is orthogonal
to V_1 .. V_i. The run is that of A' = A - E - E^T with E = sum_i E_i V_i, which is symmetric. The
blocks of E do not overlap with those of E^T, hence

    ||A - A'||_2 <= ||E + E^T||_F = sqrt(2) (sum_i ||E_i||_F^2)^{1/2},

and also ||A - A'||_2 <= sum_i ||E_i||_F, because E_i is orthogonal to V_i. The smaller of the two
is ``Run.dropped``. By Weyl, what a run says of an eigenvalue of A' is off by at most that for A.

**The null space.** Let Z be a block of b random orthonormal rows in the complement of the basis, of
dimension N, and C the compression of A to this complement. With u a unit eigenvector of C for the
eigenvalue mu, ||C Z^T|| >= |mu| |Z u|, and |Z u|^2 has the law Beta(b/2, (N - b)/2), because Z is
drawn after C is fixed. If ||C Z^T|| = h was seen, then ||C||_2 > h / x^{1/2} has at most the chance
I_x(b/2, (N - b)/2). A run that ends because Z maps to less than the noise claims no more than this.

All of this is exact arithmetic with the products that the operator returns. Rounding, of the
products and of the recurrence, is an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

_ROUNDING = 8.0  # in eps ||A||: the least that rounding makes of zero
_STREAM = 104729
_SHORT = 1e-3  # of ||A||: directions found this short are orthogonalised once more
_FRESH = 4  # random rows where a run starts anew: the image of a single one is often short
_NULL_CHANCE = 1e-4

Apply = Callable[[np.ndarray], np.ndarray]
"""The operator on a block of rows: (b, n) to (b, n)."""

Steps = Generator[np.ndarray, np.ndarray, "Run"]
"""A run that yields rows and is sent their images."""


@dataclass(frozen=True)
class Run:
    """Orthonormal rows V (j, n) and T = V A V^T (j, j), of a Krylov space.

    A' V^T = V^T T + Q^T R for a symmetric A' with ||A - A'||_2 <= ``dropped``, in exact arithmetic.

    Attributes:
      basis: the rows V.
      following: the rows Q of the step that was not taken.
      projection: T.
      diagonals: the blocks alpha_i, up to the first breakdown or restart.
      couplings: the blocks beta_i, up to the first breakdown or restart.
      remainder: the columns of R that belong to the last rows of V; the others are zero.
      complete: whether nothing is outside the basis but what ``null_error`` bounds.
      products: how many rows were multiplied.
      size: the dimension of the space that the start was drawn from.
      dropped: a bound on the 2-norm of all that was left out as rounding.
      null_image: the Frobenius norm of C Z^T for the random block Z that made the run complete.
      null_rows: how many rows Z has; 0 where nothing is outside the basis.
      null_room: the dimension of the complement that Z was drawn from.
    """

    basis: np.ndarray
    following: np.ndarray
    projection: np.ndarray
    diagonals: tuple[np.ndarray, ...]
    couplings: tuple[np.ndarray, ...]
    remainder: np.ndarray
    complete: bool
    products: int
    size: int
    dropped: float = 0.0
    null_image: float = 0.0
    null_rows: int = 0
    null_room: int = 0

    @property
    def block(self) -> int:
        """How many columns the remainder has: the rows of the last step."""
        return self.remainder.shape[1]

    @property
    def unbroken(self) -> bool:
        """Whether the basis is one Krylov space, without a random direction or a restart."""
        return sum(len(alpha) for alpha in self.diagonals) == len(self.basis)

    @property
    def null_chance(self) -> float:
        """The chance that the complement of a complete run exceeds ``null_error``."""
        return _NULL_CHANCE if self.null_rows < self.null_room else 0.0

    @property
    def null_error(self) -> float:
        """The norm of A outside a complete run, but for ``null_chance``; infinite before."""
        return null_bound(self, _NULL_CHANCE)


def null_bound(run: Run, chance: float) -> float:
    """The norm of A on the complement of a complete run, exceeded with at most this chance."""
    if not run.complete:
        return np.inf
    if run.null_rows == run.null_room:  # Z spans the complement, or there is none
        return run.null_image
    half, rest = run.null_rows / 2, (run.null_room - run.null_rows) / 2
    return run.null_image / float(scipy.special.betaincinv(half, rest, chance)) ** 0.5


def random_rows(size: int, block: int, seed: int, apart: np.ndarray | None = None) -> np.ndarray:
    """Orthonormal rows (b, n) that span a uniformly random space, orthogonal to rows ``apart``.

    Not from ``default_rng(seed)``, which the caller's weights and data may have come from: a start
    that is a row of the data is not random.
    """
    room = size - (0 if apart is None else len(apart))
    gaussian = np.random.default_rng([_STREAM, seed]).standard_normal((size, min(block, room)))
    if apart is not None:
        gaussian = outside(outside(gaussian.T, apart), apart).T
    if gaussian.shape[1] == 1:  # a QR takes as long as a product of a small network
        return np.ascontiguousarray(gaussian.T) / np.linalg.norm(gaussian)
    return np.ascontiguousarray(np.linalg.qr(gaussian)[0].T)


def lanczos(apply: Apply, start: np.ndarray, **options: Any) -> Run:
    """One run, see :func:`steps_of`."""
    return side_by_side(apply, [start], **options)[0]


def side_by_side(apply: Apply, starts: Sequence[np.ndarray], **options: Any) -> list[Run]:
    """A run from every start, with the products of all in one block: see :func:`steps_of`."""
    return _driven(apply, [steps_of(start, **options) for start in starts])


def extended(apply: Apply, run: Run, *, rows: int, **options: Any) -> Run:
    """Go on from a restarted run until its basis has so many rows: see :func:`steps_of`."""
    block = len(run.diagonals[0])
    return _driven(apply, [_steps(run, block=block, rows=rows, **options)])[0]


def restarted(run: Run, coefficients: np.ndarray) -> Run:
    """The run on some of its Ritz vectors V^T w alone; the w are columns (j, p).

    A' U^T = U^T Theta + Q^T (R W) holds for these rows U as well, so that a run can go on from them
    (the thick restart of Wu and Simon, 2000). U leaves out directions of V, though, and the next
    steps bring parts of them back, where A and A' differ. The symmetric matrix that differs from A
    on U alone, and there as A' does, is at most 2 / sqrt(3) times as far away.
    """
    values = (coefficients * (run.projection @ coefficients)).sum(axis=0)
    return replace(
        run,
        basis=coefficients.T @ run.basis,
        projection=np.diag(values),
        remainder=run.remainder @ coefficients[-run.block :],
        dropped=2 / 3**0.5 * run.dropped,
    )


def _driven(apply: Apply, runs: Sequence[Steps]) -> list[Run]:
    """Send every run the images that it asks for, until all of them have ended."""
    going = dict(enumerate(runs))
    wanted = {index: next(steps) for index, steps in going.items()}
    ended: dict[int, Run] = {}
    while wanted:
        for index, image in zip(list(wanted), _images(apply, list(wanted.values())), strict=True):
            try:
                wanted[index] = going[index].send(image)
            except StopIteration as stop:
                ended[index] = stop.value
                del wanted[index]
    return [ended[index] for index in going]


def _images(apply: Apply, blocks: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Of every block, from one product with all."""
    if len(blocks) == 1:
        return [apply(blocks[0])]
    ends = np.cumsum([len(block) for block in blocks])[:-1]
    return np.split(apply(np.concatenate(blocks)), ends)


def steps_of(
    start: np.ndarray, *, max_steps: int, apart: np.ndarray | None = None, **options: Any
) -> Steps:
    """Extend the Krylov space of ``start`` until ``enough``, until nothing is left, or max_steps.

    ``noise``, or ``relative_noise`` times the largest entry on the diagonal of T, is what rounding
    makes of zero in a product: a new direction shorter than that is dropped, and where a whole
    block is, random directions outside the basis follow, so that running past the numerical rank
    looks for what a start may have missed instead of amplifying rounding. When the operator maps a
    block of random directions to less than the noise, the run is complete, in the sense of
    ``null_error``.

    On the complement of orthonormal rows ``apart`` if there are any, which ``start`` is orthogonal
    to: the run is that of the operator's compression to it.
    """
    block, size = start.shape
    shut = 0 if apart is None else len(apart)
    empty, nothing = np.empty((0, size)), np.empty((0, 0))
    first = Run(empty, start, nothing, (), (), np.empty((block, 0)), False, 0, size - shut)
    return _steps(first, block=block, rows=max_steps * block, apart=apart, **options)


def _steps(
    run: Run,
    *,
    block: int,
    rows: int,
    noise: float,
    relative_noise: float = _ROUNDING * np.finfo(float).eps,
    enough: Callable[[Run], bool] = lambda run: False,
    check_every: int = 4,
    seed: int = 0,
    apart: np.ndarray | None = None,
) -> Steps:
    """The steps from a run that has none, or from a restarted one."""
    size = run.following.shape[1]
    shut = 0 if apart is None else len(apart)
    held = np.empty((min(shut + rows, size), size))
    if apart is not None:
        held[:shut] = apart
    basis, filled = held[shut:], len(run.basis)
    basis[:filled] = run.basis
    projection = np.zeros((len(basis), len(basis)))
    projection[:filled, :filled] = run.projection
    rng = np.random.default_rng([_STREAM, seed, 1 + run.products])
    first, lost = run, [0.0]
    unbroken, scale = not filled, float(np.abs(run.projection).max(initial=0.0))
    step = 0
    while True:
        step += 1
        random, width = filled > 0 and not len(run.following), run.block
        fresh, coupling, cut = _next_block(
            run, block, held[: shut + filled], len(basis) - filled, rng
        )
        lost.append(cut)
        unbroken = unbroken and len(run.following) == len(fresh) == block
        diagonals, couplings = run.diagonals, run.couplings
        if unbroken and filled:
            couplings = (*couplings, coupling)
        before, now = slice(filled - width, filled), slice(filled, filled + len(fresh))
        basis[now], projection[now, before], projection[before, now] = fresh, coupling, coupling.T
        outside_before, filled = size - shut - filled, now.stop
        image = yield basis[now]
        alpha = image @ basis[now].T
        known = held[: shut + filled]
        image = outside(outside(image, basis[before.start : filled]), known)
        projection[now, now] = (alpha + alpha.T) / 2
        scale = max(scale, float(np.abs(alpha).max()))
        level = max(noise, relative_noise * scale)
        following, remainder, cut = _directions(image, level)
        lost.append(cut)
        if len(following) and np.abs(remainder).max(axis=1).min() < _SHORT * scale:
            following = _orthonormal(outside(outside(following, known), known))
        if unbroken:
            diagonals = (*diagonals, projection[now, now])
        exhausted = filled == size - shut
        null = random and not exhausted and not len(following) and np.abs(alpha).max() <= level
        run = Run(
            basis[:filled],
            following,
            projection[:filled, :filled],
            diagonals,
            couplings,
            remainder,
            exhausted or null,
            run.products + len(fresh),
            size - shut,
            first.dropped + min(sum(lost), (2 * sum(part**2 for part in lost)) ** 0.5),
            float(np.hypot(np.linalg.norm(alpha), cut)) if null else 0.0,
            len(fresh) if null else 0,
            outside_before if null else 0,
        )
        full = filled == len(basis) or size - shut > len(basis) < filled + len(following)
        if run.complete or full or (step % check_every == 0 and enough(run)):
            return run


def _next_block(
    run: Run, block: int, known: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """The next rows of the basis, their coupling to the last ones, and what that leaves out.

    Random rows take the place of directions that were dropped.
    """
    wanted = min(room, max(block, len(run.following) or _FRESH))
    fresh, coupling = run.following[:wanted], run.remainder[:wanted]
    unseen = float(np.linalg.norm(run.remainder[wanted:]))
    if len(fresh) < wanted:
        fresh = _padded(fresh, wanted, known, rng)
        coupling = np.vstack([coupling, np.zeros((wanted - len(coupling), run.block))])
    return fresh, coupling, unseen


def outside(rows: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """rows less their projection on the basis."""
    return rows - (rows @ basis.T) @ basis


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """The nearest orthonormal rows to nearly orthonormal ones, up to second order."""
    q, r = np.linalg.qr(rows.T)
    return (q * np.where(np.diagonal(r) < 0, -1.0, 1.0)).T


def _directions(rows: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Orthonormal rows Q and coefficients beta with rows^T = Q^T beta + E, and ||E||_F."""
    if len(rows) == 1:
        length = float(np.linalg.norm(rows))
        rank = int(length > noise)
        return rows[:rank] / (length or 1.0), np.full((rank, 1), length), (1 - rank) * length
    q, r, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diagonal(r)) > noise).sum())
    coupling = np.empty((rank, len(rows)))
    coupling[:, order] = r[:rank]
    return q[:, :rank].T, coupling, float(np.linalg.norm(r[rank:]))


def _padded(
    rows: np.ndarray, wanted: int, known: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """``rows`` and random directions orthogonal to them and to the basis."""
    fill = rng.standard_normal((wanted - len(rows), known.shape[1]))
    for _ in range(2):
        fill = _orthonormal(outside(outside(fill, known), rows))
    return np.vstack([rows, fill])


def ritz(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz values in ascending order, residual norms ||A x - theta x||, and coefficients."""
    values, vectors = np.linalg.eigh(run.projection)
    width = run.remainder.shape[1]
    residuals = np.linalg.norm(run.remainder @ vectors[-width:], axis=0)
    return values, residuals, vectors


def missed_probability(run: Run, t: np.ndarray | float) -> np.ndarray:
    """The chance, over the start, that this run hides an eigenvalue at t or beyond.

    For t outside the hull of the Ritz values; 1 inside of it. A run whose basis V has no direction
    to follow is invariant but for what was dropped: (t - T) V u = V (A - A') u, hence
    |x_1| <= dropped / |t - theta| for the nearest Ritz value theta.
    """
    points = np.atleast_1d(np.asarray(t, float))
    block = run.diagonals[0].shape[0]
    if run.size <= block:
        return np.zeros(len(points))
    weight = _christoffel(run, points)
    if not len(run.following):
        apart = np.abs(np.subtract.outer(points, np.linalg.eigvalsh(run.projection))).min(axis=1)
        seen = np.divide(run.dropped, apart, out=np.ones(len(points)), where=apart > run.dropped)
        weight = np.minimum(weight, seen**2)
    return scipy.special.betainc(block / 2, (run.size - block) / 2, weight)


def _christoffel(run: Run, points: np.ndarray) -> np.ndarray:
    """c(t) of the first steps; 1 where a pivot is not definite, so that t is inside the hull."""
    block = run.diagonals[0].shape[0]
    identity = np.eye(block)
    start = energy = np.broadcast_to(identity, (len(points), block, block))
    coupled: np.ndarray | float = 0.0
    side = np.sign(points - run.diagonals[0][0, 0])
    outer = np.ones(len(points), bool)
    for alpha, beta in zip(run.diagonals, run.couplings, strict=False):
        pivot = points[:, None, None] * identity - alpha - coupled
        outer &= (side[:, None] * np.linalg.eigvalsh(pivot) > 0).all(axis=1)
        try:
            step = np.linalg.solve(pivot, beta.T)
        except np.linalg.LinAlgError:  # t is a Ritz value
            return np.ones(len(points))
        energy = identity + np.swapaxes(step, 1, 2) @ energy @ step
        start, coupled = start @ step, beta @ step
    inner = np.linalg.solve(energy, np.swapaxes(start, 1, 2))
    weight = np.linalg.norm(start @ inner, 2, axis=(1, 2)).clip(0.0, 1.0)
    return np.where(outer, weight, 1.0)


def beyond(run: Run, edge: float, reach: float, probability: float) -> float:
    """The t between edge and edge + reach past which an eigenvalue is less likely than asked.

    ``reach`` is signed; infinity times its sign comes back when even edge + reach is not excluded.
    """
    near, far = 0.0, 1.0
    for _ in range(4):
        points = np.linspace(near, far, 17)[1:]
        excluded = missed_probability(run, edge + reach * points) <= probability
        if not excluded[-1]:
            return float(np.copysign(np.inf, reach))
        first = int(np.argmax(excluded))
        near, far = (near if first == 0 else float(points[first - 1])), float(points[first])
    return edge + reach * far
