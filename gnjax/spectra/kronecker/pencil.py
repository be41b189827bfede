"""The preconditioned matrix C of one shift, whose sign says on which side of it eigenvalues lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics import lapack
from gnjax.numerics.host import on_device
from gnjax.operators.kroneckers import SumOfKroneckers
from gnjax.spectra.kronecker.packed import Groups, packed, parts_of, product
from gnjax.spectra.kronecker.reduced import Reduced
from gnjax.spectra.krylov.lanczos import Run, lanczos

BLOCK = 4  # vectors that are multiplied together
_DEPENDENT = 1e-10
_CHECK_EVERY = 2  # steps between checks while locating the end; a check costs a product


@dataclass(frozen=True)
class Ritz:
    """An extreme Ritz value of G and its unit vector."""

    value: float
    row: np.ndarray


@dataclass(frozen=True)
class Compression:
    """The eigenpairs of the mean of sum_l (A_l)_ii B_l over the rows i of a group."""

    values: np.ndarray
    vectors: jax.Array


@dataclass(frozen=True)
class Pencil:
    """C = R^T sign (G - shift I) R, where R is Q (Lambda - s)^{-1/2} in a group, s near ``shift``.

    For any invertible R, C is positive definite exactly if sign (G - shift I) is. So the shift can
    change while R stays the same.
    """

    reduced: Reduced
    vectors: tuple[jax.Array, ...]  # Q
    scales: tuple[jax.Array, ...]  # the diagonal of sign (Lambda - s)^{-1/2}, (1, 1, columns)
    shift: float
    sign: float
    noise: float

    def at(self, shift: float) -> Pencil:
        """The pencil of another shift with the same R."""
        return replace(self, shift=shift)


def compressions(reduced: Reduced) -> tuple[Compression, ...]:
    """One compression of G for each group of rows of the staircase."""
    diagonals = np.diagonal(np.asarray(reduced.operator.lefts), axis1=1, axis2=2)  # (L, k)
    found, row = [], 0
    for rows, columns in reduced.groups:
        weights = on_device(diagonals[:, row : row + rows].mean(axis=1))
        mean = np.asarray(_weighted(weights, reduced.operator.rights))[:columns, :columns]
        values, vectors = lapack.eigenpairs(mean)
        found.append(Compression(values, on_device(vectors)))
        row += rows
    return tuple(found)


@jax.jit
def _weighted(weights: jax.Array, matrices: jax.Array) -> jax.Array:
    return jnp.einsum("l,lij->ij", weights, matrices, precision="highest")


def _admissible(shift: float, compressed: tuple[Compression, ...], sign: float) -> float:
    """The shift, moved outwards if needed so that P is safely positive definite."""
    edge = min(float((sign * c.values).min()) for c in compressed)
    width = max(float(np.abs(c.values).max()) for c in compressed)
    return sign * min(sign * shift, edge - 1e-8 * width)


def beside(value: float, rtol: float, compressed: tuple[Compression, ...], sign: float) -> float:
    """The shift that lies a relative distance of rtol further out than ``value``."""
    return _admissible(value - sign * rtol * abs(value), compressed, sign)


def pencil_at(
    reduced: Reduced, compressed: tuple[Compression, ...], shift: float, sign: float
) -> Pencil:
    """The pencil of a shift that is :func:`beside` the end, with R R^T = P^{-1} for that shift."""
    gaps = [sign * (c.values - shift) for c in compressed]
    widest = max(float(gap.max() / gap.min()) for gap in gaps)
    return Pencil(
        reduced,
        tuple(c.vectors for c in compressed),
        tuple(on_device((1 / np.sqrt(gap))[None, None, :]) for gap in gaps),
        shift,
        sign,
        noise=16 * float(jnp.finfo(reduced.operator.dtype).eps) * max(1.0, widest),
    )


def solve(
    pencil: Pencil,
    start: np.ndarray,
    max_steps: int,
    enough: Callable[[Run, list[np.ndarray]], bool],
    apart: np.ndarray | None = None,
) -> tuple[Run, list[np.ndarray]]:
    """Run Lanczos on C in the complement of the orthonormal rows ``apart``.

    Returns the run and the rows R V, which span the space for Rayleigh-Ritz on G.
    """
    images: list[np.ndarray] = []

    def apply(rows: np.ndarray) -> np.ndarray:
        image, inner = product_with(pencil, rows)
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


def product_with(pencil: Pencil, rows: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """C on rows, and R on rows."""
    return _congruence(
        pencil.reduced.operator,
        pencil.reduced.groups,
        pencil.vectors,
        pencil.scales,
        pencil.shift,
        pencil.sign,
        rows,
    )


def transposed(pencil: Pencil, rows: np.ndarray) -> np.ndarray:
    """R^T on rows, in host memory."""
    return _rotated(pencil, rows, 1)


def preimage(pencil: Pencil, rows: np.ndarray) -> np.ndarray:
    """R^{-1} on rows, in host memory."""
    return _rotated(pencil, rows, -1)


def _rotated(pencil: Pencil, rows: np.ndarray, power: int) -> np.ndarray:
    """(Lambda - s)^{-power / 2} Q^T on rows: R^T for 1, R^{-1} for -1."""
    parts = zip(parts_of(pencil.reduced.groups, rows), pencil.vectors, pencil.scales, strict=True)
    turned = [(part @ np.asarray(q)) * np.asarray(s) ** power for part, q, s in parts]
    return np.concatenate([part.reshape(len(rows), -1) for part in turned], axis=1)


def rayleigh_ritz(pencil: Pencil, run: Run, images: list[np.ndarray]) -> Ritz:
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
    values, vectors = np.linalg.eigh(symmetric(basis.T @ projection @ basis))
    row = (basis @ vectors[:, 0] / lengths) @ rows
    return Ritz(pencil.shift + pencil.sign * float(values[0]), row / np.linalg.norm(row))


def symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


@partial(jax.jit, static_argnames=("groups",))
def _congruence(
    op: SumOfKroneckers,
    groups: Groups,
    vectors: tuple[jax.Array, ...],
    scales: tuple[jax.Array, ...],
    shift: float,
    sign: float,
    rows: jax.Array | np.ndarray,
) -> tuple[jax.Array, jax.Array]:
    """C on rows, and R on rows."""
    parts = parts_of(groups, jnp.asarray(rows))
    scaled = [part * s for part, s in zip(parts, scales, strict=True)]
    inner = packed(_times(part, q.T) for part, q in zip(scaled, vectors, strict=True))
    image = sign * (product(op, groups, inner) - shift * inner)
    turned = zip(parts_of(groups, image), vectors, scales, strict=True)
    return packed(_times(part, q) * s for part, q, s in turned), inner


def _times(part: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.matmul(part, matrix, precision="highest")
