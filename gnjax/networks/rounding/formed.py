"""Whether what is formed from the layers of a network agrees with products by differentiation.

The rounding of J is measured on products, which differentiate the network as a whole. Kernels and
Jacobians are formed from the inputs and sensitivities of layers, and a mistake there is none of
rounding. For random vectors u and w, K = J J^T, and the columns J_b of any parameters,

    u^T K_b w = <J_b^T u, J_b^T w>

(Freivalds 1977). The right side is at hand where rounding is measured, the left side costs two
products with what was formed. Where the measured error of J does not explain their distance, the
distance becomes the error.

A compiled program of products may be further away than rounding explains, too. XLA computes a
number twice where that saves memory, with another rounding each time, and at a kink of the network
the two may lie on different sides. So what makes an answer also multiplies some vectors whose
products are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network
from gnjax.numerics.certificate import MEASURED, Error, unknown, weakest
from gnjax.numerics.host import dot, length, on_host, product_on_host, size_of
from gnjax.numerics.rounding import unit_roundoff

SAFETY = 4.0
_PROBES = 2
_FORMED = "formed"  # the matrix itself
_Product = Callable[[jax.Array], jax.Array]
MISTAKE = "what is formed from the layers is not what differentiation says"


def direction(rng: np.random.Generator, shape: tuple[int, ...], dtype: jnp.dtype) -> np.ndarray:
    """A vector of random direction, its squared length the number of its entries."""
    narrow = jnp.finfo(dtype).bits <= 32
    v = rng.standard_normal(shape, np.float32 if narrow else np.float64)
    v *= math.sqrt(v.size) / np.linalg.norm(v)
    return np.asarray(v, dtype)


def probe_vectors(net: Network) -> Iterator[np.ndarray]:
    """Yield the vectors u (m, n_b, r) of each batch of samples, always the same ones."""
    rng = np.random.default_rng(17)
    for start in range(0, net.samples, net.batch):
        shape = (min(net.batch, net.samples - start), net.rows)
        yield np.stack([direction(rng, shape, net.dtype) for _ in range(_PROBES)])


def probe_rows(net: Network) -> np.ndarray:
    """The vectors u (m, n r) of all samples."""
    return np.concatenate([part.reshape(_PROBES, -1) for part in probe_vectors(net)], axis=1)


@dataclass(frozen=True)
class Forms:
    """u^T K w (m, m) for :func:`probe_vectors`, and a bound on its rounding."""

    values: np.ndarray
    rounding: float = 0.0

    def scaled(self, factor: float) -> Forms:
        """Those of a multiple of K."""
        return Forms(factor * self.values, factor * self.rounding)


def forms_of_images(images: np.ndarray) -> Forms:
    """The forms from J^T u (m, p)."""
    return Forms(np.array([[dot(a, b) for b in images] for a in images]))


def forms_of_rows(vectors: np.ndarray, jacobian: np.ndarray) -> Forms:
    """The forms from a Jacobian (n r, p) that was formed."""
    images = vectors.astype(jacobian.dtype) @ jacobian
    return _forms_of_rows(images, length(jacobian), len(jacobian))


def _forms_of_rows(images: np.ndarray, size: float, rows: int) -> Forms:
    """The forms from J^T u (m, p), by products with the rows of a J of Frobenius norm ``size``."""
    values = forms_of_images(images).values
    sizes = size * float(np.sqrt(np.diag(values).max(initial=0.0)))
    return Forms(values, 2 * _rounding(rows, images.dtype) * sizes)


def watched(
    vectors: np.ndarray,
    blocks: Iterable[np.ndarray | jax.Array],
    ended: Callable[[Forms], None],
) -> Iterator[np.ndarray | jax.Array]:
    """Pass on a Jacobian some rows at a time, and in the end its forms."""
    total, size, start = np.zeros(()), 0.0, 0
    for block in blocks:
        stop = start + len(block)
        total = total + product_on_host(vectors[:, start:stop].astype(block.dtype), block)
        size = math.hypot(size, size_of(block))
        start = stop
        yield block
    ended(_forms_of_rows(total, size, start))


def forms_of_kernel(vectors: np.ndarray, kernel: np.ndarray) -> Forms:
    """The forms from a kernel (n r, n r) that was formed."""
    left = vectors.astype(kernel.dtype)
    rounding = 2 * _rounding(len(kernel), kernel.dtype) * length(kernel)
    return Forms((left @ (kernel @ left.T)).astype(np.float64), rounding)


def forms_of_products(vectors: np.ndarray, products: np.ndarray) -> Forms:
    """The forms from products (n, m) of a kernel with the vectors (n, m), by any program."""
    values = np.array([[dot(v, product) for product in products.T] for v in vectors.T])
    return Forms(values, 2 * _rounding(len(products), np.dtype(float)) * length(products))


def _rounding(rows: int, dtype: np.dtype) -> float:
    """The error of a product with a vector of directions, relative to the Frobenius norm.

    Sums of n terms of either sign, rounded at random, have errors that grow like the root of n.
    """
    return SAFETY * math.sqrt(2 * rows) * unit_roundoff(dtype)


def checked(error: Error, of_products: Forms, of_matrix: Forms) -> Error:
    """A bound on the error of J that also holds for what was formed, from that of products.

    The distance of the forms is a sum of products of J^T u and E^T w where J + E was formed, with
    |E^T w|^2 about ||E||_F^2. If it is more than ``error`` allows, all of it counts as ||E||_F^2.
    """
    if not math.isfinite(error.value):
        return error
    lengths = np.sqrt(np.diag(of_products.values))
    with np.errstate(over="ignore", invalid="ignore"):  # beyond all norms that are answered
        allowed = error.value * (lengths[:, None] + lengths[None] + error.value)
        distances = np.abs(of_matrix.values - of_products.values)
    if (distances <= allowed + of_products.rounding + of_matrix.rounding).all():
        return error
    size = float(distances.max())
    if not math.isfinite(size):
        return unknown(f"{MISTAKE}: it is not finite")
    bound = error.value + math.sqrt(SAFETY * size)
    return Error(bound, weakest(error.kind, MEASURED), error.failure, MISTAKE)


class OtherPrograms:
    """The products with some vectors (n, j) by every program that was used until now.

    A program is told from others by its name and by the shape of the vectors that it multiplies.
    ``vectors`` makes the vectors, when a program is used for the first time.
    """

    def __init__(self, vectors: Callable[[], jax.Array]) -> None:
        self._vectors = vectors
        self.images: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    @cached_property
    def _probes(self) -> jax.Array:
        return self._vectors()

    def formed(self, matrix: jax.Array) -> jax.Array:
        """The matrix, which is multiplied with the probes."""
        self.images[_FORMED, matrix.shape] = on_host(
            jnp.matmul(matrix, self._probes, precision="highest")
        )
        return matrix

    def watched(self, product: _Product, name: str = "") -> _Product:
        """The product, which multiplies the probes, too, before vectors of a new shape."""

        def multiplied(v: jax.Array) -> jax.Array:
            if (name, v.shape) not in self.images:
                self.images[name, v.shape] = self._multiplied_by(product, v.shape)
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
