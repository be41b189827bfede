"""A factor J with A = J J^T in memory, and products with A.

J is stored in tiles: all its rows and some of its columns, in float64 or rounded to float32. A
product with A reads every tile once, A w = sum_t J_t (J_t^T w). On an accelerator the rows of J
never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import filled_rows, on_device, on_host, zeros
from gnjax.numerics.precision import x64
from gnjax.spectra.preconditioned_ends.one_end import Products

TILE = 128  # columns: a tile of 10,000 rows then stays in a cache between its two products
DEVICE_TILE = 16384  # columns of a tile on an accelerator
_ROUNDED_SUM = 1 + 1e-6  # room for the rounding of a root of a sum of squares
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
            return _on_accelerator(blocks, shape, by_rows, dtype, columns, on_block)
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
    return StoredFactor(device_tiles, shape, _ROUNDED_SUM * lost_squared**0.5, squared)


def _write(tiles: Sequence[np.ndarray], part: np.ndarray, first: int) -> float:
    """Write some columns of J into the tiles, and return the squared Frobenius norm of rounding.

    ``part`` (rows, c) are the columns from number ``first`` on, and may reach over several tiles.
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


def _on_accelerator(
    blocks: Iterable[np.ndarray | jax.Array],
    shape: tuple[int, int],
    by_rows: bool,
    dtype: np.dtype,
    columns: int,
    on_block: Callable[[jax.Array], object],
) -> StoredFactor:
    """:func:`store` for blocks and tiles on a device; the last tile may be narrower."""
    starts = range(0, shape[1], columns) if by_rows else ()
    tiles = [jnp.zeros((shape[0], min(columns, shape[1] - start)), dtype) for start in starts]
    row, lost_squared, squared = 0, jnp.zeros(()), jnp.zeros(())
    for block in map(jnp.asarray, blocks):
        squared += _square(block)
        for index, start in enumerate(starts):
            tiles[index], rounding_squared = _written(tiles[index], block, row, start)
            lost_squared += rounding_squared
        if not by_rows:  # the block is a tile
            tile = jnp.zeros((shape[0], len(block)), dtype)
            tile, rounding_squared = _written(tile, block.T, 0, 0)
            tiles.append(tile)
            lost_squared += rounding_squared
        row += len(block)
        on_block(block)
    lost = _ROUNDED_SUM * float(lost_squared) ** 0.5
    return StoredFactor(tuple(tiles), shape, lost, float(squared))


@jax.jit
def _square(block: jax.Array) -> jax.Array:
    """The squared Frobenius norm."""
    return jnp.vdot(block, block, precision="highest")


@partial(jax.jit, donate_argnums=0)
def _written(
    tile: jax.Array, block: jax.Array, row: int, column: int
) -> tuple[jax.Array, jax.Array]:
    """The tile with the ``block``'s columns from ``column`` on in its rows from ``row`` on.

    Also the squared Frobenius norm of what the precision of the tile cuts off.
    """
    part = jax.lax.dynamic_slice(block, (0, column), (len(block), tile.shape[1]))
    rounded = part.astype(tile.dtype)
    return jax.lax.dynamic_update_slice(tile, rounded, (row, 0)), _square(part - rounded)


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
    """M M^T in host memory, for M in tiles of its columns, in the precision of the tiles."""
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
        projected = on_device(zeros((len(w), len(w)), np.float64))
        for tile in tiles:
            images, projected = _added(images, projected, tile, w)
        return Products(on_host(images)[:count], on_host(projected)[:count, :count])


@partial(jax.jit, donate_argnums=(0, 1))
def _added(
    images: jax.Array, projected: jax.Array, tile: jax.Array, w: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sums of :func:`_products` with the terms M M^T w and w^T M M^T w of one more tile M."""
    times = partial(jnp.matmul, precision="highest")
    tile = tile.astype(w.dtype)
    inner = times(w, tile)  # w^T M as rows
    more_images, more_projected = times(inner, tile.T), times(inner, inner.T)
    return images + more_images.astype(images.dtype), projected + more_projected.astype(
        projected.dtype
    )
