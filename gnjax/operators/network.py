"""Gauss-Newton matrices, the NTK and Hessians of any network, as operators.

With J the Jacobian (n k, p) of the outputs and B_i the output Hessian of the loss at sample i,

    G = 1/n sum_i J_i^T B_i J_i        (p, p), Eq 1; the non-zero eigenvalues are also those of
    1/n R^T J J^T R, B = R R^T         (n r, n r), R with r columns for each sample, and of the
                                       NTK J J^T / n (n k, n k) for the squared error,
    H = G + H_F,  H_F = 1/n sum_i sum_c (d loss / d f_c) nabla^2 F_c(x_i)    (Eq 17).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks import kernels as gram
from gnjax.networks.construct import network
from gnjax.networks.duplicates import merged, unique_samples
from gnjax.networks.losses import (
    Loss,
    OutputFactors,
    check_call,
    check_targets,
    factor_columns,
    sample_loss,
)
from gnjax.networks.network import (
    Network,
    backward_products,
    batched,
    columns,
    forward_products,
    gather,
    gauss_newton_products,
    pieces,
    spread,
    sum_of,
)
from gnjax.networks.null_space.dimension import null_dimension
from gnjax.networks.parameters import Only
from gnjax.networks.rounding import jacobian_error, product_error
from gnjax.numerics.certificate import Error
from gnjax.operators.algebra import Algebra
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.trees import ParameterTrees, takes_trees

HESSIAN = 3  # evaluations that write as much as a product
_COLUMNS = 64
_SIDES = ("auto", "parameters", "outputs")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NetworkGram(Algebra, ParameterTrees):
    """scale J^T J (side "parameters", (p, p)) or scale J J^T (side "outputs", (n r, n r))."""

    net: Network
    side: str = field(metadata={"static": True})
    scale: float = field(metadata={"static": True})
    unmerged: Network | None = None  # with all samples, where ``net`` has equal ones merged

    symmetric = True
    forms_cheaply = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.factor_shape[0], self.factor_shape[0]

    @property
    def factor_shape(self) -> tuple[int, int]:
        """Of the factor F with F F^T the operator: J^T or J."""
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
        side = _side(net, "auto")
        if net.parameters == net.samples * net.rows:
            side = self.side
        if net is self.net and side == self.side:
            return self
        return NetworkGram(net, side, self.scale, None if net is self.net else self.net)

    @cached_property
    def rank_bound(self) -> int:
        """A number that the rank of the exact matrix does not exceed.

        It is the smaller of the rows of J of samples that differ and of the number of chosen
        parameters, less the directions in which structure keeps every output where it is (see
        :mod:`gnjax.networks.null_space.dimension`).
        """
        rows = unique_samples(self.net) * self.net.rows
        if self.net.parameters > 2 * rows:
            return rows
        return min(self.net.parameters - null_dimension(self.net), rows)

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        if self.side == "parameters":
            return self.scale * gauss_newton_products(self.net, v)
        return self.scale * forward_products(self.net, backward_products(self.net, v))

    def as_matrix(self) -> jax.Array:
        """The matrix, by the structure of the layers on the output side."""
        form = gram.parameter_gram if self.side == "parameters" else gram.output_gram
        matrix = form(self.net)
        return jnp.asarray(matrix if self.scale == 1 else self.scale * matrix)

    def factor(self) -> np.ndarray:
        """F with F F^T the operator, in host memory."""
        jacobian = gram.jacobian(self.net) * self.scale**0.5
        return jacobian.T if self.side == "parameters" else jacobian

    def factorisation(self) -> Factorisation:
        return Factorisation(self.factor_shape, self.factor, self._factor_error)

    def _factor_error(self) -> Error:
        return self._rounding

    @cached_property
    def _rounding(self) -> Error:
        """Measured with all samples: merging equal ones leaves the Frobenius norm as it is."""
        net = self.net if self.unmerged is None else self.unmerged
        factors = None if net.factors is None else OutputFactors(net.loss)
        return jacobian_error(net, factors, net.targets).scaled(self.scale**0.5)

    def error(self, norm: float) -> Error:
        """What the rounding of the Jacobian makes of the matrix, measured."""
        return gram_error(norm, self._factor_error())


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NetworkHessian(Algebra, ParameterTrees):
    """The Hessian (p, p) of 1/n sum_i loss(F(x_i), y_i), or of its part H_F alone (Eq 17)."""

    net: Network
    y: jax.Array
    loss: Loss = field(metadata={"static": True})
    functional: bool = field(metadata={"static": True})

    symmetric = True
    forms_cheaply = True

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
            columns(self.net, partial(_hessian_batch, self, x, y), v, evaluations=HESSIAN)
            for x, y in pieces(self.net, self.y)
        )
        return sum_of(parts) / self.net.samples

    def error(self, norm: float) -> Error:
        """What the rounding of the network makes of the products, measured."""
        del norm
        return self._rounding

    @cached_property
    def _rounding(self) -> Error:
        net = self.net
        found = product_error(
            Partial(_hessian_product, self),
            net.parameters,
            net.dtype,
            batches=list(pieces(net, self.y)),
            work=HESSIAN * net.written * net.batch,
            reason="rounding of the network, by Monte Carlo arithmetic",
        )
        return found.scaled(1.0 / net.samples)

    def objective(self, x: jax.Array, y: jax.Array, leaves: list[jax.Array]) -> jax.Array:
        """The loss summed over samples, linearised in the outputs for H_F."""
        loss = jax.vmap(sample_loss(self.loss))
        f = self.net.outputs(leaves, x)
        if not self.functional:
            return loss(f, y).sum()
        slopes = jax.grad(lambda outputs: loss(outputs, y).sum())(f)
        return jnp.vdot(jax.lax.stop_gradient(slopes), f)

    def as_matrix(self) -> jax.Array:
        """Columns by products, some at a time, and the symmetric part of them."""
        size = self.shape[0]
        unit = jnp.eye(size, dtype=self.dtype)
        matrix = jnp.concatenate(
            [self.mv(unit[:, i : i + _COLUMNS]) for i in range(0, size, _COLUMNS)], axis=1
        )
        return (matrix + matrix.T) / 2


@jax.jit
def _hessian_batch(op: NetworkHessian, x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    return batched(lambda w: _hessian_product(op, w, x, y), v)


def _hessian_product(op: NetworkHessian, w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """n H_b w of one batch, forward over reverse."""
    gradient = jax.grad(partial(op.objective, x, y))
    return gather(op.net, jax.jvp(gradient, (list(op.net.leaves),), (spread(op.net, w),))[1])


def gauss_newton(
    model: Any,
    x: ArrayLike,
    *,
    loss: Loss = "squared_error",
    side: str = "parameters",
    batch_size: int | None = None,
    y: ArrayLike | None = None,
    coupled: bool | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> NetworkGram:
    """The Gauss-Newton matrix G = 1/n sum_i J_i^T B_i J_i (Eq 1), or its output-side twin.

    Args:
      model: see :func:`gnjax.functional`.
      x: inputs (n, ...).
      loss: "squared_error" (B = I; "mse" is an older name of it), "cross_entropy" (B = diag(p) -
        p p^T), or a convex ``loss(f, y)`` of one sample (``loss(f)`` where no y is given). A loss
        with one number for each output, like optax's elementwise ones, is summed over outputs.
      side: "parameters", G itself (p, p); "outputs", its twin 1/n R^T J J^T R (n r, n r) with the
        same non-zero eigenvalues, where r = k, or k - 1 for the cross-entropy; or "auto", the
        smaller of the two.
      batch_size: samples at once; chosen to bound memory where not given.
      coupled: whether the outputs of a sample depend on the other samples of the batch, as under
        BatchNorm in training mode. None finds out; True differentiates the batch as one function;
        False is refused where samples turn out to be coupled.
      mask: a pytree like the parameters; entries where it is zero are held fixed, and are no
        parameters of G.
      only: what chooses parameters: a pattern like "layers/0/*", a list of patterns, a function of
        the path, or a filter of Flax NNX such as ``nnx.LoRAParam``.
    """
    net = network(
        model,
        x,
        loss=loss,
        y=y,
        batch_size=batch_size,
        coupled=coupled,
        mask=mask,
        only=only,
    )
    return NetworkGram(net, _side(net, side), 1.0 / net.samples)


def ntk(
    model: Any,
    x: ArrayLike,
    *,
    batch_size: int | None = None,
    coupled: bool | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> NetworkGram:
    """The neural tangent kernel J J^T (n k, n k) without a factor 1/n, samples first."""
    net = network(model, x, batch_size=batch_size, coupled=coupled, mask=mask, only=only)
    return NetworkGram(net, "outputs", 1.0)


def hessian(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    *,
    loss: Loss = "squared_error",
    batch_size: int | None = None,
    coupled: bool | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> NetworkHessian:
    """The Hessian of the mean loss; symmetric, and in general not positive semidefinite."""
    return _hessian(model, x, y, loss, False, batch_size, coupled, mask, only)


def functional_hessian(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    *,
    loss: Loss = "squared_error",
    batch_size: int | None = None,
    coupled: bool | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> NetworkHessian:
    """H_F = H - G (Eq 17): the curvature of the network weighted by the loss's slope."""
    return _hessian(model, x, y, loss, True, batch_size, coupled, mask, only)


def _hessian(
    model: Any,
    x: ArrayLike,
    y: ArrayLike,
    loss: Loss,
    functional: bool,
    batch_size: int | None,
    coupled: bool | None,
    mask: Any,
    only: Only | None,
) -> NetworkHessian:
    net = network(model, x, batch_size=batch_size, coupled=coupled, mask=mask, only=only)
    factor_columns(loss, net.k)  # refuses the cross-entropy of one class
    outputs = jax.ShapeDtypeStruct((net.samples, net.k), net.dtype)
    targets = check_targets(loss, y, outputs)
    check_call(loss, outputs, targets)
    return NetworkHessian(net, targets, loss, functional)


def _side(net: Network, side: str) -> str:
    if side not in _SIDES:
        msg = f"side={side!r} is not one of {', '.join(_SIDES)}"
        raise ValueError(msg)
    if side != "auto":
        return side
    return "parameters" if net.parameters < net.samples * net.rows else "outputs"
