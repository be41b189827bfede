"""Block Lanczos with full reorthogonalisation.

From orthonormal rows V_1 (b, n) the run builds V_2 .. V_j with

    A V_i^T = V_{i-1}^T beta_{i-1}^T + V_i^T alpha_i + V_{i+1}^T beta_i,

so that T = V A V^T is block tridiagonal; its eigenvalues are the Ritz values.

:mod:`gnjax.spectra.krylov.missed` gives the probability that a run from a random start has missed
an eigenvalue.

**What is dropped.** The residual block of step i is W_i = V_{i+1}^T beta_i + E_i. The part E_i is
shorter than the noise level and is left out, because its direction is only rounding; it is
orthogonal to V_1 .. V_i. The run is therefore a run with the symmetric matrix A' = A - E - E^T,
where E = sum_i E_i V_i. The blocks of E do not overlap with those of E^T, hence

    ||A - A'||_2 <= ||E + E^T||_F = sqrt(2) (sum_i ||E_i||_F^2)^{1/2},

and also ||A - A'||_2 <= sum_i ||E_i||_F, because E_i is orthogonal to V_i. The smaller of the two
is ``Run.dropped``. By Weyl the eigenvalues of A and of A' differ by at most that.

These statements are about exact arithmetic with the products that the operator returns. The
rounding of the products and of the recurrence is an additional error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnjax.numerics.host import HostProduct
from gnjax.spectra.krylov.missed import missed_probability, none_missed_beyond, null_bound
from gnjax.spectra.krylov.orthogonal import (
    STREAM,
    directions,
    lost_digits,
    orthonormal,
    outside,
    padded_basis,
    random_rows,
)

__all__ = [
    "Run",
    "extended",
    "lanczos",
    "missed_probability",
    "none_missed_beyond",
    "null_bound",
    "outside",
    "random_rows",
    "restarted",
    "ritz",
    "side_by_side",
    "steps_of",
]

_ROUNDING = 8.0  # a zero may become as large as this times eps ||A|| by rounding
_FRESH = 4  # how many random rows follow where a run found no new direction
_NULL_CHANCE = 1e-4

_Steps = Generator[np.ndarray, np.ndarray, "Run"]
"""A run that yields rows and is sent their images."""


@dataclass(frozen=True)
class Run:
    """Orthonormal rows V (j, n) of a Krylov space, and T = V A V^T (j, j).

    In exact arithmetic A' V^T = V^T T + Q^T R for a symmetric A' with ||A - A'||_2 <= ``dropped``.

    Attributes:
      basis: the rows V.
      following: the rows Q of the next step, which was not taken.
      projection: T.
      diagonals: the blocks alpha_i, up to the first breakdown or restart.
      couplings: the blocks beta_i, up to the first breakdown or restart.
      remainder: the columns of R that belong to the last rows of V; the others are zero.
      complete: whether A is zero outside the basis, up to ``null_error``.
      products: how many rows were multiplied.
      size: the dimension of the space from which the start was drawn.
      dropped: a bound on the 2-norm of everything that was left out as rounding.
      null_image: the Frobenius norm of C Z^T for the random block Z that showed the run to be
        complete, where C is the compression of A to the complement of the basis.
      null_rows: how many rows Z has; 0 where the basis spans the whole space.
      null_room: the dimension of the complement from which Z was drawn.
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
        """The probability that A outside the basis of a complete run exceeds ``null_error``."""
        return _NULL_CHANCE if self.null_rows < self.null_room else 0.0

    @property
    def null_error(self) -> float:
        """A bound on the norm of A outside the basis, which fails with probability ``null_chance``.

        It is infinite for a run that is not complete.
        """
        return null_bound(self, _NULL_CHANCE)


def lanczos(apply: HostProduct, start: np.ndarray, **options: Any) -> Run:
    """One run, see :func:`steps_of`."""
    return side_by_side(apply, [start], **options)[0]


def side_by_side(apply: HostProduct, starts: Sequence[np.ndarray], **options: Any) -> list[Run]:
    """One run from every start; each product has the rows of all runs. See :func:`steps_of`."""
    return _driven(apply, [steps_of(start, **options) for start in starts])


def extended(apply: HostProduct, run: Run, *, rows: int, **options: Any) -> Run:
    """Continue a restarted run until its basis has so many rows; see :func:`steps_of`."""
    block = len(run.diagonals[0])
    return _driven(apply, [_steps(run, block=block, rows=rows, **options)])[0]


def restarted(run: Run, coefficients: np.ndarray) -> Run:
    """The run reduced to some of its Ritz vectors V^T w; the w are columns (j, p).

    A' U^T = U^T Theta + Q^T (R W) holds for these rows U as well, so that a run can go on from them
    (the thick restart of Wu and Simon, 2000). The next steps may enter directions of V that are not
    in U, where A and A' differ. So A' is replaced by the symmetric matrix that differs from A only
    on U, by as much as A' does. Its distance from A is at most 2 / sqrt(3) times as large.
    """
    values = (coefficients * (run.projection @ coefficients)).sum(axis=0)
    return replace(
        run,
        basis=coefficients.T @ run.basis,
        projection=np.diag(values),
        remainder=run.remainder @ coefficients[-run.block :],
        dropped=2 / 3**0.5 * run.dropped,
    )


def _driven(apply: HostProduct, runs: Sequence[_Steps]) -> list[Run]:
    """Give every run the products that it asks for, until all of them have ended."""
    going = dict(enumerate(runs))
    blocks = {index: next(steps) for index, steps in going.items()}
    ended: dict[int, Run] = {}
    while blocks:
        for index, image in zip(list(blocks), _images(apply, list(blocks.values())), strict=True):
            try:
                blocks[index] = going[index].send(image)
            except StopIteration as stop:
                ended[index] = stop.value
                del blocks[index]
    return [ended[index] for index in going]


def _images(apply: HostProduct, blocks: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The products with every block, from one product with all of them together."""
    if len(blocks) == 1:
        return [apply(blocks[0])]
    ends = np.cumsum([len(block) for block in blocks])[:-1]
    return np.split(apply(np.concatenate(blocks)), ends)


def steps_of(
    start: np.ndarray, *, max_steps: int, orthogonal_to: np.ndarray | None = None, **options: Any
) -> _Steps:
    """Extend the Krylov space of ``start`` until ``enough``, until it is exhausted, or max_steps.

    ``noise``, or ``relative_noise`` times the largest entry on the diagonal of T, is how large a
    zero may become by rounding in a product. A new direction that is shorter is dropped. Where a
    whole block is dropped, the run goes on from random directions outside the basis. Past the
    numerical rank, these directions show what the start may have missed, without amplifying
    rounding.
    When the operator maps a block of random directions to less than the noise, the run is complete,
    in the sense of ``null_error``.

    With orthonormal rows ``orthogonal_to``, to which ``start`` is orthogonal, the run is one of the
    operator's compression to their complement.
    """
    block, size = start.shape
    codimension = 0 if orthogonal_to is None else len(orthogonal_to)
    empty, nothing = np.empty((0, size)), np.empty((0, 0))
    first = Run(empty, start, nothing, (), (), np.empty((block, 0)), False, 0, size - codimension)
    return _steps(
        first, block=block, rows=max_steps * block, orthogonal_to=orthogonal_to, **options
    )


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
    orthogonal_to: np.ndarray | None = None,
) -> _Steps:
    """The steps of a new run, or of a restarted one."""
    size, filled = run.following.shape[1], len(run.basis)
    codimension = 0 if orthogonal_to is None else len(orthogonal_to)
    storage, projection = _storage(run, rows, orthogonal_to)
    basis = storage[codimension:]
    rng = np.random.default_rng([STREAM, seed, 1 + run.products])
    first, lost = run, [0.0]
    unbroken, scale = not filled, float(np.abs(run.projection).max(initial=0.0))
    step = 0
    while True:
        step += 1
        random, width = filled > 0 and not len(run.following), run.block
        fresh, coupling, cut = _next_block(
            run, block, storage[: codimension + filled], len(basis) - filled, rng
        )
        lost.append(cut)
        unbroken = unbroken and len(run.following) == len(fresh) == block
        diagonals, couplings = run.diagonals, run.couplings
        if unbroken and filled:
            couplings = (*couplings, coupling)
        before, now = slice(filled - width, filled), slice(filled, filled + len(fresh))
        basis[now], projection[now, before], projection[before, now] = fresh, coupling, coupling.T
        outside_before, filled = size - codimension - filled, now.stop
        image = yield basis[now]
        alpha = image @ basis[now].T
        all_rows = storage[: codimension + filled]
        image = outside(outside(image, basis[before.start : filled]), all_rows)
        projection[now, now] = (alpha + alpha.T) / 2
        scale = max(scale, float(np.abs(alpha).max()))
        level = max(noise, relative_noise * scale)
        following, remainder, cut = directions(image, level)
        lost.append(cut)
        if lost_digits(remainder, scale):
            following = orthonormal(outside(outside(following, all_rows), all_rows))
        if unbroken:
            diagonals = (*diagonals, projection[now, now])
        exhausted = filled == size - codimension
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
            size - codimension,
            first.dropped + min(sum(lost), (2 * sum(part**2 for part in lost)) ** 0.5),
            float(np.hypot(np.linalg.norm(alpha), cut)) if null else 0.0,
            len(fresh) if null else 0,
            outside_before if null else 0,
        )
        full = filled == len(basis) or size - codimension > len(basis) < filled + len(following)
        if run.complete or full or (step % check_every == 0 and enough(run)):
            return run


def _storage(
    run: Run, rows: int, orthogonal_to: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for the rows ``orthogonal_to`` followed by ``rows`` rows of a basis, and for T.

    They hold the rows and the T of the run already.
    """
    size, filled = run.following.shape[1], len(run.basis)
    codimension = 0 if orthogonal_to is None else len(orthogonal_to)
    storage = np.empty((min(codimension + rows, size), size))
    if orthogonal_to is not None:
        storage[:codimension] = orthogonal_to
    storage[codimension : codimension + filled] = run.basis
    projection = np.zeros((len(storage) - codimension, len(storage) - codimension))
    projection[:filled, :filled] = run.projection
    return storage, projection


def _next_block(
    run: Run, block: int, basis: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """The next rows of the basis, their coupling to the last ones, and the norm left out.

    Random rows take the place of directions that were dropped.
    """
    count = min(room, max(block, len(run.following) or _FRESH))
    fresh, coupling = run.following[:count], run.remainder[:count]
    unseen = float(np.linalg.norm(run.remainder[count:]))
    if len(fresh) < count:
        fresh = padded_basis(fresh, count, basis, rng)
        coupling = np.vstack([coupling, np.zeros((count - len(coupling), run.block))])
    return fresh, coupling, unseen


def ritz(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ritz values in ascending order, residual norms ||A x - theta x||, and coefficients."""
    values, vectors = np.linalg.eigh(run.projection)
    width = run.remainder.shape[1]
    residuals = np.linalg.norm(run.remainder @ vectors[-width:], axis=0)
    return values, residuals, vectors
