"""Both ends of the spectrum of sum_l A_l (x) B_l, by preconditioned Lanczos with a certificate.

For m >> k every A_l = W^{L:l+1} W^{l+1:L} is near a multiple of the identity, so G is near
I (x) D with D = sum_l (tr A_l / k) B_l, a d x d matrix. D is a compression of G averaged over an
orthonormal basis of R^k, so lambda_min(G) <= lambda_min(D) and lambda_max(D) <= lambda_max(G):
for every s below lambda_min(G) the matrix P = I (x) (D - s I) is positive definite, and

    lambda_min(G) > s   if and only if   C = P^{-1/2} (G - s I) P^{-1/2} is positive definite

(Sylvester). C has its spectrum in a short interval around 1, so few Lanczos steps from a random
start decide the question, to the probability of
:func:`gnjax.spectra.krylov.missed.missed_probability`. The Krylov space of C, mapped back by
P^{-1/2}, gives the eigenvalue itself by Rayleigh-Ritz on G: the inverse-free preconditioned method
of Golub and Ye (2002). The top end is the same for s I - G.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gnjax.operators.base import KroneckerFactors, SumOfKroneckers
from gnjax.operators.closed_form.staircase import adapt
from gnjax.spectra.krylov.host_products import beside_xla
from gnjax.spectra.krylov.lanczos import Run, lanczos, missed_probability, random_rows
from gnjax.spectra.krylov.lanczos import ritz as ritz_values
from gnjax.spectra.whole import host_matrix

_BLOCK = 4
_LOCATE_STEPS = 40
_CERTIFY_STEPS = 200
_WIDENINGS = (1.0, 8.0, 64.0)
_TRIES = 2  # of each
_LARGEST_SHARE = 0.1
_DEPENDENT = 1e-10
_SETTLED = 0.05  # of rtol, between two checks
_CHECK_EVERY = 2  # of the steps that locate, whose check costs a product
_DEFLATED = 4
_PAYS = 0.05  # residual^2 over the extreme values of the deflated block
_EXTRA_CHECKS = 2

_Rows = TypeVar("_Rows", jax.Array, np.ndarray)

Groups = tuple[tuple[int, int], ...]
"""(rows, columns) of the runs of equal length in a staircase, top to bottom."""


@dataclass(frozen=True)
class Reduced:
    """sum_l A_l (x) B_l on its range, of size the sum of rows x columns of ``groups``."""

    operator: SumOfKroneckers
    groups: Groups

    @property
    def size(self) -> int:
        return sum(rows * columns for rows, columns in self.groups)


@dataclass(frozen=True)
class End:
    """One end of a spectrum: the Ritz value bounds it from inside, ``bound`` from outside."""

    ritz: float
    bound: float
    missed: float
    products: int


def reduce(op: SumOfKroneckers) -> Reduced:
    """Restrict to the staircase (the whole space when no factors are known or nothing is null)."""
    factors = op.factors
    _, k, _ = op.lefts.shape
    d = op.rights.shape[-1]
    if factors is None or (min(factors.left_ranks[0], k), factors.right_ranks[-1]) == (k, d):
        return _larger_side_right(op, ((k, d),))
    if factors.left_ranks[-1] == 0 or factors.right_ranks[0] == 0:
        return Reduced(op, ())
    return _restricted(op, factors)


def _larger_side_right(op: SumOfKroneckers, groups: Groups) -> Reduced:
    """A (x) B and B (x) A have the same eigenvalues; the preconditioner wants the larger right."""
    if op.lefts.shape[-1] <= op.rights.shape[-1]:
        return Reduced(op, groups)
    swapped = SumOfKroneckers(op.rights, op.lefts, op.stored_error)
    return Reduced(swapped, tuple((columns, rows) for rows, columns in groups))


def _restricted(op: SumOfKroneckers, factors: KroneckerFactors) -> Reduced:
    stairs = adapt(factors)
    lefts = _padded_grams(stairs.lefts)
    rights = _padded_grams(stairs.rights)
    rotated = stairs.error(*(np.linalg.norm(side, axis=(1, 2)) for side in (lefts, rights)))
    kept = stairs.kept
    if len(lefts[0]) > len(rights[0]):
        lefts, rights = rights, lefts
        kept = np.array([(kept > column).sum() for column in range(kept.max())])
    groups = tuple((len(list(run)), int(columns)) for columns, run in groupby(kept) if columns)
    stored = SumOfKroneckers(jnp.asarray(lefts), jnp.asarray(rights), op.stored_error + rotated)
    return Reduced(stored, groups)


def _padded_grams(factors: tuple[np.ndarray, ...]) -> np.ndarray:
    size = max(len(f) for f in factors)
    grams = np.zeros((len(factors), size, size), factors[0].dtype)
    for gram, factor in zip(grams, factors, strict=True):
        gram[: len(factor), : len(factor)] = factor @ factor.T
    return grams


def packed_matrix(reduced: Reduced) -> np.ndarray:
    """The dense matrix on the range, rows and columns in the order of packed vectors."""
    d = reduced.operator.rights.shape[-1]
    rows = np.repeat([c for _, c in reduced.groups], [r for r, _ in reduced.groups])
    inside = np.concatenate([row * d + np.arange(columns) for row, columns in enumerate(rows)])
    matrix, _ = host_matrix(reduced.operator)
    return matrix if len(inside) == len(matrix) else matrix[np.ix_(inside, inside)]


def ends(reduced: Reduced, *, rtol: float, missed: float, seed: int = 0) -> tuple[End, End]:
    """The largest and the smallest eigenvalue, each missed with a chance of at most ``missed``.

    The smallest takes most of ``rtol``, because the largest is far easier to separate.
    """
    with beside_xla():
        compressed = _compressions(reduced)
        return (
            _end(reduced, compressed, -1.0, _LARGEST_SHARE * rtol, missed, seed),
            _end(reduced, compressed, 1.0, (1 - 2 * _LARGEST_SHARE) * rtol, missed, seed),
        )


def _end(
    reduced: Reduced,
    compressed: tuple[_Compression, ...],
    sign: float,
    rtol: float,
    missed: float,
    seed: int,
) -> End:
    """Locate the end, then certify that nothing lies beyond it; wider where that is too hard.

    ``sign`` is +1 for the smallest eigenvalue and -1 for the largest: sign * eigenvalue is what is
    minimised. Every attempt may be wrong with a chance of ``share``, and the chances of those made
    add up.
    """
    share, spent = missed / (_TRIES * len(_WIDENINGS)), 0.0
    located = _locate(reduced, compressed, sign, rtol)
    best, products = located.ritz, located.run.products + _BLOCK
    candidates = [located.first, best.row]
    for widening in _WIDENINGS:
        for _ in range(_TRIES):
            shift = _beside(best.value, rtol * widening, compressed, sign)
            pencil = _pencil(reduced, compressed, shift, sign)
            known = located.deflation(pencil)
            start = random_rows(reduced.size, _BLOCK, seed, apart=known.rows)
            enough = partial(_decided, floor=known.floor, missed=share)
            run, images = _solve(pencil, start, _CERTIFY_STEPS, enough, known.rows)
            products += run.products + len(known.rows)
            found = _rayleigh_ritz(pencil, run, images)
            candidates.append(found.row)
            best = min(best, found, key=lambda ritz: sign * ritz.value)
            exceeds = _exceeds(run, known.floor)
            if exceeds:
                chance = 0.0 if run.complete else float(missed_probability(run, known.floor)[0])
                if chance <= share:
                    value = _quotient(reduced, candidates, sign)
                    return End(value, shift, spent + chance, products)
            spent += share
            if exceeds:  # but not by enough to be sure of it: a wider gap decides sooner
                break
    unbounded = 0.0 if sign > 0 else np.inf
    return End(_quotient(reduced, candidates, sign), unbounded, 0.0, products)


@dataclass(frozen=True)
class _Ritz:
    """An extreme Ritz value of G and its unit vector."""

    value: float
    row: np.ndarray


def _quotient(reduced: Reduced, candidates: list[np.ndarray], sign: float) -> float:
    """The best x^T G x by products of their own, which carry the rounding of one product alone.

    A Ritz value from a pencil that is nearly singular can be far off; its vector then loses here.
    """
    rows = np.stack(candidates)
    images = np.asarray(_product(reduced.operator, reduced.groups, jnp.asarray(rows)))
    return sign * float((sign * (images * rows).sum(axis=1)).min())


def _beside(value: float, rtol: float, compressed: tuple[_Compression, ...], sign: float) -> float:
    """The shift that lies rtol outside of a value."""
    return _admissible(value - sign * rtol * abs(value), compressed, sign)


@dataclass(frozen=True)
class _Located:
    """A Ritz value near the end, the space that it was found in, and what to deflate beside it."""

    first: np.ndarray  # the best unit vector of the start
    ritz: _Ritz
    pencil: _Pencil
    run: Run
    images: np.ndarray
    beside: float = np.nan  # the shift that ``known`` is for
    known: _Deflation | None = None

    def deflation(self, pencil: _Pencil) -> _Deflation:
        if self.known is not None and pencil.shift == self.beside:
            return self.known
        return _deflation(pencil, self)


def _locate(
    reduced: Reduced, compressed: tuple[_Compression, ...], sign: float, rtol: float
) -> _Located:
    """A Ritz value within a fraction of rtol, and, vectors to deflate if few steps more do."""
    start = _start(reduced, compressed, sign)
    image = np.asarray(_product(reduced.operator, reduced.groups, jnp.asarray(start)))
    values, vectors = np.linalg.eigh(sign * _symmetric(start @ image.T))
    history, first = [sign * float(values[0])], vectors[:, 0] @ start
    shift = _beside(history[0], rtol, compressed, sign)
    pencil = _pencil(reduced, compressed, shift, sign)
    found: list[_Located] = []

    def settled(run: Run, images: list[np.ndarray]) -> bool:
        ritz = _rayleigh_ritz(pencil, run, images)
        history.append(ritz.value)
        if abs(history[-1] - history[-2]) > _SETTLED * rtol * abs(history[-1]):
            return False
        here = _Located(first, ritz, pencil, run, np.concatenate(images))
        beside = _beside(ritz.value, rtol, compressed, sign)
        known = _deflation(_pencil(reduced, compressed, beside, sign), here)
        found.append(replace(here, beside=beside, known=known))
        return len(found) > _EXTRA_CHECKS or len(known.rows) > 0

    rows = np.linalg.qr(_preimage(pencil, start).T)[0].T
    run, images = _solve(pencil, rows, _LOCATE_STEPS, settled)
    if found and found[-1].run.products == run.products:
        return found[-1]
    return _Located(first, _rayleigh_ritz(pencil, run, images), pencil, run, np.concatenate(images))


@dataclass(frozen=True)
class _Deflation:
    """Orthonormal rows X near the end of C, and what the rest of C must exceed.

    With T = X C X^T positive definite and R = C X^T - X^T T, C is positive definite when C on the
    complement of X exceeds |R|^2 / lambda_min(T): its Schur complement T - R^T C'^{-1} R then is.
    Without the few eigenvectors at the very end, the rest lies further away and needs far fewer
    steps to be excluded.
    """

    rows: np.ndarray
    floor: float


def _deflation(pencil: _Pencil, located: _Located) -> _Deflation:
    """As many of the located Ritz vectors of the pencil as are accurate enough to pay.

    Not all that there are: a run in the complement takes part in every certificate.
    """
    moved = pencil.sign * (located.pencil.shift - pencil.shift)
    gram = located.images @ located.images.T
    stiffness = _symmetric(located.run.projection + moved * gram)
    mass = _symmetric(np.eye(len(gram)) + moved * gram)
    none = _Deflation(np.empty((0, pencil.reduced.size)), 0.0)
    try:
        _, vectors = scipy.linalg.eigh(stiffness, mass, subset_by_index=[0, _DEFLATED - 1])
    except (np.linalg.LinAlgError, ValueError):
        return none
    rows = np.linalg.qr(_preimage(pencil, vectors.T @ located.images).T)[0].T
    image = np.asarray(_apply(pencil, rows)[0])
    compressed = _symmetric(rows @ image.T)
    for count in range(min(len(rows), pencil.reduced.size - 1), 0, -1):
        kept = slice(0, count)
        values = np.linalg.eigvalsh(compressed[kept, kept])
        residual = image[kept] - compressed[kept, kept] @ rows[kept]
        squared = float(np.linalg.eigvalsh(residual @ residual.T)[-1])
        if values[0] > 0 and squared <= _PAYS * values[0] * values[-1]:
            return _Deflation(rows[kept], squared / float(values[0]))
    return none


@dataclass(frozen=True)
class _Compression:
    """The eigenvalues and vectors of mean_i sum_l (A_l)_ii B_l over the rows of a group."""

    values: np.ndarray
    vectors: jax.Array


@dataclass(frozen=True)
class _Pencil:
    """C = R^T sign (G - shift I) R with R = Q (Lambda - shift)^{-1/2} a group, R R^T = P^{-1}."""

    reduced: Reduced
    vectors: tuple[jax.Array, ...]  # Q
    scales: tuple[jax.Array, ...]  # the diagonal of sign (Lambda - shift)^{-1/2}, (1, 1, columns)
    shift: float
    sign: float
    noise: float


def _compressions(reduced: Reduced) -> tuple[_Compression, ...]:
    diagonals = np.diagonal(np.asarray(reduced.operator.lefts), axis1=1, axis2=2)  # (L, k)
    compressions, row = [], 0
    for rows, columns in reduced.groups:
        weights = jnp.asarray(diagonals[:, row : row + rows].mean(axis=1))
        mean = np.asarray(_weighted(weights, reduced.operator.rights))[:columns, :columns]
        values, vectors = scipy.linalg.eigh(mean, driver="evd")
        compressions.append(_Compression(values, jnp.asarray(vectors)))
        row += rows
    return tuple(compressions)


@jax.jit
def _weighted(weights: jax.Array, matrices: jax.Array) -> jax.Array:
    return jnp.einsum("l,lij->ij", weights, matrices, precision="highest")


def _start(reduced: Reduced, compressed: tuple[_Compression, ...], sign: float) -> np.ndarray:
    """e (x) v, for v at the end of a compression and e at the end of sum_l (v^T B_l v) A_l."""
    group = int(np.argmin([(sign * c.values).min() for c in compressed]))
    rows, columns = reduced.groups[group]
    first = sum(r for r, _ in reduced.groups[:group])
    offset = sum(r * c for r, c in reduced.groups[:group])
    order = np.argsort(sign * compressed[group].values)[:_BLOCK]
    vectors = np.asarray(compressed[group].vectors)[:, order].T  # (b, columns)
    forms = np.asarray(_quadratic_forms(reduced.operator.rights, vectors))  # (b, L)
    lefts = np.asarray(reduced.operator.lefts)[:, first : first + rows, first : first + rows]
    start = np.zeros((len(vectors), reduced.size))
    for row, form, v in zip(start, forms, vectors, strict=True):
        _, ends = scipy.linalg.eigh(sign * np.tensordot(form, lefts, axes=1))
        row[offset : offset + rows * columns] = np.kron(ends[:, 0], v)
    return start


@jax.jit
def _quadratic_forms(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    columns = vectors.shape[1]
    images = jnp.matmul(matrices[:, :columns, :columns], vectors.T, precision="highest")
    return jnp.einsum("ljb,bj->bl", images, vectors, precision="highest")


def _admissible(shift: float, compressed: tuple[_Compression, ...], sign: float) -> float:
    """The shift, kept where P is safely positive definite."""
    edge = min(float((sign * c.values).min()) for c in compressed)
    width = max(float(np.abs(c.values).max()) for c in compressed)
    return sign * min(sign * shift, edge - 1e-8 * width)


def _pencil(
    reduced: Reduced, compressed: tuple[_Compression, ...], shift: float, sign: float
) -> _Pencil:
    gaps = [sign * (c.values - shift) for c in compressed]
    widest = max(float(gap.max() / gap.min()) for gap in gaps)
    return _Pencil(
        reduced,
        tuple(c.vectors for c in compressed),
        tuple(jnp.asarray(1 / np.sqrt(gap))[None, None, :] for gap in gaps),
        shift,
        sign,
        noise=16 * float(jnp.finfo(reduced.operator.dtype).eps) * max(1.0, widest),
    )


def _solve(
    pencil: _Pencil,
    start: np.ndarray,
    max_steps: int,
    enough: Callable[[Run, list[np.ndarray]], bool],
    apart: np.ndarray | None = None,
) -> tuple[Run, list[np.ndarray]]:
    """Lanczos on C, on the complement of orthonormal rows ``apart``, and the rows R V.

    Those span the space for G.
    """
    images: list[np.ndarray] = []

    def apply(rows: np.ndarray) -> np.ndarray:
        image, inner = _apply(pencil, rows)
        images.append(np.asarray(inner))
        return np.asarray(image)

    run = lanczos(
        apply,
        start,
        max_steps=max_steps,
        noise=pencil.noise,
        enough=lambda run: enough(run, images),
        check_every=_CHECK_EVERY if apart is None else 1,
        apart=apart,
    )
    return run, images


def _apply(pencil: _Pencil, rows: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """C on rows, and R on rows."""
    return _congruence(
        pencil.reduced.operator,
        pencil.reduced.groups,
        pencil.vectors,
        pencil.scales,
        pencil.shift,
        pencil.sign,
        jnp.asarray(rows),
    )


def _decided(run: Run, images: list[np.ndarray], *, floor: float, missed: float) -> bool:
    """C exceeds the floor to the probability asked, or surely is not positive."""
    del images
    if not _exceeds(run, floor):
        values, residuals, _ = ritz_values(run)
        return bool(values[0] < 0 and residuals[0] <= 0.1 * abs(values[0]))
    return bool(missed_probability(run, floor)[0] <= missed)


def _exceeds(run: Run, floor: float) -> bool:
    return bool(np.linalg.eigvalsh(run.projection)[0] > floor)


def _preimage(pencil: _Pencil, rows: np.ndarray) -> np.ndarray:
    """R^{-1} on rows."""
    parts = zip(_parts(pencil.reduced.groups, rows), pencil.vectors, pencil.scales, strict=True)
    return np.concatenate(
        [((p @ np.asarray(q)) / np.asarray(s)).reshape(len(rows), -1) for p, q, s in parts], axis=1
    )


def _rayleigh_ritz(pencil: _Pencil, run: Run, images: list[np.ndarray]) -> _Ritz:
    """The extreme Ritz value of G on span Z, Z = R V, where Z^T (G - s) Z = sign T.

    Directions in which Z is dependent to working precision are left out, which keeps the value on
    the inside.
    """
    rows, projection = np.concatenate(images), run.projection
    lengths = np.linalg.norm(rows, axis=1)
    present = lengths > _DEPENDENT * lengths.max()
    lengths, rows = lengths[present], rows[present]
    projection = projection[np.ix_(present, present)] / np.outer(lengths, lengths)
    weights, vectors = np.linalg.eigh((rows @ rows.T) / np.outer(lengths, lengths))
    kept = weights > _DEPENDENT * weights[-1]
    basis = vectors[:, kept] / np.sqrt(weights[kept])
    values, vectors = np.linalg.eigh(_symmetric(basis.T @ projection @ basis))
    row = (basis @ vectors[:, 0] / lengths) @ rows
    return _Ritz(pencil.shift + pencil.sign * float(values[0]), row / np.linalg.norm(row))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


@partial(jax.jit, static_argnames=("groups",))
def _congruence(
    op: SumOfKroneckers,
    groups: Groups,
    vectors: tuple[jax.Array, ...],
    scales: tuple[jax.Array, ...],
    shift: float,
    sign: float,
    rows: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """C on rows, and R on rows."""
    scaled = [part * s for part, s in zip(_parts(groups, rows), scales, strict=True)]
    inner = _packed(_times(part, q.T) for part, q in zip(scaled, vectors, strict=True))
    image = sign * (_product(op, groups, inner) - shift * inner)
    parts = zip(_parts(groups, image), vectors, scales, strict=True)
    return _packed(_times(part, q) * s for part, q, s in parts), inner


@partial(jax.jit, static_argnames=("groups",))
def _product(op: SumOfKroneckers, groups: Groups, rows: jax.Array) -> jax.Array:
    """G on packed rows (b, n): unpack the staircase, multiply, pack."""
    d = op.rights.shape[-1]
    parts = [
        jnp.pad(part, ((0, 0), (0, 0), (0, d - part.shape[-1]))) for part in _parts(groups, rows)
    ]
    full = jnp.concatenate(parts, axis=1)  # (b, k', d')
    k = op.lefts.shape[-1]
    full = jnp.pad(full, ((0, 0), (0, k - full.shape[1]), (0, 0)))
    image = op.mv(full.reshape(len(rows), -1).T).T.reshape(len(rows), k, d)
    packed, row = [], 0
    for count, columns in groups:
        packed.append(image[:, row : row + count, :columns])
        row += count
    return _packed(packed)


def _times(part: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.matmul(part, matrix, precision="highest")


def _packed(parts: Iterable[jax.Array]) -> jax.Array:
    return jnp.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _parts(groups: Groups, rows: _Rows) -> list[_Rows]:
    parts: list[_Rows] = []
    offset = 0
    for count, columns in groups:
        part = rows[:, offset : offset + count * columns]
        parts.append(part.reshape(-1, count, columns))
        offset += count * columns
    return parts
