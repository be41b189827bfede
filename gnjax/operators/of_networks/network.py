"""Gauss-Newton matrices, the NTK and Hessians of any network, as operators.

With J the Jacobian (n k, p) of the outputs and B_i the output Hessian of the loss at sample i,

    G = 1/n sum_i J_i^T B_i J_i        (p, p), Eq 1; the non-zero eigenvalues are also those of
    1/n R^T J J^T R, B = R R^T         (n r, n r), R with r columns for each sample, and of the
                                       NTK J J^T / n (n k, n k) for the squared error,
    H = G + H_F,  H_F = 1/n sum_i sum_c (d loss / d f_c) nabla^2 F_c(x_i)    (Eq 17).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks import kernels as gram
from gnjax.networks.duplicates import merged
from gnjax.networks.jaxprs import hessian_product
from gnjax.networks.network import (
    Network,
    backward_products,
    batched,
    columns,
    differentiated,
    forward_products,
    gather,
    gauss_newton_product,
    gauss_newton_products,
    sample_batches,
    scatter,
    sum_of,
)
from gnjax.networks.null_space.ranks import rank_bounds
from gnjax.networks.outputs.hessians import LARGEST_ROOT, has_root
from gnjax.networks.outputs.targets import Target, loss_sum
from gnjax.networks.rounding import jacobian_error, product_error
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.operators.algebra import Algebra
from gnjax.operators.base import Operator
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.trees import ParameterTrees, takes_trees

GRAM, HESSIAN = 2, 3  # a product writes as much as so many evaluations
_COLUMNS = 64
_SIDES = ("auto", "parameters", "outputs")
_REASON = "rounding of the network, by Monte Carlo arithmetic"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class NetworkGram(Algebra, ParameterTrees):
    """scale J^T J (side "parameters", (p, p)) or scale J J^T (side "outputs", (n r, n r)).

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> isinstance(op, gnjax.NetworkGram), op.shape, op.factor().shape
    (True, (26, 26), (26, 10))
    """

    net: Network
    side: str = field(metadata={"static": True})
    scale: float = field(metadata={"static": True})
    unmerged: Network | None = None  # the network before equal samples were merged

    symmetric = True
    forms_cheaply = True

    def __repr__(self) -> str:
        form = "J^T J" if self.side == "parameters" else "J J^T"
        return _described(self, form, self.net, layers=True)

    @property
    def shape(self) -> tuple[int, int]:
        return self.factor_shape[0], self.factor_shape[0]

    @property
    def factor_shape(self) -> tuple[int, int]:
        """The shape of the factor F with F F^T the operator, which is J^T or J."""
        sides = self.net.parameters, self.net.samples * self.net.rows
        return sides if self.side == "parameters" else sides[::-1]

    @property
    def dtype(self) -> jnp.dtype:
        return self.net.dtype

    @cached_property
    def twin(self) -> NetworkGram:
        """The smallest operator with the same non-zero eigenvalues; itself, where it is smallest.

        J^T J and J J^T have the same non-zero eigenvalues. Samples that are equal bit for bit are
        replaced by one of them, weighted by their number, so that J has fewer rows.
        """
        net = merged(self.net)
        side = chosen_side(net, "auto")
        if net.parameters == net.samples * net.rows:
            side = self.side
        if net is self.net and side == self.side:
            return self
        return NetworkGram(net, side, self.scale, None if net is self.net else self.net)

    @cached_property
    def rank_bound(self) -> int:
        """A number that the rank of the exact matrix does not exceed, by its structure alone."""
        return rank_bounds(self.net, [range(len(self.net.chosen))])[0]

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        if self.side == "parameters":
            return self.scale * gauss_newton_products(self.net, v)
        return self.scale * forward_products(self.net, backward_products(self.net, v))

    def as_matrix(self) -> jax.Array:
        """The matrix, by the structure of the layers on the output side."""
        if self.side == "parameters":
            summed = gram.parameter_gram(self.net)
            return summed if self.scale == 1 else self.scale * summed
        matrix = gram.output_gram(self.net)
        if self.scale != 1:
            matrix *= self.scale
        return on_device(matrix)

    def factor(self) -> np.ndarray:
        """F with F F^T the operator, in host memory."""
        jacobian = gram.jacobian(self.net) * self.scale**0.5
        return jacobian.T if self.side == "parameters" else jacobian

    def factorisation(self) -> Factorisation | None:
        if not has_root(self.net.target):
            return None
        return Factorisation(self.factor_shape, self.factor, self.factor_error)

    def factor_error(self) -> Error:
        return self._rounding

    @cached_property
    def _rounding(self) -> Error:
        """Measured with all samples: merging equal ones leaves the Frobenius norm as it is."""
        net = self.net if self.unmerged is None else self.unmerged
        return jacobian_error(net).scaled(self.scale**0.5)

    def error(self, norm: float) -> Error:
        """The error of the matrix from the rounding of the Jacobian, measured.

        For a loss of the caller's own the products are measured instead, with B as a derivative
        and, where R is formed, as R R^T. The reason is that for a singular B, R has errors of the
        size eps^{1/2}, which cancel in R R^T.
        """
        net = self.net
        if self.side == "outputs" or net.target is None or not callable(net.target.loss):
            return gram_error(norm, self.factor_error())
        roads = (False, True) if has_root(net.target) else (False,)
        found = [
            product_error(
                Partial(_GramProduct(rooted), net),
                net.parameters,
                net.dtype,
                batches=list(sample_batches(net, net.target)),
                work=GRAM * net.written * net.batch,
                reason=_REASON,
            )
            for rooted in roads
        ]
        return max(found, key=lambda error: error.value).scaled(self.scale)


@dataclass(frozen=True)
class _GramProduct:
    """J_b^T J_b v with B as a derivative, or as R R^T."""

    rooted: bool

    def __call__(self, net: Network, v: jax.Array, x: Any, target: Target) -> jax.Array:
        return gauss_newton_product(net, x, target, v, rooted=self.rooted)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class NetworkHessian(Algebra, ParameterTrees):
    """The Hessian (p, p) of the mean loss of F(x_i), y_i, or its part H_F alone (Eq 17).

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> y = jax.random.normal(jax.random.key(2), (5, 2))
    >>> op = gnjax.hessian(model, x, y)
    >>> isinstance(op, gnjax.NetworkHessian), op.shape
    (True, (26, 26))
    """

    net: Network
    functional: bool = field(metadata={"static": True})

    symmetric = True
    forms_cheaply = True

    def __repr__(self) -> str:
        return _described(self, "H_F" if self.functional else "H", self.net, layers=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.net.parameters, self.net.parameters

    @property
    def dtype(self) -> jnp.dtype:
        return self.net.dtype

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """Forward over reverse."""
        parts = (
            columns(self.net, partial(_hessian_batch, self, x, target), v, evaluations=HESSIAN)
            for x, target in sample_batches(self.net, self.net.target)
        )
        return sum_of(parts) / self.net.total

    def error(self, norm: float) -> Error:
        """The error of the products from the rounding of the network, measured."""
        del norm
        return self._rounding

    @cached_property
    def _rounding(self) -> Error:
        net = self.net
        found = product_error(
            Partial(_hessian_product, self),
            net.parameters,
            net.dtype,
            batches=list(sample_batches(net, net.target)),
            work=HESSIAN * net.written * net.batch,
            reason=_REASON,
        )
        return found.scaled(1.0 / float(net.total))

    def objective(self, x: Any, target: Target, leaves: list[jax.Array]) -> jax.Array:
        """The weighted sum of the loss over samples, linearised in the outputs for H_F."""
        f = self.net.outputs(leaves, x)
        if not self.functional:
            return loss_sum(target, f)
        slopes = jax.grad(partial(loss_sum, target))(f)
        return jnp.vdot(jax.lax.stop_gradient(slopes), f)

    def as_matrix(self) -> jax.Array:
        return symmetric_columns(self)


def _described(op: Operator, form: str, net: Network, *, layers: bool) -> str:
    """One line: the matrix, its size and network; with ``layers``, the number of known layers."""
    known = net.parameters - sum(differentiated(net).values())
    parameters = f"{net.parameters} parameters"
    if layers and known < net.parameters:
        parameters = f"{known:,} of {net.parameters:,} parameters in known layers"
    samples = f"{net.samples} coupled samples" if net.coupled else f"{net.samples} samples"
    return (
        f"<{type(op).__name__}: {form}, {op.shape[0]} x {op.shape[1]}, {jnp.dtype(op.dtype).name},"
        f" {parameters}, {samples} of {net.rows} outputs>"
    )


def symmetric_columns(op: Operator) -> jax.Array:
    """The matrix from products with unit vectors, some at a time, and its symmetric part."""
    size = op.shape[0]
    starts = range(0, size, _COLUMNS)
    units = (_units(size, i, min(_COLUMNS, size - i), op.dtype) for i in starts)
    return _symmetric([op.mv(unit) for unit in units])


@partial(jax.jit, static_argnums=(0, 2, 3))
def _units(size: int, start: int, count: int, dtype: jnp.dtype) -> jax.Array:
    """``count`` columns of the identity, from column ``start`` on."""
    return (jnp.arange(size)[:, None] == start + jnp.arange(count)[None]).astype(dtype)


@jax.jit
def _symmetric(parts: list[jax.Array]) -> jax.Array:
    """(M + M^T) / 2 of a matrix M given by some columns at a time."""
    matrix = jnp.concatenate(parts, axis=1)
    return (matrix + matrix.T) / 2


@bounded_jit
def _hessian_batch(op: NetworkHessian, x: Any, target: Target, v: jax.Array) -> jax.Array:
    return batched(lambda w: _hessian_product(op, w, x, target), v)


def _hessian_product(op: NetworkHessian, w: jax.Array, x: Any, target: Target) -> jax.Array:
    """The product with the Hessian of the summed loss of one batch."""
    net, gradient = op.net, jax.grad(partial(op.objective, x, target))
    moved = hessian_product(gradient, list(net.leaves), scatter(net, w), forward=net.forward)
    return gather(net, moved)


def without_idle_target(net: Network) -> Network:
    """The network, with only that part of its target on which the output Hessian B depends."""
    if net.target is None or not net.target.weighs:
        return replace(net, target=None)
    kept = net.target if callable(net.target.loss) else replace(net.target, y=None)
    return replace(net, target=kept)


def chosen_side(net: Network, side: str) -> str:
    """The side of the matrix, "auto" being the smaller one on which it can be computed."""
    if side not in _SIDES:
        msg = f"side={side!r} is not one of {', '.join(_SIDES)}"
        raise ValueError(msg)
    rooted = has_root(net.target)
    if side == "outputs" and not rooted:
        msg = (
            f"side='outputs' needs a square root of the loss's output Hessian, which is formed for "
            f"up to {LARGEST_ROOT} outputs for each sample and this model has {net.k}; use "
            "side='parameters', or a loss by its name"
        )
        raise ValueError(msg)
    if side != "auto":
        return side
    smaller = net.parameters < net.samples * net.rows
    return "parameters" if smaller or not rooted else "outputs"
