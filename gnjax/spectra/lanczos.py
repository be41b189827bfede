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
Hochstenbach and van der Vorst (2000), for blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

_ROUNDING = 8.0  # in eps ||A||: the least that rounding makes of zero
_STREAM = 104729
_SHORT = 1e-3  # of ||A||: directions found this short are orthogonalised once more

Apply = Callable[[np.ndarray], np.ndarray]
"""The operator on a block of rows: (b, n) to (b, n)."""


@dataclass(frozen=True)
class Run:
    """Orthonormal rows V (j, n), T = V A V^T (j, j), and the blocks of its first steps."""

    basis: np.ndarray
    following: np.ndarray  # the rows of the step that was not taken
    projection: np.ndarray
    diagonals: tuple[np.ndarray, ...]  # alpha_i, up to the first breakdown
    couplings: tuple[np.ndarray, ...]  # beta_i, up to the first breakdown
    remainder: np.ndarray  # (b, b): its beta
    complete: bool  # everything outside the basis is the null space, or there is nothing outside
    products: int
    size: int  # of the space that the start was drawn from
    dropped: float = 0.0
    null_error: float = 0.0
    null_failure: float = 0.0

    @property
    def block(self) -> int:
        return self.remainder.shape[1]


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
    going = {index: steps_of(start, **options) for index, start in enumerate(starts)}
    wanted = {index: next(steps) for index, steps in going.items()}
    runs: dict[int, Run] = {}
    while wanted:
        for index, image in zip(list(wanted), _images(apply, list(wanted.values())), strict=True):
            try:
                wanted[index] = going[index].send(image)
            except StopIteration as stop:
                runs[index] = stop.value
                del wanted[index]
    return [runs[index] for index in going]


def _images(apply: Apply, blocks: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Of every block, from one product with all."""
    if len(blocks) == 1:
        return [apply(blocks[0])]
    ends = np.cumsum([len(block) for block in blocks])[:-1]
    return np.split(apply(np.concatenate(blocks)), ends)


def steps_of(
    start: np.ndarray,
    *,
    max_steps: int,
    noise: float,
    relative_noise: float = _ROUNDING * np.finfo(float).eps,
    enough: Callable[[Run], bool] = lambda run: False,
    check_every: int = 4,
    seed: int = 0,
    apart: np.ndarray | None = None,
) -> Generator[np.ndarray, np.ndarray, Run]:
    """Extend the Krylov space of ``start`` until ``enough``, until nothing is left, or max_steps.

    ``noise``, or ``relative_noise`` times the largest entry on the diagonal of T, is what rounding
    makes of zero in a product: a new direction shorter than that is
    replaced by a random one outside the basis, so that running past the numerical rank looks for
    what a start may have missed instead of amplifying rounding. When the operator maps a whole
    block of such directions to zero, the complement is its null space and the run is complete.

    On the complement of orthonormal rows ``apart`` if there are any, which ``start`` is orthogonal
    to: the run is that of the operator's compression to it.

    Yields rows, and is sent the operator's images of them.
    """
    block, size = start.shape
    rng = np.random.default_rng(seed + 1)
    shut = 0 if apart is None else len(apart)
    held = np.empty((min(shut + max_steps * block, size), size))
    if apart is not None:
        held[:shut] = apart
    basis = held[shut:]
    basis[:block] = start
    projection = np.zeros((len(basis), len(basis)))
    diagonals: list[np.ndarray] = []
    couplings: list[np.ndarray] = []
    filled, width, broken, restarted = block, block, False, False
    products, scale = 0, 0.0
    while True:
        now = slice(filled - width, filled)
        known = held[: shut + filled]
        image = yield basis[now]
        products += width
        alpha = image @ basis[now].T
        image = outside(image, basis[max(0, filled - 2 * block) : filled])
        image = outside(image, known)
        projection[now, now] = (alpha + alpha.T) / 2
        scale = max(scale, float(np.abs(alpha).max()))
        level = max(noise, relative_noise * scale)
        fresh, coupling = _directions(image, level)
        if len(fresh) and np.abs(coupling).max(axis=1).min() < _SHORT * scale:
            fresh = _orthonormal(outside(outside(fresh, known), known))
        null = restarted and not coupling.any() and np.abs(alpha).max() <= level
        complete = null or filled == size - shut
        if not broken:
            diagonals.append(projection[now, now])
        run = Run(
            basis[:filled],
            fresh,
            projection[:filled, :filled],
            tuple(diagonals),
            tuple(couplings),
            coupling,
            complete,
            products,
            size - shut,
        )
        steps = -(-filled // block)
        if complete or filled == len(basis) or (steps % check_every == 0 and enough(run)):
            return run
        wanted = min(block, len(basis) - filled)
        restarted = not len(fresh)
        broken = broken or len(fresh) < block or wanted < block
        fresh = fresh[:wanted]
        coupling = coupling[:wanted]
        if len(fresh) < wanted:
            fresh = _padded(fresh, wanted, known, rng)
            coupling = np.vstack([coupling, np.zeros((wanted - len(coupling), width))])
        if not broken:
            couplings.append(coupling)
        following = slice(filled, filled + wanted)
        basis[following] = fresh
        projection[following, now] = coupling
        projection[now, following] = coupling.T
        filled, width = filled + wanted, wanted


def outside(rows: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """rows less their projection on the basis."""
    return rows - (rows @ basis.T) @ basis


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """The nearest orthonormal rows to nearly orthonormal ones, up to second order."""
    q, r = np.linalg.qr(rows.T)
    return (q * np.where(np.diagonal(r) < 0, -1.0, 1.0)).T


def _directions(rows: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal rows Q and coefficients beta with rows^T = Q^T beta, up to noise."""
    if len(rows) == 1:
        length = float(np.linalg.norm(rows))
        rank = int(length > noise)
        return rows[:rank] / (length or 1.0), np.full((rank, 1), length)
    q, r, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diagonal(r)) > noise).sum())
    coupling = np.empty((rank, len(rows)))
    coupling[:, order] = r[:rank]
    return q[:, :rank].T, coupling


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
    """The chance, over the start, that this run hides an eigenvalue at t or beyond (t outside
    the hull of the Ritz values)."""
    points = np.atleast_1d(np.asarray(t, float))
    block = run.diagonals[0].shape[0]
    if run.size <= block:
        return np.zeros(len(points))
    identity = np.eye(block)
    start = energy = np.broadcast_to(identity, (len(points), block, block))
    coupled: np.ndarray | float = 0.0
    for alpha, beta in zip(run.diagonals, run.couplings, strict=False):
        pivot = points[:, None, None] * identity - alpha - coupled
        try:
            step = np.linalg.solve(pivot, beta.T)
        except np.linalg.LinAlgError:  # t is a Ritz value
            return np.ones(len(points))
        energy = identity + np.swapaxes(step, 1, 2) @ energy @ step
        start, coupled = start @ step, beta @ step
    inner = np.linalg.solve(energy, np.swapaxes(start, 1, 2))
    weight = np.linalg.norm(start @ inner, 2, axis=(1, 2)).clip(0.0, 1.0)
    return scipy.special.betainc(block / 2, (run.size - block) / 2, weight)


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
