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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network
from gnjax.networks.rounding.chosen_samples import samples_looked_at
from gnjax.numerics.certificate import MEASURED, Error, unknown, weakest
from gnjax.numerics.host import dot, length, on_host, product_on_host, size_of
from gnjax.numerics.rounding import unit_roundoff
from gnjax.numerics.stages import beside

SAFETY = 4.0  # a measured error is multiplied by this
_PROBES = 2  # vectors u by which formed matrices are compared with products
_FORMED = "formed"  # the name of the formed matrix among the programs that multiply vectors
_Product = Callable[[jax.Array], jax.Array]
MISTAKE = "what is formed from the layers is not what differentiation says"


def direction(rng: np.random.Generator, shape: tuple[int, ...], dtype: jnp.dtype) -> np.ndarray:
    """An array that is a vector of random direction, its squared length the number of entries."""
    narrow = jnp.finfo(dtype).bits <= 32  # NumPy draws in float32 or float64 alone
    v = rng.standard_normal(shape, np.float32 if narrow else np.float64)
    v *= math.sqrt(v.size) / np.linalg.norm(v)
    return np.asarray(v, dtype)


def root_mean_square(values: Sequence[float] | np.ndarray) -> float:
    """The root of the mean of the squares, without underflow; nan if a value is not finite."""
    if not np.isfinite(values).all():
        return math.nan
    return math.hypot(*values) / math.sqrt(max(len(values), 1))


def probe_rows(net: Network) -> np.ndarray:
    """m random vectors u (m, n r) for the r rows of J of each sample, the same in all calls.

    They are zero but for the samples on which rounding is measured, see :mod:`.chosen_samples`.
    """
    rng, chosen = np.random.default_rng(17), samples_looked_at(net)  # any fixed seed
    if chosen is None:
        shape = (net.samples * net.rows,)
        return np.stack([direction(rng, shape, net.dtype) for _ in range(_PROBES)])
    rows = np.zeros((_PROBES, net.samples, net.rows), net.dtype)
    for row in rows:
        row[chosen] = direction(rng, (len(chosen), net.rows), net.dtype)
    return rows.reshape(_PROBES, -1)


@dataclass(frozen=True)
class Forms:
    """The bilinear forms u^T K w (m, m), K = J J^T, of all pairs of m vectors, and their rounding.

    The vectors are those of :func:`probe_rows`.
    """

    values: np.ndarray  # (m, m)
    rounding: float = 0.0  # a bound on the error of every value

    def scaled(self, factor: float) -> Forms:
        """The numbers u^T K w of ``factor`` times K."""
        return Forms(factor * self.values, factor * self.rounding)


def forms_of_images(images: np.ndarray) -> Forms:
    """u^T K w = <J^T u, J^T w> for all pairs of vectors, from their images J^T u (m, p)."""
    return Forms(np.array([[dot(a, b) for b in images] for a in images]))


def forms_of_rows(vectors: np.ndarray, jacobian: np.ndarray) -> Forms:
    """u^T K w, K = J J^T, from vectors u (m, n r) and a Jacobian J (n r, p) that was formed."""
    images = vectors.astype(jacobian.dtype) @ jacobian
    return _forms_of_rows(images, length(jacobian), len(jacobian))


def _forms_of_rows(images: np.ndarray, size: float, rows: int) -> Forms:
    """u^T K w = <J^T u, J^T w> from the images J^T u (m, p), and a bound on its rounding.

    J has so many ``rows`` and the Frobenius norm ``size``. With rho of :func:`_rounding` the images
    err by rho ||J||_F, and so u^T K w errs by up to 2 rho ||J||_F max |J^T u|.
    """
    values = forms_of_images(images).values
    product_of_sizes = size * float(np.sqrt(np.diag(values).max(initial=0.0)))
    return Forms(values, 2 * _rounding(rows, images.dtype) * product_of_sizes)


def watched(
    vectors: np.ndarray,
    blocks: Iterable[np.ndarray | jax.Array],
    ended: Callable[[Forms], None],
) -> Iterator[np.ndarray | jax.Array]:
    """Yield the blocks of rows (b, p) of a Jacobian J unchanged, and call ``ended`` after the last.

    It is given the numbers u^T J J^T w of the ``vectors`` u (m, n r). J^T u is summed up from the
    blocks, so that J is never held.
    """
    images, size, start = np.zeros(()), 0.0, 0  # size is ||J||_F of the rows so far
    for block in blocks:
        stop = start + len(block)
        images = images + product_on_host(vectors[:, start:stop].astype(block.dtype), block)
        size = math.hypot(size, size_of(block))
        start = stop
        yield block
    ended(_forms_of_rows(images, size, start))


def forms_of_kernel(vectors: np.ndarray, kernel: np.ndarray) -> Forms:
    """u^T K w from vectors u (m, n r) and a kernel K (n r, n r) that was formed."""
    left = vectors.astype(kernel.dtype)
    rounding = 2 * _rounding(len(kernel), kernel.dtype) * length(kernel)
    return Forms((left @ (kernel @ left.T)).astype(np.float64), rounding)


def forms_of_products(vectors: np.ndarray, products: np.ndarray) -> Forms:
    """u^T K w from products K w (n, m) of a kernel with the vectors (n, m), by any program."""
    values = np.array([[dot(v, product) for product in products.T] for v in vectors.T])
    return Forms(values, 2 * _rounding(len(products), np.dtype(float)) * length(products))


def _rounding(rows: int, dtype: np.dtype) -> float:
    """4 sqrt(2 n) u, a measured bound on |fl(A v) - A v| / ||A||_F for a v of random direction.

    |v|^2 is n, and A v is a sum over n ``rows`` or columns of A. Sums of n terms of either sign
    have errors that grow like sqrt(n) u.
    """
    return SAFETY * math.sqrt(2 * rows) * unit_roundoff(dtype)


def checked(error: Error, of_products: Forms, of_matrix: Forms) -> Error:
    """The error of J, or a larger one if what was formed of J is further from products than that.

    If J + E was formed, u^T K w differs from that of products by <E^T u, J^T w> + <J^T u, E^T w> +
    <E^T u, E^T w>, where |E^T u| is about ||E||_F. If it differs by more than the ``error`` allows,
    the largest difference d counts as ||E||_F^2: sqrt(4 d) is added, with a factor of safety of 4.
    ``of_products`` and ``of_matrix`` are the numbers u^T K w by products and by the formed matrix.
    """
    if not math.isfinite(error.value):
        return error
    lengths = np.sqrt(np.diag(of_products.values))  # |J^T u|
    with np.errstate(over="ignore", invalid="ignore"):  # norms so large are refused elsewhere
        allowed = error.value * (lengths[:, None] + lengths[None] + error.value)
        distances = np.abs(of_matrix.values - of_products.values)
    if (distances <= allowed + of_products.rounding + of_matrix.rounding).all():
        return error
    largest = float(distances.max())
    if not math.isfinite(largest):
        return unknown(f"{MISTAKE}: it is not finite")
    bound = error.value + math.sqrt(SAFETY * largest)
    return Error(bound, weakest(error.kind, MEASURED), error.failure, MISTAKE)


class OtherPrograms:
    """The products with some probes (n, j) by every program that was used until now.

    A program is told from others by its name and by the shape of the vectors that it multiplies.
    ``vectors`` makes the probes, when a program is used for the first time.
    """

    def __init__(self, vectors: Callable[[], jax.Array]) -> None:
        self._vectors = vectors
        self.images: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    @cached_property
    def _probes(self) -> jax.Array:
        """The vectors (n, j) that every program multiplies."""
        return self._vectors()

    def formed(self, matrix: jax.Array) -> jax.Array:
        """A ``matrix`` that was formed, as it is; its products with the probes are noted."""
        self.images[_FORMED, matrix.shape] = on_host(
            jnp.matmul(matrix, self._probes, precision="highest")
        )
        return matrix

    def image(self, product: _Product) -> np.ndarray:
        """The products (n, j) of the probes, one vector after the other, which are noted."""
        shape = self._probes.shape[:1]
        self.images["", shape] = self._products_with_probes(product, shape)
        return self.images["", shape]

    def watched(self, product: _Product, name: str = "") -> _Product:
        """A function that computes ``product(v)`` and notes the products with the probes as well.

        They are made once for each shape of v, as each shape is a program of its own.
        """

        def multiplied(v: jax.Array) -> jax.Array:
            if (name, v.shape) not in self.images:
                self.images[name, v.shape] = self._products_with_probes(product, v.shape)
            return product(v)

        return multiplied

    def _products_with_probes(self, product: _Product, shape: tuple[int, ...]) -> np.ndarray:
        """The products (n, j) of the probes, as vectors of this ``shape``, (n,) or b as (n, b).

        The last b of them are filled up with the first probes again.
        """
        probes = on_host(self._probes).T
        if len(shape) == 1:
            columns = []
            for probe in probes:
                columns.append(on_host(product(jnp.asarray(probe))))
                beside(len(columns), len(probes), "products to compare programs by")
            return np.stack(columns, axis=1)
        width = shape[1]
        padded_count = -(-len(probes) // width) * width  # the next multiple of the width
        blocks = np.resize(probes, (padded_count, shape[0])).reshape(-1, width, shape[0])
        images = [on_host(product(jnp.asarray(block.T))) for block in blocks]
        return np.concatenate(images, axis=1)[:, : len(probes)]
