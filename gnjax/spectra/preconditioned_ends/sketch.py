"""A sketch Y = J S of a factor J that is stored in tiles.

S (q, s) is a sparse sign embedding: J J^T and Y Y^T agree on every direction to about
(1 +- sqrt(m / s))^2, whatever the condition number of J is (Nelson and Nguyen, 2013; Cohen, 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from gnjax.numerics.host import on_device, zeros
from gnjax.numerics.precision import x64

_ENTRIES = 4  # of every row of S
PLACES = 32  # a tile has at least so many places in Y
_STREAM = 15485863  # a stream of random numbers that the caller is unlikely to use


def sketched(tiles: Sequence[jax.Array], width: int, seed: int) -> list[jax.Array]:
    """The sketch Y = J S for a random S, in tiles of about ``width`` columns together.

    J (m, q) comes in tiles of its columns. All columns of a tile of J are added to the same few
    tiles of Y, each column with random signs.
    """
    rng, (rows, columns) = np.random.default_rng([_STREAM, seed]), tiles[0].shape
    dtype, places = tiles[0].dtype, max(1, width // columns)  # the number of tiles of Y
    entries = min(_ENTRIES, places)
    with x64():
        sketch = [on_device(zeros((rows, columns), dtype)) for _ in range(places)]
        for tile in tiles:
            signs = (2.0 * rng.integers(2, size=(entries, columns)) - 1) * entries**-0.5
            targets = rng.choice(places, entries, replace=False)
            for target, sign in zip(targets, signs.astype(dtype), strict=True):
                sketch[target] = _added(sketch[target], tile, on_device(sign))
    return sketch


@partial(jax.jit, donate_argnums=0)
def _added(total: jax.Array, tile: jax.Array, signs: jax.Array) -> jax.Array:
    """``total`` plus a tile (m, c) whose columns are multiplied by ``signs`` (c,)."""
    return total + tile * signs[None]
