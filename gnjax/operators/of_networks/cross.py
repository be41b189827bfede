"""The kernel J J'^T of one network at two sets of samples: a rectangular matrix with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import kernels
from gnjax.networks.network import Network, backward_products, forward_products
from gnjax.networks.rounding import MISTAKE, SAFETY, direction, draws, measured
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.host import dot, length, on_device, on_host
from gnjax.numerics.memory.free import check_room
from gnjax.numerics.rounding import gamma

_COMPARED = 2  # so many vectors compare what was formed from the layers
_SIZE = 2.0  # a factor, as the mean of few squared lengths can be below its expectation


class Rows:
    """The Jacobian J (n r, p) of a network at one set of samples, and what is measured of it."""

    def __init__(self, net: Network, seed: int) -> None:
        self.net, self._seed = net, seed

    @property
    def count(self) -> int:
        return self.net.samples * self.net.rows

    @cached_property
    def error(self) -> Error:
        """A measured bound on ||computed J - J||_F."""
        return measured(self.net).whole

    @cached_property
    def vectors(self) -> np.ndarray:
        """Vectors u (m, n r) of random direction and squared length n r."""
        rng, net = np.random.default_rng(self._seed), self.net
        count = draws(net.written * min(net.batch, net.samples), self.count)
        return np.stack([direction(rng, (self.count,), net.dtype) for _ in range(count)])

    @property
    def size(self) -> float:
        """An estimate of ||J||_F with a factor of safety, as ||J||_F^2 is the mean of |J^T u|^2."""
        return self._seen[0]

    @property
    def images(self) -> np.ndarray:
        """J^T u (m, p) for the first vectors."""
        return self._seen[1]

    @cached_property
    def _seen(self) -> tuple[float, np.ndarray]:
        lengths, kept = [], []
        for place, u in enumerate(self.vectors):
            image = on_host(backward_products(self.net, on_device(u)))
            lengths.append(length(image))
            if place < _COMPARED:
                kept.append(image)
        return _SIZE * math.hypot(*lengths) / math.sqrt(len(lengths)), np.stack(kept)


@dataclass(frozen=True, repr=False, eq=False)
class CrossKernel:
    """J J'^T (n r, n' r') of one network at samples x and x2; no operator, as it is not square.

    ``kernel @ v`` and ``kernel.mv(v)`` multiply without forming the matrix, ``kernel.T`` is the
    kernel between x2 and x, and ``error`` says how far the computed kernel is from the exact one.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (7, 3))
    >>> kernel = gnjax.ntk(model, x[:5], x[5:])
    >>> kernel, kernel.T.shape
    (<CrossKernel: J J'^T, 10 x 4, float64, 26 parameters, 5 and 2 samples of 2 outputs>, (4, 10))
    >>> whole = gnjax.ntk(model, x).as_matrix()
    >>> np.allclose(kernel.as_matrix(), whole[:10, 10:]), kernel.error.value < 1e-12
    (True, True)
    """

    left: Rows
    right: Rows
    _formed: list[np.ndarray] = field(default_factory=list)  # u^T K w, for all that was formed

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.count, self.right.count

    @property
    def dtype(self) -> jnp.dtype:
        return self.left.net.dtype

    @property
    def T(self) -> CrossKernel:
        """J' J^T, the kernel between x2 and x."""
        return CrossKernel(self.right, self.left)

    def __repr__(self) -> str:
        near, far = self.left.net, self.right.net
        outputs = f"{near.rows}" if near.rows == far.rows else f"{near.rows} and {far.rows}"
        return (
            f"<CrossKernel: J J'^T, {self.shape[0]} x {self.shape[1]}, "
            f"{jnp.dtype(self.dtype).name}, {near.parameters} parameters, {near.samples} and "
            f"{far.samples} samples of {outputs} outputs>"
        )

    def mv(self, v: Any) -> jax.Array:
        """J J'^T v for a vector (n' r',) or columns (n' r', b)."""
        return forward_products(self.left.net, backward_products(self.right.net, v))

    def __matmul__(self, v: Any) -> jax.Array:
        columns = v if isinstance(v, np.ndarray | jax.Array) else np.asarray(v)
        if columns.ndim not in (1, 2) or columns.shape[0] != self.shape[1]:
            size = self.shape[1]
            msg = (
                f"a kernel of shape {self.shape} multiplies vectors ({size},) and columns "
                f"({size}, b), got shape {columns.shape}; kernel.T multiplies from the other side"
            )
            raise ValueError(msg)
        return self.mv(on_device(columns, self.dtype))

    def as_matrix(self) -> jax.Array:
        """The matrix, by the structure of the layers."""
        needed = float(self.shape[0]) * self.shape[1] * self.dtype.itemsize
        check_room(
            f"a kernel {self.shape[0]} x {self.shape[1]}",
            needed,
            "make it for fewer samples at once, gnjax.ntk(model, x[a:b], x2[c:d])",
        )
        matrix = kernels.cross_gram(self.left.net, self.right.net)
        left, right = self.left.vectors[:_COMPARED], self.right.vectors[:_COMPARED]
        self._formed.append(left @ (matrix @ right.T))
        return on_device(matrix)

    @property
    def error(self) -> Error:
        """A measured bound on ||computed kernel - exact kernel||_2.

        ||(J + E)(J' + E')^T - J J'^T|| <= ||J|| ||E'|| + ||E|| ||J'|| + ||E|| ||E'||, to which the
        rounding of sums is added. What was formed from the layers is compared with products: a
        u^T K w that is further from <J^T u, J'^T w> is a mistake, and its size becomes the error.
        """
        near, far = self.left.error, self.right.error
        a, b = self.left.size, self.right.size
        terms = math.sqrt(self.left.net.parameters + sum(self.shape))  # rounded at random
        rounding = gamma(math.ceil(terms) + 2, self.dtype) * a * b
        hidden = math.sqrt(math.prod(self.shape)) * float(jnp.finfo(self.dtype).tiny)
        moved = a * far.value + near.value * b + near.value * far.value
        apart = self._furthest()
        mistake = SAFETY**2 * apart if apart > moved + rounding + hidden else 0.0
        size = moved + rounding + hidden + mistake
        if not math.isfinite(size):
            return unknown("the error of the Jacobians is not known, or their sizes overflow")
        found = (near + far).to(size)
        return found if not mistake else replace(found, kind=MEASURED, reason=MISTAKE)

    def _furthest(self) -> float:
        """The largest distance of u^T K w, for what was formed, from <J^T u, J'^T w>."""
        known = [[dot(u, w) for w in self.right.images] for u in self.left.images]
        return max((float(np.abs(part - known).max()) for part in self._formed), default=0.0)
