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
    """One run of block Lanczos from the orthonormal rows ``start`` (b, n)."""
    return side_by_side(apply, [start], **options)[0]


def side_by_side(
    apply: HostProduct,
    starts: Sequence[np.ndarray],
    *,
    max_steps: int,
    orthogonal_to: np.ndarray | None = None,
    **options: Any,
) -> list[Run]:
    """One run of block Lanczos from every start, orthonormal rows (b, n).

    A single product by ``apply``, A on rows, multiplies the next rows of all runs. A run ends when
    ``stop_when`` says so, when the Krylov space is exhausted, or after ``max_steps`` steps. The
    other options are those of :func:`_steps`.

    ``noise``, or ``relative_noise`` times the largest entry on the diagonal of T, is how large a
    zero may become by rounding in a product. A new direction that is shorter is dropped. Where a
    whole block is dropped, the run goes on from random directions outside the basis. Past the
    numerical rank, these directions show what the start may have missed, without amplifying
    rounding. When the operator maps a block of random directions to less than the noise, the run is
    complete, in the sense of ``null_error``.

    ``stop_when`` is called with the run after every ``check_every`` steps, and returns whether it
    may end. ``seed`` is that of the random directions.

    With orthonormal rows ``orthogonal_to``, to which the starts are orthogonal, the runs are those
    of the operator's compression to their complement.
    """
    codimension = 0 if orthogonal_to is None else len(orthogonal_to)
    runs = []
    for start in starts:
        block, size = start.shape
        first = Run(
            basis=np.empty((0, size)),
            following=start,
            projection=np.empty((0, 0)),
            diagonals=(),
            couplings=(),
            remainder=np.empty((block, 0)),
            complete=False,
            products=0,
            size=size - codimension,
        )
        rows = max_steps * block
        runs.append(_steps(first, block=block, rows=rows, orthogonal_to=orthogonal_to, **options))
    return _driven(apply, runs)


def extended(apply: HostProduct, run: Run, *, rows: int, **options: Any) -> Run:
    """Continue a restarted run until its basis has ``rows`` rows, by products ``apply`` with A."""
    block = len(run.diagonals[0])
    return _driven(apply, [_steps(run, block=block, rows=rows, **options)])[0]


def restarted(run: Run, coefficients: np.ndarray) -> Run:
    """The run reduced to p of its Ritz vectors V^T w, so that its basis has room for new rows.

    The columns of ``coefficients`` W (j, p) are the eigenvectors w of T, so that the new basis is
    U = W^T V and the new T is the diagonal matrix Theta of Ritz values. The run fulfils
    A' V^T = V^T T + Q^T R for a matrix A' near A, hence also A' U^T = U^T Theta + Q^T (R W) (the
    thick restart of Wu and Simon, 2000). The next steps may enter directions of V that are not in
    U, where A and A' differ. So A' is replaced by the symmetric matrix that differs from A only on
    U, by as much as A' does. Its distance from A is at most 2 / sqrt(3) times as large.
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
    """Drive several runs to their ends, and return their results in the order of ``runs``."""
    generators = dict(enumerate(runs))
    blocks = {number: next(steps) for number, steps in generators.items()}  # the rows of each
    results: dict[int, Run] = {}
    while blocks:
        of_runs = list(blocks.values())
        ends = np.cumsum([len(block) for block in of_runs])[:-1]
        several = np.split(apply(np.concatenate(of_runs)), ends) if ends.size else [apply(*of_runs)]
        for number, image in zip(list(blocks), several, strict=True):
            try:
                blocks[number] = generators[number].send(image)
            except StopIteration as stop:
                results[number] = stop.value
                del blocks[number]
    return [results[number] for number in generators]


def _steps(
    run: Run,
    *,
    block: int,
    rows: int,
    noise: float,
    relative_noise: float = _ROUNDING * np.finfo(float).eps,
    stop_when: Callable[[Run], bool] = lambda run: False,
    check_every: int = 4,
    seed: int = 0,
    orthogonal_to: np.ndarray | None = None,
) -> _Steps:
    """Block Lanczos steps from a new or a restarted run, until its basis V has ``rows`` rows.

    A step adds the rows W that follow V, usually ``block`` of them, to V. Their images A W^T,
    orthogonalised against V, give the new diagonal block alpha = W A W^T of T. What is left of them
    is Q^T R with the orthonormal rows Q that follow next, up to directions shorter than the noise,
    which are dropped. The generator yields rows, is sent their products with A, and returns the
    run. The options are those of :func:`side_by_side`.
    """
    size, filled = run.following.shape[1], len(run.basis)
    codimension = 0 if orthogonal_to is None else len(orthogonal_to)
    storage, projection = _storage(run, rows, orthogonal_to)
    basis = storage[codimension:]
    # A restarted run has made products, so that its random numbers are new ones.
    rng = np.random.default_rng([STREAM, seed, 1 + run.products])
    first, dropped, dropped_squares = run, 0.0, 0.0
    # Whether all rows so far are of one Krylov space, and the largest entry of T, about ||A||.
    unbroken, scale = not filled, float(np.abs(run.projection).max(initial=0.0))
    step = 0
    while True:
        step += 1
        # Whether nothing follows, so that this block is random; the number of rows of the last one.
        is_random, last_width = filled > 0 and not len(run.following), run.block
        fresh, coupling, dropped_norm = _next_block(
            run, block, storage[: codimension + filled], len(basis) - filled, rng
        )
        dropped, dropped_squares = dropped + dropped_norm, dropped_squares + dropped_norm**2
        unbroken = unbroken and len(run.following) == len(fresh) == block
        diagonals, couplings = run.diagonals, run.couplings
        if unbroken and filled:
            couplings = (*couplings, coupling)
        # The rows of the last block and of the new one.
        before, now = slice(filled - last_width, filled), slice(filled, filled + len(fresh))
        basis[now], projection[now, before], projection[before, now] = fresh, coupling, coupling.T
        room_before, filled = size - codimension - filled, now.stop
        image = yield basis[now]  # the products of A with the new rows
        alpha = image @ basis[now].T
        all_rows = storage[: codimension + filled]
        # First against the last two blocks, where the image is long, then against all rows.
        image = outside(outside(image, basis[before.start : filled]), all_rows)
        projection[now, now] = (alpha + alpha.T) / 2
        scale = max(scale, float(np.abs(alpha).max()))
        level = max(noise, relative_noise * scale)  # shorter directions are rounding
        following, remainder, dropped_norm = directions(image, level)
        dropped, dropped_squares = dropped + dropped_norm, dropped_squares + dropped_norm**2
        # Short rows, divided by their length, are less orthogonal.
        if lost_digits(remainder, scale):
            following = orthonormal(outside(outside(following, all_rows), all_rows))
        if unbroken:
            diagonals = (*diagonals, projection[now, now])
        is_whole = filled == size - codimension
        # A maps random rows to zero, up to the noise: so A is zero on all that is left.
        is_null = is_random and not is_whole and not len(following) and np.abs(alpha).max() <= level
        run = Run(
            basis[:filled],
            following,
            projection[:filled, :filled],
            diagonals,
            couplings,
            remainder,
            is_whole or is_null,
            run.products + len(fresh),
            size - codimension,
            # Two bounds on what was dropped hold, see the module, and the smaller one is taken.
            first.dropped + min(dropped, (2 * dropped_squares) ** 0.5),
            float(np.hypot(np.linalg.norm(alpha), dropped_norm)) if is_null else 0.0,
            len(fresh) if is_null else 0,
            room_before if is_null else 0,
        )
        # The rows that follow need room in the basis, unless that spans the whole space.
        is_full = filled == len(basis) or size - codimension > len(basis) < filled + len(following)
        if run.complete or is_full or (step % check_every == 0 and stop_when(run)):
            return run


def _storage(
    run: Run, rows: int, orthogonal_to: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Memory for a basis of ``rows`` rows and for its T, with the rows and T of the run in it.

    The basis comes after the rows ``orthogonal_to`` in one array, so that a single product
    orthogonalises against both.
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
    """The next rows of the basis, at most ``room``: those that follow the run, and random ones.

    Random rows orthogonal to ``basis`` take the place of directions that were dropped, so that
    there are ``block`` rows, or at least ``_FRESH`` where no row follows.

    Returns:
      the rows (count, n), their coupling (count, width) to the last ``width`` rows of the run, and
      the norm of the coupling of the rows that found no room. The coupling of random rows is zero.
    """
    count = min(room, max(block, len(run.following) or _FRESH))
    fresh, coupling = run.following[:count], run.remainder[:count]
    dropped_norm = float(np.linalg.norm(run.remainder[count:]))
    if len(fresh) < count:
        random = rng.standard_normal((count - len(fresh), basis.shape[1]))
        for _ in range(2):  # because once may lose half of the digits
            random = orthonormal(outside(outside(random, basis), fresh))
        fresh = np.vstack([fresh, random])
        coupling = np.vstack([coupling, np.zeros((count - len(coupling), run.block))])
    return fresh, coupling, dropped_norm


def ritz(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The eigenvalues theta of T in ascending order, their residuals, and eigenvectors in columns.

    The Ritz vector x = V^T w of an eigenvector w of T has the residual ||A x - theta x|| = ||R w||.
    """
    values, vectors = np.linalg.eigh(run.projection)
    width = run.remainder.shape[1]
    residuals = np.linalg.norm(run.remainder @ vectors[-width:], axis=0)
    return values, residuals, vectors
