"""The Hessian H = G + H_F of a network's mean loss, G its Gauss-Newton matrix, and H_F alone.

H_F = 1/n sum_i sum_c (d loss / d f_c) nabla^2 F_c(x_i)    (Eq 17)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.arguments.derivatives import check_second_derivative, has_product
from gnjax.networks.arguments.frameworks import InputTree
from gnjax.networks.arguments.samples import take
from gnjax.networks.equations.forward_mode import gradient_along
from gnjax.networks.losses.targets import Target, loss_sum
from gnjax.networks.network import (
    HESSIAN,
    Network,
    batched,
    columns,
    gather,
    sample_batches,
    scatter,
    sum_of,
)
from gnjax.networks.rounding import (
    MeasuredProduct,
    OtherPrograms,
    SecondLook,
    all_are_looked_at,
    is_small,
    look_at_all,
    measured_product,
    moved_network,
    product_by_looks,
    product_probes,
    reason_of,
    second_look,
    with_sums,
)
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.certificate import Error
from gnjax.numerics.evidence import THOROUGH, evidence, in_a_stage
from gnjax.numerics.host import length
from gnjax.numerics.scale import exponent_of
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts, Product
from gnjax.operators.of_networks import linearised
from gnjax.operators.of_networks.described import described, loss_of
from gnjax.operators.prepare import multiplied
from gnjax.operators.protocol import Operator
from gnjax.operators.recast import recast_in_float64
from gnjax.operators.trees import ParameterTrees, takes_trees
from gnjax.operators.unit_vectors import symmetric_columns


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class NetworkHessian(Algebra, ParameterTrees):
    """The Hessian (p, p) of the mean loss of F(x_i), y_i, or its part H_F alone (Eq 17).

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> y = jax.random.normal(jax.random.key(2), (5, 2))
    >>> op = gnjax.hessian(model, x, y)
    >>> isinstance(op, gnjax.operators.NetworkHessian), op.shape
    (True, (26, 26))
    """

    net: Network
    functional: bool = field(metadata={"static": True})

    def facts(self) -> Facts:
        """What is known by structure, and the error and magnitude from measured products."""
        return Facts(
            error=self.error,
            symmetric=True,
            forms_cheaply=True,
            magnitude=self._magnitude,
            product=self._product,
            one_by_one=not self._is_small,
            in_float32=partial(linearised.linearised_in_float32, self),
            in_float64=partial(recast_in_float64, self),
            network=self.net,
        )

    def __repr__(self) -> str:
        if self.net.target is None:
            return super().__repr__()
        form = "H_F" if self.functional else "H"
        return described(self, form, self.net, loss_of(self.net), layers=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.net.parameters, self.net.parameters

    @property
    def dtype(self) -> jnp.dtype:
        return self.net.dtype

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """H v for a vector v (p,) or columns (p, b): the derivative of the gradient along v."""
        parts = (
            columns(self.net, partial(hessian_batch, self, x, target), v, evaluations=HESSIAN)
            for x, target in sample_batches(self.net, self.net.target)
        )
        return sum_of(parts) / self.net.total

    def error(self, norm: float) -> Error:
        """The error of the products from the rounding of the network, measured.

        Other programs for the same products, such as that which formed the matrix, are compared
        with those by which the error was measured.
        """
        return with_sums(in_a_stage(self._error_of_products), self.net, norm)

    def _error_of_products(self) -> Error:
        """The measured error of all programs that were used."""
        thorough = self._is_small or evidence() == THOROUGH
        measured = self._of_all_samples if thorough else self._by_looks
        return measured.error_beside(self._others.images.values())

    def _magnitude(self) -> int | None:
        """The exponent e with 2^e near the norm, by the first products that are made anyway."""
        if self._is_small:
            return exponent_of(self._of_all_samples.size)
        return exponent_of(length(self._images))

    @property
    def _is_small(self) -> bool:
        """Whether all samples are computed in Monte Carlo arithmetic before anything else."""
        return is_small(self.net, HESSIAN)

    @cached_property
    def _others(self) -> OtherPrograms:
        """The programs that multiply with H, and their products with random vectors."""
        return OtherPrograms(lambda: product_probes(*self._probe_sizes))

    @property
    def _probe_sizes(self) -> tuple[int, jnp.dtype, int]:
        """The length and the dtype of random vectors, and how many are multiplied at most."""
        return self.net.parameters, self.dtype, 3 if self._is_small else 1

    @cached_property
    def _of_all_samples(self) -> MeasuredProduct:
        """Products with H at random vectors, with their rounding by Monte Carlo arithmetic."""
        net = self.net
        return measured_product(
            Partial(product_of_batch, self),
            net.parameters,
            net.dtype,
            batches=list(sample_batches(net, net.target)),
            work=HESSIAN * net.written * net.batch,
            reason=reason_of(net),
        ).scaled(1.0 / float(net.total))

    @cached_property
    def _by_looks(self) -> MeasuredProduct:
        """A product with H at a random vector, with its rounding by the usual two looks."""
        return self.looked_at(self._images, self.moved()._multiplied)

    def moved(self) -> NetworkHessian:
        """The same of the network with its parameters and inputs moved by one rounding each."""
        return replace(self, net=moved_network(self.net))

    def looked_at(self, images: np.ndarray, moved_product: Product) -> MeasuredProduct:
        """The usual evidence for products with this matrix A, or with S A S for a matrix S.

        Args:
          images: those of :func:`gnjax.networks.rounding.product_probes`, (p, j).
          moved_product: the same product with :meth:`moved`, by the same program.
        """
        return product_by_looks(
            self.net,
            images,
            moved_product,
            name="H_F" if self.functional else "H",
            second_look=self._second_look,
        )

    def _second_look(self) -> SecondLook:
        """A product with random roundings, of all samples where these are few, or of some."""
        net, scale = self.net, 1.0 / float(self.net.total)
        if not all_are_looked_at(net, HESSIAN):
            return second_look(Partial(product_of_batch, self), net, HESSIAN).scaled(scale)
        batches, v = list(sample_batches(net, net.target)), product_probes(*self._probe_sizes)
        return look_at_all(hessian_batch, self, batches, v[:, 0], self._images[:, 0], scale)

    @cached_property
    def _multiplied(self) -> Product:
        """v -> H v for many products.

        Through convolutions, and for a network of few equations, the gradient is linearised once,
        where that fits: products then take two thirds of the time. Elsewhere compiling one more
        program costs a first answer more than it gains.
        """
        pays = self.net.convolves or self.net.brief
        linearised_op = linearised.linearised(self) if pays else self
        return multiplied(self) if linearised_op is self else self.prepared_by(linearised_op)

    @cached_property
    def _images(self) -> np.ndarray:
        """The products (p, j) of H with the first random vectors."""
        return self._others.image(self._multiplied)

    def objective(self, x: InputTree, target: Target | None, leaves: list[jax.Array]) -> jax.Array:
        """The function of the leaves whose Hessian is meant: the weighted sum of losses.

        For H_F the loss is linearised in the outputs f, at fixed slopes d loss / d f, so that only
        the curvature of the network is left. Without a target, as for :func:`gnjax.hessian_of`,
        the output is the loss.
        """
        f = self.net.outputs(leaves, x)
        if target is None:
            return f.sum()
        if not self.functional:
            return loss_sum(target, f)
        slopes = jax.grad(partial(loss_sum, target))(f)
        return jnp.vdot(jax.lax.stop_gradient(slopes), f)

    def as_matrix(self) -> jax.Array:
        """The matrix from products with unit vectors, which ``error`` compares with others."""
        return self._others.formed(symmetric_columns(self))

    def linear_maps(self) -> tuple[linearised.LinearMap, ...]:
        """One for each batch of samples, see :func:`gnjax.linearised`."""
        return tuple(
            linearised.LinearMap(linearised.linear_gradient(self, x, target))
            for x, target in sample_batches(self.net, self.net.target)
        )

    def through(self, maps: Sequence[linearised.LinearMap], v: jax.Array) -> jax.Array:
        """H v for v (p,) or (p, b): the sum of H_b v over the linear maps of all batches b."""
        net, share = self.net, 1.0 / self.net.total
        products = (partial(linearised.hessian_product.of(net), m.linear, share) for m in maps)
        return sum_of(columns(net, product, v, evaluations=HESSIAN) for product in products)

    def _product(self) -> Product:
        """v -> H v for many products, which notes what it gives for random vectors."""
        return self._others.watched(self._multiplied)

    def prepared_by(self, linearised_op: Operator) -> Product:
        """The product with the operator linearised: nothing makes it faster."""
        return linearised_op.mv


@bounded_jit
def hessian_batch(op: NetworkHessian, x: Any, target: Target | None, v: jax.Array) -> jax.Array:
    """The Hessian of the summed loss of one batch times a vector (p,) or columns (p, b)."""
    return batched(lambda w: product_of_batch(op, w, x, target), v)


def checked_hessian(op: NetworkHessian) -> NetworkHessian:
    """The same operator; refused where the model or the loss cannot be differentiated twice.

    That is tried on one sample (on all, if they are coupled), and only where it can fail: for a
    model without a forward mode, and for a loss that is a function of the caller's own.
    """
    net = op.net
    if net.forward == "own" and not callable(getattr(net.target, "loss", None)):
        return op
    x, target = (net.x, net.target) if net.coupled else take((net.x, net.target), slice(0, 1))
    return twice_differentiable("the model or the loss", op, x, target)


def twice_differentiable(
    name: str, op: NetworkHessian, x: Any, target: Target | None
) -> NetworkHessian:
    """The operator, with products that JAX can make; ``name`` is what a refusal calls its function.

    Where a reverse rule cannot be transposed, as that of a loop with checkpoints, it is
    differentiated forward. Products with the samples ``x`` are traced, and none is made.
    """
    v = jnp.zeros(op.net.parameters, op.net.dtype)
    transposed = op.net.forward == "transposed"
    if transposed and not has_product(hessian_batch, op, x, target, v):
        op = replace(op, net=replace(op.net, forward="of the equations"))
    check_second_derivative(name, hessian_batch, op, x, target, v)
    return op


def product_of_batch(op: NetworkHessian, w: jax.Array, x: Any, target: Target | None) -> jax.Array:
    """The Hessian of the summed loss of one batch times a vector w (p,)."""
    net, gradient = op.net, jax.grad(partial(op.objective, x, target))
    images = gradient_along(gradient, list(net.leaves), scatter(net, w), net.forward)
    return gather(net, images)
