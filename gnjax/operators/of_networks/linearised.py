"""Products of network operators from one linearisation, theta -> J theta or theta -> H theta.

A product of the operator itself evaluates the network first; J^T is the transpose of J.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from gnjax.networks.arguments.samples import sample_count
from gnjax.networks.losses.output_hessian import OutputHessian, output_hessian
from gnjax.networks.losses.targets import Target
from gnjax.networks.network import (
    Network,
    apply_factor,
    batched,
    scatter,
)
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import Facts
from gnjax.operators.prepare import devices_of
from gnjax.operators.protocol import Around, Operator
from gnjax.operators.recast import narrowed
from gnjax.operators.trees import ParameterTrees, takes_trees

if TYPE_CHECKING:
    from gnjax.operators.of_networks.hessian import NetworkHessian
    from gnjax.operators.of_networks.network_gram import NetworkGram


@dataclass(frozen=True, repr=False)
class Prepared(Around, Algebra, ParameterTrees):
    """The operator ``op`` together with what its products are computed from."""

    op: NetworkGram | NetworkHessian

    def as_matrix(self) -> jax.Array:
        return self.op.as_matrix()

    def facts(self) -> Facts:
        """Those of ``op``, without other operators and factors: they would not use the products."""
        return replace(
            self.op.facts(),
            factor=None,
            twin=None,
            in_float32=None,
            in_float64=None,
            product=None,
            devices=partial(devices_of, self.op),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinearMap:
    """The linear map of one batch of samples: dF/dtheta, or the Hessian of the summed loss."""

    linear: Any  # a pytree that is a function of a vector (p,)
    hessian: OutputHessian | None = None  # None: the identity


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Linearised(Prepared):
    """The operator ``op`` from linear maps, one for each batch of its samples."""

    maps: tuple[LinearMap, ...]  # one for each batch

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        return self.op.through(self.maps, v)

    def facts(self) -> Facts:
        return replace(super().facts(), product=lambda: self.op.prepared_by(self))


def linearised(op: Operator, *, limits: Limits = LIMITS) -> Operator:
    """``op`` with its linearisation kept in memory, or ``op`` itself where that takes over 3 GB.

    The limit is ``limits.linearisation_bytes``. It pays when many products are made with one
    operator of a network. Krylov methods and traces do this by themselves.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> v = np.ones(26)
    >>> np.allclose(gnjax.linearised(op).mv(v), op.mv(v))
    True
    """
    network_op: Any = op if hasattr(op, "linear_maps") else None
    if network_op is None or not fits(network_op, limits):
        return op
    return Linearised(network_op, network_op.linear_maps())


def linearised_in_float32(op: NetworkGram | NetworkHessian) -> Operator | None:
    """The operator linearised in float32; None where that is too large or float64 stays inside."""
    narrow = linearised(narrowed(op))
    has_float64 = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(narrow))
    return narrow if isinstance(narrow, Linearised) and not has_float64 else None


def fits(op: NetworkGram | NetworkHessian, limits: Limits = LIMITS) -> bool:
    """Whether the linear maps of all batches, which are not made, are within the limit of bytes.

    A map v -> J v with a loop of unknown length inside has no transpose, and does not count.
    """
    if op.net.forward == "of the equations":
        return False
    maps = _all_maps.of(op).eval_shape(op)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(maps))
    return size <= limits.linearisation_bytes


@bounded_jit
def _all_maps(op: NetworkGram | NetworkHessian) -> tuple[LinearMap, ...]:
    """The linear maps of all batches; traced for their shapes, and never run."""
    return op.linear_maps()


@bounded_jit(static_argnums=3)
def linear_outputs(net: Network, x: Any, target: Target | None, rooted: bool) -> LinearMap:
    """v -> dF/dtheta v for the outputs F of a batch, and the output Hessian of its loss.

    A model without a forward mode has v -> (dF/dtheta)^T v, which is transposed. ``rooted`` says
    whether the output Hessian B is kept as R with R R^T = B, which J J^T needs.
    """
    origin = jnp.zeros(net.parameters, net.dtype)

    def outputs(w: jax.Array) -> jax.Array:
        """The outputs at the parameters theta + w."""
        return net.outputs(_moved_leaves(net, w), x)

    if net.forward == "own":
        output, linear = jax.linearize(outputs, origin)
    else:
        output, pullback = jax.vjp(outputs, origin)
        shape = (sample_count(x), net.k)
        linear = Partial(partial(_transposed, shape), pullback)
    if target is None:
        return LinearMap(linear)
    return LinearMap(linear, output_hessian(target, output, rooted=rooted))


def _transposed(shape: tuple[int, ...], pullback: Any, v: jax.Array) -> jax.Array:
    """J_b v as the transpose of ``pullback``, u -> J_b^T u, for outputs u of the given shape."""
    cotangent = jax.ShapeDtypeStruct(shape, v.dtype)
    return jax.linear_transpose(lambda u: pullback(u)[0], cotangent)(v)[0]


@bounded_jit
def linear_gradient(op: NetworkHessian, x: Any, target: Target | None) -> Any:
    """v -> H_b v for the Hessian H_b of a batch's summed loss, as a pytree.

    A model without a forward mode has v -> H_b^T v, which is the same.
    """
    net = op.net
    origin = jnp.zeros(net.parameters, net.dtype)
    gradient = jax.grad(lambda w: op.objective(x, target, _moved_leaves(net, w)))
    if net.forward == "transposed":
        return Partial(lambda pullback, v: pullback(v)[0], jax.vjp(gradient, origin)[1])
    return jax.linearize(gradient, origin)[1]


def _moved_leaves(net: Network, w: jax.Array) -> list[jax.Array]:
    """theta + w, as leaves."""
    return [leaf + part for leaf, part in zip(net.leaves, scatter(net, w), strict=True)]


@bounded_jit
def hessian_product(linear: Any, share: float, v: jax.Array) -> jax.Array:
    """``share`` times H_b v, for v (p,) or (p, b) and the linear map v -> H_b v."""
    return share * batched(linear, v)


@bounded_jit
def jacobian_product(batch: LinearMap, v: jax.Array) -> jax.Array:
    """J_b v = R^T dF/dtheta v for v (p,) or (p, b), with samples and outputs in one axis."""
    rows = batched(lambda w: apply_factor(batch.hessian, batch.linear(w), transpose=True), v)
    return rows.reshape(rows.shape[0] * rows.shape[1], *v.shape[1:])


@bounded_jit(static_argnums=1)
def transposed_product(batch: LinearMap, size: int, u: jax.Array) -> jax.Array:
    """J_b^T u = (dF/dtheta)^T R u for u (n_b, r) or (n_b, r, b) and ``size`` parameters."""
    transpose = jax.linear_transpose(batch.linear, jax.ShapeDtypeStruct((size,), u.dtype))
    return batched(lambda w: transpose(apply_factor(batch.hessian, w, transpose=False))[0], u, 2)


@bounded_jit
def gauss_newton_product(batch: LinearMap, v: jax.Array) -> jax.Array:
    """J_b^T J_b v = (dF/dtheta)^T B dF/dtheta v, for v (p,) or (p, b), with B as a whole."""
    transpose = jax.linear_transpose(batch.linear, jax.ShapeDtypeStruct((len(v),), v.dtype))

    def product(w: jax.Array) -> jax.Array:
        image = batch.linear(w)
        return transpose(image if batch.hessian is None else batch.hessian.apply(image))[0]

    return batched(product, v)
