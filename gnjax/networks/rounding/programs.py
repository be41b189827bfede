"""Products of a matrix by other programs than the one by which their rounding was measured.

A compiled program may be further away than rounding explains. XLA computes a number twice where
that saves memory, with another rounding each time, and at a kink of the network the two may lie on
different sides. So what makes an answer also multiplies the vectors by which rounding was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.rounding.errors import product_probes
from gnjax.numerics.host import on_host

_FORMED = "formed"  # among the shapes of vectors, the matrix itself
_Product = Callable[[jax.Array], jax.Array]


class OtherPrograms:
    """The products with :func:`product_probes` by every program that was used until now.

    A program is told from others by the shape of the vectors that it multiplies.
    """

    def __init__(self, size: int, dtype: jnp.dtype) -> None:
        self._size, self._dtype = size, dtype
        self.images: dict[str | tuple[int, ...], np.ndarray] = {}

    @cached_property
    def _probes(self) -> jax.Array:
        return product_probes(self._size, self._dtype)

    def formed(self, matrix: jax.Array) -> jax.Array:
        """The matrix, which is multiplied with the probes."""
        self.images[_FORMED] = on_host(jnp.matmul(matrix, self._probes, precision="highest"))
        return matrix

    def watched(self, product: _Product) -> _Product:
        """The product, which multiplies the probes, too, before vectors of a new shape."""

        def multiplied(v: jax.Array) -> jax.Array:
            if v.shape not in self.images:
                self.images[v.shape] = self._multiplied_by(product, v.shape)
            return product(v)

        return multiplied

    def _multiplied_by(self, product: _Product, shape: tuple[int, ...]) -> np.ndarray:
        """The products with the probes, as vectors or in blocks of this shape."""
        rows = on_host(self._probes).T
        if len(shape) == 1:
            return np.stack([on_host(product(jnp.asarray(row))) for row in rows], axis=1)
        padded = np.resize(rows, (-(-len(rows) // shape[1]) * shape[1], shape[0]))
        blocks = padded.reshape(-1, shape[1], shape[0])
        images = [on_host(product(jnp.asarray(block.T))) for block in blocks]
        return np.concatenate(images, axis=1)[:, : len(rows)]
