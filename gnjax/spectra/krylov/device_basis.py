"""A Krylov basis on the device: rows in the precision of the products, divided over all devices.

A row is cut into slabs of at most 2^14 numbers, so that the basis V of r rows is an array (slabs,
r, width), with zeros behind the last number. Every device holds the same slabs of all rows. Sums
over a slab are in the basis's own precision, and those over the slabs in float64 in host memory: a
sum of 10^8 terms in float32, one after the other, would have no correct digit. An array that is
changed is donated, so that a second basis is never stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gnjax.numerics.host import on_host
from gnjax.spectra.krylov.host_products import refuse_nonfinite

_SLAB = 2**14  # numbers that are added in the basis's own precision
_PIECES = 32  # a rotation works on this many pieces of a slab, one after the other
_STREAM = 104729
_AXIS = "parameters"


@dataclass(frozen=True)
class Layout:
    """How vectors of ``size`` numbers lie on the devices: as (slabs, width)."""

    size: int
    slabs: int
    width: int
    dtype: jnp.dtype
    mesh: Mesh | None  # None: all on one device

    def placed(self, array: jax.Array) -> jax.Array:
        """The array with its first axis, that of the slabs, divided over the devices."""
        if self.mesh is None:
            return array
        sharding = NamedSharding(self.mesh, PartitionSpec(_AXIS))
        return jax.lax.with_sharding_constraint(array, sharding)


def layout(size: int, dtype: jnp.dtype, devices: tuple[jax.Device, ...] = ()) -> Layout:
    """How vectors (size,) are cut into slabs of ``width`` numbers, and these put on the devices.

    Every device has as many slabs as any other; without ``devices`` all are on one. The width is a
    multiple of ``_PIECES``, so that there may be room behind the last number of a vector.
    """
    count = max(1, len(devices))
    share = -(-size // count)  # numbers on each device, rounded up
    width = min(_SLAB, _PIECES * -(-share // _PIECES))
    slabs = count * -(-share // width)
    mesh = Mesh(np.array(devices), (_AXIS,)) if count > 1 else None
    return Layout(size, slabs, width, jnp.dtype(dtype), mesh)


@partial(jax.jit, static_argnums=(0, 1))
def empty_basis(form: Layout, rows: int) -> jax.Array:
    """A basis (slabs, rows, width) of zeros."""
    return form.placed(jnp.zeros((form.slabs, rows, form.width), form.dtype))


@partial(jax.jit, static_argnums=0)
def random_row(form: Layout, number: int) -> jax.Array:
    """The ``number``-th row of normal random numbers (slabs, width), zero behind a vector's end.

    Its numbers depend on ``number`` and not on the layout. The random stream is different from
    those from which the caller may have drawn weights.
    """
    key = jax.random.fold_in(jax.random.key(_STREAM), number)
    normal = jax.random.normal(key, (form.slabs, form.width), form.dtype)
    slab, column = (jax.lax.broadcasted_iota(int, normal.shape, axis) for axis in (0, 1))
    entry = form.width * slab + column  # the index in the vector; zeros lie behind its end
    return form.placed(jnp.where(entry < form.size, normal, 0.0))


@partial(jax.jit, static_argnums=0)
def as_row(form: Layout, vector: Any) -> jax.Array:
    """A vector (n,) with zeros behind it, of shape (slabs, width), as the basis stores it."""
    missing = form.slabs * form.width - form.size
    padded = jnp.pad(jnp.asarray(vector, form.dtype), (0, missing))
    return form.placed(padded.reshape(form.slabs, form.width))


@partial(jax.jit, static_argnums=0)
def as_vector(form: Layout, row: jax.Array) -> jax.Array:
    """A row (slabs, width) as a vector (n,)."""
    return row.reshape(-1)[: form.size]


@jax.jit
def row_of(basis: jax.Array, index: int) -> jax.Array:
    """Row number ``index`` of the basis, (slabs, width)."""
    return jax.lax.dynamic_index_in_dim(basis, index, 1, keepdims=False)


@jax.jit
def combination(basis: jax.Array, coefficients: Any) -> jax.Array:
    """w^T V for the basis V (slabs, rows, width) and coefficients w (rows,), as a row (slabs,
    width).

    The product is computed for each slab, so that no axis of V is moved.
    """
    by_slab = jnp.broadcast_to(coefficients, basis.shape[:2]).astype(basis.dtype)
    return jnp.einsum("sr,src->sc", by_slab, basis, precision="highest")


def orthogonalised(
    basis: jax.Array, row: jax.Array, filled: int, negligible: float
) -> tuple[jax.Array, np.ndarray, float]:
    """Orthogonalise a row (slabs, width) against V, the first ``filled`` rows of the basis.

    Returns what is left of the row, V times the given row (filled,), and the length that is left.
    The projection is subtracted at least twice, because rounding in one pass leaves a part in V,
    and again as long as that shortens the row much and its length is not ``negligible``.
    """
    projected, length = np.zeros(filled), math.inf
    for attempt in range(_ATTEMPTS):
        length_before = length
        correction = np.zeros(basis.shape[1])
        # The sum over slabs is in float64: in float32 a long sum would have no correct digit.
        correction[:filled] = on_host(_shares(basis, row)).astype(np.float64).sum(axis=0)[:filled]
        row = _less(basis, row, correction)
        projected, length = projected + correction[:filled], norm(row)
        # A row that keeps most of its length in a pass was nearly orthogonal to V before it.
        if attempt and (length <= negligible or length > _KEPT * length_before):
            break
    return row, projected, length


_ATTEMPTS = 4
_KEPT = 0.7  # a row that keeps more than this part of its length was nearly orthogonal to V


def norm(row: jax.Array) -> float:
    """The length of a row (slabs, width); a row with NaN or Inf is refused."""
    largest, squares = _squares(row)
    peak = float(on_host(largest))
    refuse_nonfinite(peak)
    return peak * math.sqrt(on_host(squares).astype(np.float64).sum())


@jax.jit
def _squares(row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest absolute value, and for each slab the sum of (number / largest)^2."""
    peak = jnp.abs(row).max()
    return peak, jnp.square(row / jnp.where(peak > 0, peak, 1.0)).sum(axis=1)


@jax.jit
def _shares(basis: jax.Array, row: jax.Array) -> jax.Array:
    """For each slab its part of the products of all rows of V with a row: (slabs, rows)."""
    return jnp.einsum("src,sc->sr", basis, row, precision="highest")


@partial(jax.jit, donate_argnums=1)
def _less(basis: jax.Array, row: jax.Array, coefficients: Any) -> jax.Array:
    """The row minus w^T V, for the coefficients w."""
    return row - combination(basis, coefficients)


@partial(jax.jit, donate_argnums=0)
def with_row(basis: jax.Array, row: jax.Array, index: int, scale: float) -> jax.Array:
    """The basis with ``scale`` times ``row`` stored as its row number ``index``."""
    entry = (row * jnp.asarray(scale, row.dtype))[:, None]
    return jax.lax.dynamic_update_slice_in_dim(basis, entry, index, 1)


def rotated(basis: jax.Array, matrix: np.ndarray) -> jax.Array:
    """The basis V (slabs, rows, width) whose first p rows are replaced by M V, for M (p, rows)."""
    for start in range(0, basis.shape[2], basis.shape[2] // _PIECES):
        basis = _rotated_piece(basis, matrix, start)
    return basis


@partial(jax.jit, donate_argnums=0)
def _rotated_piece(basis: jax.Array, matrix: Any, start: int) -> jax.Array:
    """The basis after :func:`rotated` for ``width / _PIECES`` columns from ``start`` on alone."""
    slabs, _, width = basis.shape
    piece = jax.lax.dynamic_slice_in_dim(basis, start, width // _PIECES, 2)
    by_slab = jnp.broadcast_to(matrix, (slabs, *matrix.shape)).astype(basis.dtype)
    turned = jnp.einsum("spr,src->spc", by_slab, piece, precision="highest")
    return jax.lax.dynamic_update_slice(basis, turned, (0, 0, start))
