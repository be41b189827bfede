"""A factor J with A = J J^T in memory, and products with A.

J is stored in tiles: all its rows and some of its columns, in float64 or rounded to float32. A
product with A reads every tile once, A w = sum_t J_t (J_t^T w). Products of a run are made in the
precision in which J is stored; whatever an answer rests on is computed in float64. On an
accelerator the rows of J never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import filled_rows, on_device, on_host, zeros
from gnjax.numerics.precision import x64
from gnjax.spectra.pencil.one_end import Products

TILE = 128  # columns: a tile of 10,000 rows then stays in a cache between its two products
DEVICE_TILE = 16384  # columns of a tile on an accelerator
_PANEL = 4096  # columns that are multiplied together for J J^T


@dataclass(frozen=True)
class StoredFactor:
    """J (m, q) in tiles.

    Attributes:
      tiles: J (m, c) some columns at a time, the last one filled up with zeros.
      shape: of J.
      lost: a bound on ||J - J as stored||_F from the rounding to the precision of the tiles.
      squared: ||J||_F^2.
    """

    tiles: tuple[jax.Array, ...]
    shape: tuple[int, int]
    lost: float
    squared: float

    @property
    def dtype(self) -> np.dtype:
        return self.tiles[0].dtype

    @property
    def exact(self) -> bool:
        return self.dtype == np.float64

    def products(self, rows: np.ndarray) -> Products:
        """J J^T w and w^T J J^T w for rows w, in float64 whatever the precision of J is."""
        return _products(self.tiles, rows, np.dtype(np.float64))

    def light(self, rows: np.ndarray) -> np.ndarray:
        """J J^T w for rows w, in the precision in which J is stored."""
        return _products(self.tiles, rows, self.dtype).images


def store(
    blocks: Iterable[np.ndarray | jax.Array],
    shape: tuple[int, int],
    *,
    by_rows: bool,
    dtype: np.dtype,
    columns: int = TILE,
    on_block: Callable[[np.ndarray | jax.Array], object] = lambda block: None,
    on_accelerator: bool = False,
) -> StoredFactor:
    """Store J in tiles, from blocks of its rows or of its columns that come one after the other.

    Args:
      blocks: in float64, rows of J with ``by_rows``, and otherwise rows of J^T.
      shape: (m, q) of J.
      by_rows: see ``blocks``.
      dtype: the precision of the tiles.
      columns: of a tile, which has all m rows.
      on_block: called with each block once it is stored.
      on_accelerator: whether the blocks and the tiles are on a device. Blocks of columns are then
        tiles as they are.
    """
    columns = min(columns, shape[1])
    if on_accelerator:
        with x64():
            device_blocks = _reported(map(jnp.asarray, blocks), on_block)
            if by_rows:
                return _from_rows(device_blocks, shape, dtype, columns)
            return _from_columns(device_blocks, shape, dtype)
    tiles = [zeros((shape[0], columns), dtype) for _ in range(-(-shape[1] // columns))]
    start, lost_squared, squared = 0, 0.0, 0.0
    for block in map(on_host, blocks):
        stop = start + len(block)
        squared += float(np.vdot(block, block))
        if by_rows:
            lost_squared += _write([tile[start:stop] for tile in tiles], block, 0)
        else:
            lost_squared += _write(tiles, block.T, start)
        on_block(block)
        start = stop
    with x64():
        device_tiles = tuple(map(on_device, tiles))
    return StoredFactor(device_tiles, shape, _lost(lost_squared), squared)


def _write(tiles: Sequence[np.ndarray], part: np.ndarray, first: int) -> float:
    """Write some columns of J into the tiles, and return the squared Frobenius norm of rounding.

    ``part`` (rows, c) are the columns from number ``first`` on, and may reach over several tiles.
    All tiles have the same number of columns and the rows of ``part``.
    """
    width, last, lost_squared = tiles[0].shape[1], first + part.shape[1], 0.0
    for index in range(first // width, -(-last // width)):
        begin, end = max(first, index * width), min(last, (index + 1) * width)
        columns = part[:, begin - first : end - first]
        target = tiles[index][:, begin - index * width : end - index * width]
        with np.errstate(over="ignore"):  # beyond float32, infinite, and so is its rounding
            target[:] = columns
        if target.dtype != columns.dtype:
            rounding = columns - target
            # BLAS would wait for its threads, which takes longer than this sum.
            lost_squared += float(np.einsum("ij,ij", rounding, rounding))
    return lost_squared


def _reported(
    blocks: Iterable[jax.Array], on_block: Callable[[jax.Array], object]
) -> Iterator[jax.Array]:
    """Yield the blocks, and call ``on_block`` with each once it is used."""
    for block in blocks:
        yield block
        on_block(block)


def _from_rows(
    blocks: Iterable[jax.Array], shape: tuple[int, int], dtype: np.dtype, columns: int
) -> StoredFactor:
    """Store J on the device in tiles of ``columns`` columns each, the last one narrower.

    ``blocks`` yields some rows of J at a time, in float64. The tiles have the precision ``dtype``.
    Two numbers are stored with the tiles: the Frobenius norm of what rounding to ``dtype`` loses,
    which bounds the error of the stored J, and the squared Frobenius norm of J.
    """
    starts = range(0, shape[1], columns)
    tiles = [jnp.zeros((shape[0], min(columns, shape[1] - start)), dtype) for start in starts]
    row, lost_squared, squared = 0, jnp.zeros(()), jnp.zeros(())
    for block in blocks:
        squared += _square(block)
        for index, start in enumerate(starts):
            tiles[index], rounding_squared = _written(tiles[index], block, row, start)
            lost_squared += rounding_squared
        row += len(block)
    return StoredFactor(tuple(tiles), shape, _lost(float(lost_squared)), float(squared))


def _from_columns(
    blocks: Iterable[jax.Array], shape: tuple[int, int], dtype: np.dtype
) -> StoredFactor:
    """Store J on the device, from blocks of rows of J^T in float64: each, transposed, is a tile.

    ``dtype`` is the precision of the tiles. What it cuts off is measured, as in :func:`_from_rows`.
    """
    tiles, lost_squared, squared = [], jnp.zeros(()), jnp.zeros(())
    for block in blocks:
        tile, rounding_squared = _transposed(block, dtype)
        tiles.append(tile)
        lost_squared, squared = lost_squared + rounding_squared, squared + _square(block)
    return StoredFactor(tuple(tiles), shape, _lost(float(lost_squared)), float(squared))


def _lost(squared: float) -> float:
    """The Frobenius norm of the rounding from its square, with room for the rounding of the sum."""
    return (1 + 1e-6) * squared**0.5


@jax.jit
def _square(block: jax.Array) -> jax.Array:
    """The squared Frobenius norm."""
    return jnp.vdot(block, block, precision="highest")


@partial(jax.jit, donate_argnums=0)
def _written(
    tile: jax.Array, block: jax.Array, row: int, column: int
) -> tuple[jax.Array, jax.Array]:
    """The tile with a part of ``block`` in its rows from number ``row`` on, and the rounding.

    ``block`` has whole rows of J, and the tile has the columns of J from number ``column`` on. The
    rounding is the squared Frobenius norm of what the precision of the tile cuts off.
    """
    part = jax.lax.dynamic_slice(block, (0, column), (len(block), tile.shape[1]))
    rounded = part.astype(tile.dtype)
    return jax.lax.dynamic_update_slice(tile, rounded, (row, 0)), _square(part - rounded)


@partial(jax.jit, static_argnums=1)
def _transposed(block: jax.Array, dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    """Rows of J^T as columns of J in a precision, and the squared Frobenius norm of rounding."""
    rounded = block.astype(dtype)
    return rounded.T, _square(block - rounded)


def gram_on_device(tiles: Sequence[jax.Array]) -> jax.Array:
    """M M^T in float64, on the device, for M in any precision and in tiles of its columns."""
    with x64():
        total = jnp.zeros((tiles[0].shape[0],) * 2)
        for tile in tiles:
            total = _gram_added(total, tile)
        return total


@partial(jax.jit, donate_argnums=0)
def _gram_added(total: jax.Array, tile: jax.Array) -> jax.Array:
    """``total`` + M M^T for the columns M of one tile, in the precision of ``total``."""
    tile = tile.astype(total.dtype)
    return total + jnp.matmul(tile, tile.T, precision="highest")


def gram(tiles: Sequence[jax.Array]) -> np.ndarray:
    """M M^T in host memory, for M in tiles of its columns, in the precision of the tiles.

    Several tiles are multiplied together, as panels of ``_PANEL`` columns, since BLAS is faster
    with wide panels.
    """
    rows, tiles_per_panel = tiles[0].shape[0], max(1, _PANEL // tiles[0].shape[1])
    total = np.zeros((rows, rows), tiles[0].dtype)
    for start in range(0, len(tiles), tiles_per_panel):
        of_panel = tiles[start : start + tiles_per_panel]
        panel = np.concatenate([on_host(tile) for tile in of_panel], axis=1)
        total += panel @ panel.T
    return total


def _products(tiles: Sequence[jax.Array], rows: np.ndarray, dtype: np.dtype) -> Products:
    """M M^T w for every row w, and W M M^T W^T for all rows W (b, m), with M in tiles of columns.

    The products with each tile are computed in ``dtype``, and added up in float64.
    """
    count = len(rows)
    with x64():
        w = filled_rows(rows, dtype)  # with rows of zeros behind, so that few shapes are compiled
        images = on_device(zeros(w.shape, np.float64))
        forms = on_device(zeros((len(w), len(w)), np.float64))
        for tile in tiles:
            images, forms = _added(images, forms, tile, w)
        return Products(on_host(images)[:count], on_host(forms)[:count, :count])


@partial(jax.jit, donate_argnums=(0, 1))
def _added(
    images: jax.Array, forms: jax.Array, tile: jax.Array, w: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sums of :func:`_products` with the terms M M^T w and w^T M M^T w of one more tile M."""
    times = partial(jnp.matmul, precision="highest")
    tile = tile.astype(w.dtype)
    inner = times(w, tile)  # w^T M as rows
    more_images, more_forms = times(inner, tile.T), times(inner, inner.T)
    return images + more_images.astype(images.dtype), forms + more_forms.astype(forms.dtype)
