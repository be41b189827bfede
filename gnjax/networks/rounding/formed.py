"""Whether what is formed from the layers of a network agrees with products by differentiation.

The rounding of J is measured on products, which differentiate the network as a whole. Kernels and
Jacobians are formed from the inputs and sensitivities of layers, and a mistake there is none of
rounding. For random vectors u and w, K = J J^T, and the columns J_b of any parameters,

    u^T K_b w = <J_b^T u, J_b^T w>

(Freivalds 1977). The right side is at hand where rounding is measured, the left side costs two
products with what was formed. Where the measured error of J does not explain their distance, the
distance becomes the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network
from gnjax.numerics.certificate import MEASURED, Error, unknown, weakest
from gnjax.numerics.host import dot, length
from gnjax.numerics.rounding import unit_roundoff

SAFETY = 4.0
_PROBES = 2
_REASON = "what is formed from the layers is not what differentiation says"


def direction(rng: np.random.Generator, shape: tuple[int, ...], dtype: jnp.dtype) -> np.ndarray:
    """A vector of random direction, its squared length the number of its entries."""
    v = rng.standard_normal(shape)
    return np.asarray(v * (math.sqrt(v.size) / np.linalg.norm(v)), dtype)


def probes(net: Network) -> Iterator[np.ndarray]:
    """Yield the vectors u (m, n_b, r) of each batch of samples, always the same ones."""
    rng = np.random.default_rng(17)
    for start in range(0, net.samples, net.batch):
        shape = (min(net.batch, net.samples - start), net.rows)
        yield np.stack([direction(rng, shape, net.dtype) for _ in range(_PROBES)])


def probe_rows(net: Network) -> np.ndarray:
    """The vectors u (m, n r) of all samples."""
    return np.concatenate([part.reshape(_PROBES, -1) for part in probes(net)], axis=1)


@dataclass(frozen=True)
class Forms:
    """u^T K w (m, m) for the vectors of :func:`probes`, and a bound on its rounding."""

    values: np.ndarray
    rounding: float = 0.0

    def scaled(self, factor: float) -> Forms:
        """Those of a multiple of K."""
        return Forms(factor * self.values, factor * self.rounding)


def forms_of_images(images: np.ndarray) -> Forms:
    """The forms from J^T u (m, p)."""
    return Forms(np.array([[dot(one, other) for other in images] for one in images]))


def forms_of_rows(vectors: np.ndarray, jacobian: np.ndarray) -> Forms:
    """The forms from a Jacobian (n r, p) that was formed."""
    images = vectors.astype(jacobian.dtype) @ jacobian
    return _forms_of_rows(images, length(jacobian), len(jacobian))


def _forms_of_rows(images: np.ndarray, size: float, rows: int) -> Forms:
    """The forms from J^T u (m, p), by products with the rows of a J of Frobenius norm ``size``."""
    formed = forms_of_images(images)
    sizes = size * float(np.sqrt(np.diag(formed.values).max(initial=0.0)))
    return Forms(formed.values, 2 * _rounding(rows, images.dtype) * sizes)


def watched(
    vectors: np.ndarray, blocks: Iterable[np.ndarray], ended: Callable[[Forms], None]
) -> Iterator[np.ndarray]:
    """Pass on a Jacobian some rows at a time, and in the end its forms."""
    total, squared, start = np.zeros(()), 0.0, 0
    for block in blocks:
        stop = start + len(block)
        total = total + vectors[:, start:stop].astype(block.dtype) @ block
        squared += float(np.vdot(block, block))
        start = stop
        yield block
    ended(_forms_of_rows(total, math.sqrt(squared), start))


def forms_of_kernel(vectors: np.ndarray, kernel: np.ndarray) -> Forms:
    """The forms from a kernel (n r, n r) that was formed."""
    left = vectors.astype(kernel.dtype)
    return Forms(
        (left @ (kernel @ left.T)).astype(np.float64),
        2 * _rounding(len(kernel), kernel.dtype) * length(kernel),
    )


def _rounding(rows: int, dtype: np.dtype) -> float:
    """The error of a product with a vector of directions, relative to the Frobenius norm.

    Sums of n terms of either sign, rounded at random, have errors that grow like the root of n.
    """
    return SAFETY * math.sqrt(2 * rows) * unit_roundoff(dtype)


def checked(error: Error, known: Forms, formed: Forms) -> Error:
    """A bound on the error of J that also holds for what was formed, from that of products.

    The distance of the forms is a sum of products of J^T u and E^T w where J + E was formed, with
    |E^T w|^2 about ||E||_F^2. If it is more than ``error`` allows, all of it counts as ||E||_F^2.
    """
    if not math.isfinite(error.value):
        return error
    lengths = np.sqrt(np.diag(known.values))
    allowed = error.value * (lengths[:, None] + lengths[None] + error.value)
    apart = np.abs(formed.values - known.values)
    if (apart <= allowed + known.rounding + formed.rounding).all():
        return error
    size = float(apart.max())
    if not math.isfinite(size):
        return unknown(f"{_REASON}: it is not finite")
    bound = math.sqrt(SAFETY * size)
    return Error(error.value + bound, weakest(error.kind, MEASURED), error.failure, _REASON)
