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
from gnjax.networks.rounding import MISTAKE, SAFETY, direction, measure_jacobian
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.host import dot, length, on_device, on_host
from gnjax.numerics.memory.free import check_room
from gnjax.numerics.rounding import LAPACK_ROUNDING, spectral_error, unit_roundoff
from gnjax.numerics.validation import check_known
from gnjax.operators.of_networks.described import loss_of, said
from gnjax.operators.trees import check_real

_VECTORS, _STEPS = 2, 4  # of the power method
_SIZE = 2.0  # with these steps its square root is exceeded with a probability below 0.4%


@dataclass(frozen=True, eq=False)
class MeasuredJacobian:
    """The Jacobian J (n r, p) of a network at one set of samples, and what is measured of it."""

    net: Network
    seed: int  # of the random vectors

    @property
    def count(self) -> int:
        return self.net.samples * self.net.rows

    @cached_property
    def error(self) -> Error:
        """A measured bound on ||computed J - J||_F."""
        return measure_jacobian(self.net).whole

    @cached_property
    def vectors(self) -> np.ndarray:
        """m vectors u of random direction and squared length n r, as rows (m, n r)."""
        rng = np.random.default_rng(self.seed)
        return np.stack([direction(rng, (self.count,), self.net.dtype) for _ in range(_VECTORS)])

    @cached_property
    def images(self) -> np.ndarray:
        """J^T u (m, p) for these vectors."""
        return np.stack([on_host(backward_products(self.net, on_device(u))) for u in self.vectors])

    @cached_property
    def norm(self) -> float:
        """An estimate of ||J||_2 from above, by q = ``_STEPS`` steps of the power method.

        For A = J J^T and m random vectors u, the mean of |A^q u|^2 is at least ||A||^{2q} times
        chi^2 / m with m degrees of freedom (Dixon 1983). So ||J|| = ||A||^{1/2} exceeds the 4q-th
        root of this mean by a factor of more than ``_SIZE``^{1/2} with little probability.
        """
        logarithms = [self._log_of_powers(image) for image in self.images]
        largest = max(logarithms)
        if not math.isfinite(largest):
            return 0.0 if largest < 0 else math.inf
        # The mean of |A^q u|^2 relative to the largest, whose square may have no room in a float.
        mean = sum(math.exp(2 * (logarithm - largest)) for logarithm in logarithms) / _VECTORS
        return math.exp((largest + math.log(mean) / 2) / (2 * _STEPS)) * math.sqrt(_SIZE)

    def _log_of_powers(self, image: np.ndarray) -> float:
        """log |A^q u| for A = J J^T and q = ``_STEPS``, from ``image`` = J^T u.

        It is -inf where a product is zero, and inf where one is not finite.
        """
        logarithm = 0.0
        for step in range(1, _STEPS + 1):
            u = on_host(forward_products(self.net, on_device(image)))
            u_length = length(u)
            if not 0 < u_length < math.inf:
                return -math.inf if u_length == 0 else math.inf
            logarithm += math.log(u_length)
            if step < _STEPS:
                image = on_host(backward_products(self.net, on_device(u / u.dtype.type(u_length))))
        return logarithm


@dataclass(frozen=True, repr=False, eq=False)
class CrossKernel:
    """J J'^T (n r, n' r') of one network at samples x and x2; no operator, as it is not square.

    ``kernel @ v`` and ``kernel.mv(v)`` multiply without forming the matrix, ``kernel.T`` is the
    kernel between x2 and x, and ``error`` says how far the matrix of ``as_matrix`` is from the
    exact kernel. It does not hold for products, see :meth:`mv`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (7, 3))
    >>> kernel = gnjax.ntk(model, x[:5], x[5:])
    >>> kernel
    <CrossKernel: J J'^T, 10 x 4, float64, 26 parameters, 5 and 2 samples of 2 outputs, no loss>
    >>> kernel.T.shape
    (4, 10)
    >>> whole = gnjax.ntk(model, x).as_matrix()
    >>> np.allclose(kernel.as_matrix(), whole[:10, 10:]), kernel.error.value < 1e-12
    (True, True)
    """

    left: MeasuredJacobian
    right: MeasuredJacobian
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
        left, right = self.left.net, self.right.net
        outputs = f"{left.rows}" if left.rows == right.rows else f"{left.rows} and {right.rows}"
        return (
            f"<CrossKernel: J J'^T, {self.shape[0]} x {self.shape[1]}, "
            f"{jnp.dtype(self.dtype).name}, {left.parameters} parameters, {left.samples} and "
            f"{right.samples} samples of {outputs} outputs, {said(loss_of(left))}>"
        )

    def mv(self, v: jax.Array) -> jax.Array:
        """J J'^T v for a vector (n' r',) or columns (n' r', b).

        Each entry is a sum over all p parameters, one after the other where XLA adds them so. That
        sum is wrong by up to gamma_p ||J|| ||J'|| |v|, with gamma_p about p u and u the relative
        error of one rounding. :attr:`error` is of ``as_matrix`` and has no such term.
        """
        check_real(v)
        return forward_products(self.left.net, backward_products(self.right.net, v))

    def __matmul__(self, v: Any) -> jax.Array:
        """K v for the kernel K (n r, n' r') and a vector v (n' r',) or columns (n' r', b)."""
        columns = v if isinstance(v, np.ndarray | jax.Array) else np.asarray(v)
        if columns.ndim not in (1, 2) or columns.shape[0] != self.shape[1]:
            size = self.shape[1]
            msg = (
                f"a kernel of shape {self.shape} multiplies vectors ({size},) and columns "
                f"({size}, b), got shape {columns.shape}; kernel.T multiplies from the other side"
            )
            raise ValueError(msg)
        check_real(columns)
        return self.mv(on_device(columns, self.dtype))

    def as_matrix(self) -> jax.Array:
        """The kernel K = J J'^T, formed from the layers where they are known."""
        check_known("the matrix of a kernel", (self.left.net, self.right.net))
        memory = float(self.shape[0]) * self.shape[1] * self.dtype.itemsize
        check_room(
            f"a kernel {self.shape[0]} x {self.shape[1]}",
            memory,
            "make it for fewer samples at once, gnjax.ntk(model, x[a:b], x2[c:d])",
        )
        matrix = kernels.cross_gram(self.left.net, self.right.net)
        # u^T K w of what was formed: ``error`` compares it with <J^T u, J'^T w> from products
        self._formed.append(self.left.vectors @ (matrix @ self.right.vectors.T))
        return on_device(matrix)

    @property
    def error(self) -> Error:
        """A measured bound on ||K - J J'^T||_2 for the matrix K of ``as_matrix``, not for products.

        ||(J + E)(J' + E')^T - J J'^T|| <= ||J|| ||E'|| + ||E|| ||J'|| + ||E|| ||E'||, to which the
        rounding of sums is added. What was formed from the layers is compared with products: a
        u^T K w that is further from <J^T u, J'^T w> is a mistake, and its size becomes the error.
        """
        left_error, right_error = self.left.error, self.right.error  # ||E|| and ||E'||
        left_norm, right_norm = self.left.norm, self.right.norm  # ||J|| and ||J'||
        sums = spectral_error(max(self.shape), self.dtype) * left_norm * right_norm
        rounding = LAPACK_ROUNDING.to(sums)
        # Every entry may have lost up to the smallest normal number; in Frobenius norm.
        underflow = math.sqrt(math.prod(self.shape)) * float(jnp.finfo(self.dtype).tiny)
        distance = left_norm * right_error.value + left_error.value * right_norm
        distance += left_error.value * right_error.value
        # A formed u^T K w may differ from <J^T u, J'^T w> by the errors of J and J', and by the
        # rounding of sums. More is a mistake, and a random vector shows only a part of it.
        left_images, right_images = self.left.images, self.right.images  # J^T u and J'^T w
        left_length, right_length = (
            max(length(image) for image in images) for images in (left_images, right_images)
        )
        share = SAFETY * math.sqrt(2 * sum(self.shape)) * unit_roundoff(self.dtype)
        allowed = left_length * right_error.value + left_error.value * right_length
        allowed += left_error.value * right_error.value
        allowed += share * left_length * right_length
        products = np.array([[dot(u, w) for w in right_images] for u in left_images])
        difference = max((float(np.abs(form - products).max()) for form in self._formed), default=0)
        mistake = 0.0 if difference <= allowed else SAFETY**2 * difference
        size = distance + rounding.value + underflow + mistake
        if not math.isfinite(size):
            return unknown("the error of the Jacobians is not known, or their sizes overflow")
        error = (left_error + right_error + rounding).to(size)
        return error if not mistake else replace(error, kind=MEASURED, reason=MISTAKE)
