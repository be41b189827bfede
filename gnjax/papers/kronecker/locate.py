"""A Ritz value near an end of the spectrum, and the vectors to deflate beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gnjax.papers.kronecker.packed import product
from gnjax.papers.kronecker.pencil import (
    BLOCK,
    Compression,
    Pencil,
    Ritz,
    beside,
    pencil_at,
    preimage,
    rayleigh_ritz,
    solve,
    symmetric,
    transposed,
)
from gnjax.papers.kronecker.reduced import Reduced
from gnjax.spectra.krylov.lanczos import Run

_LOCATE_STEPS = 40
_SETTLED = 0.05  # settled if the value changes by less than this times rtol between checks
_DEFLATED = 4
_PAYS = 0.05  # the largest residual^2 / (lambda_min lambda_max) of a deflated block
_EXTRA_CHECKS = 2


@dataclass(frozen=True)
class Located:
    """A Ritz value near the end, the run that found it, and the vectors to deflate."""

    first: np.ndarray  # the unit vector of the best Ritz value of the start
    ritz: Ritz
    pencil: Pencil
    run: Run
    images: np.ndarray
    beside: float = np.nan  # the shift for which ``known`` was computed
    known: _Deflation | None = None

    def deflation(self, pencil: Pencil) -> _Deflation:
        if self.known is not None and pencil.shift == self.beside:
            return self.known
        return _deflation(pencil, self)


def locate(
    reduced: Reduced, compressed: tuple[Compression, ...], sign: float, rtol: float
) -> Located:
    """Find a Ritz value to a fraction of rtol; take a few more steps to find vectors to deflate."""
    start = _start(reduced, compressed, sign)
    image = np.asarray(product(reduced.operator, reduced.groups, start))
    values, vectors = np.linalg.eigh(sign * symmetric(start @ image.T))
    history, first = [sign * float(values[0])], vectors[:, 0] @ start
    shift = beside(history[0], rtol, compressed, sign)
    pencil = pencil_at(reduced, compressed, shift, sign)
    found: list[Located] = []

    def settled(run: Run, images: list[np.ndarray]) -> bool:
        ritz = rayleigh_ritz(pencil, run, images)
        history.append(ritz.value)
        if abs(history[-1] - history[-2]) > _SETTLED * rtol * abs(history[-1]):
            return False
        here = Located(first, ritz, pencil, run, np.concatenate(images))
        outside = beside(ritz.value, rtol, compressed, sign)
        known = _deflation(pencil.at(outside), here)
        found.append(replace(here, beside=outside, known=known))
        return len(found) > _EXTRA_CHECKS or len(known.rows) > 0

    rows = np.linalg.qr(preimage(pencil, start).T)[0].T
    run, images = solve(pencil, rows, _LOCATE_STEPS, settled)
    if found and found[-1].run.products == run.products:
        return found[-1]
    return Located(first, rayleigh_ritz(pencil, run, images), pencil, run, np.concatenate(images))


@dataclass(frozen=True)
class _Deflation:
    """Orthonormal rows X near the end of C, and the floor that C must exceed on their complement.

    With T = X C X^T positive definite and R = C X^T - X^T T, C is positive definite when C on the
    complement of X exceeds |R|^2 / lambda_min(T): its Schur complement T - R^T C'^{-1} R then is.
    Without the few eigenvectors at the very end, the other eigenvalues are further away from zero,
    and far fewer steps show that they are positive.
    """

    rows: np.ndarray
    floor: float


def _deflation(pencil: Pencil, located: Located) -> _Deflation:
    """Deflate as many of the Ritz vectors near the end as are accurate enough.

    At least one dimension is left, because a certificate needs a run in the complement. The images
    follow from the recurrence of the run, C V^T = V^T T + Q^T B, and from C' = C + moved R^T R.
    """
    moved = pencil.sign * (located.pencil.shift - pencil.shift)
    run, images = located.run, located.images
    none = _Deflation(np.empty((0, pencil.reduced.size)), 0.0)
    try:
        _, vectors = np.linalg.eigh(symmetric(run.projection + moved * (images @ images.T)))
    except np.linalg.LinAlgError:
        return none
    vectors = vectors[:, :_DEFLATED]
    rows = vectors.T @ run.basis
    image = (run.projection @ vectors).T @ run.basis
    image += (run.remainder @ vectors[-run.block :]).T @ run.following
    image += moved * transposed(pencil, vectors.T @ images)
    compressed = symmetric(rows @ image.T)
    for count in range(min(len(rows), pencil.reduced.size - 1), 0, -1):
        kept = slice(0, count)
        values = np.linalg.eigvalsh(compressed[kept, kept])
        residual = image[kept] - compressed[kept, kept] @ rows[kept]
        squared = float(np.linalg.eigvalsh(residual @ residual.T)[-1])
        if values[0] > 0 and squared <= _PAYS * values[0] * values[-1]:
            return _Deflation(rows[kept], squared / float(values[0]))
    return none


def _start(reduced: Reduced, compressed: tuple[Compression, ...], sign: float) -> np.ndarray:
    """Start vectors e (x) v: v is an extreme eigenvector of a compression of G.

    e is the extreme eigenvector of sum_l (v^T B_l v) A_l.
    """
    group = int(np.argmin([(sign * c.values).min() for c in compressed]))
    rows, columns = reduced.groups[group]
    first = sum(r for r, _ in reduced.groups[:group])
    offset = sum(r * c for r, c in reduced.groups[:group])
    order = np.argsort(sign * compressed[group].values)[:BLOCK]
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
