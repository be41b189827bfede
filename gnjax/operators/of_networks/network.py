"""Gauss-Newton matrices, the NTK and Hessians of any network, as operators.

With J the Jacobian (n k, p) of the outputs and B_i the output Hessian of the loss at sample i,

    G = 1/n sum_i J_i^T B_i J_i        (p, p), Eq 1; the non-zero eigenvalues are also those of
    1/n R^T J J^T R, B = R R^T         (n r, n r), R with r columns for each sample, and of the
                                       NTK J J^T / n (n k, n k) for the squared error,
    H = G + H_F,  H_F = 1/n sum_i sum_c (d loss / d f_c) nabla^2 F_c(x_i)    (Eq 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks import kernels as gram
from gnjax.networks.duplicates import folded, merged
from gnjax.networks.forms.derivatives import check_second_derivative
from gnjax.networks.forms.samples import take
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
from gnjax.networks.rounding import (
    Forms,
    Measured,
    MeasuredProduct,
    checked,
    forms_of_images,
    forms_of_kernel,
    forms_of_rows,
    measured,
    measured_product,
    probe_rows,
    watched,
)
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.host import on_device, times_number, wide
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.scale import exponent_of
from gnjax.operators.algebra import Algebra
from gnjax.operators.base import Operator
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.facts import POSITIVE, RANK_BOUND, STATED
from gnjax.operators.of_networks.kept_rows import kept
from gnjax.operators.trees import ParameterTrees, takes_trees

GRAM, HESSIAN = 2, 3  # a product writes as much as so many evaluations
_COLUMNS = 64
_SIDES = ("auto", "parameters", "outputs")
_CONVEX = Error(0.0, MEASURED, reason="the loss is convex, by computed output Hessians")
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

    @property
    def rank_bound(self) -> int:
        """A number that the rank of the exact matrix does not exceed, as surely as its evidence."""
        return self._rank.value

    @cached_property
    def _rank(self) -> RankBound:
        return rank_bounds(self.net, [range(len(self.net.leaf_indices))])[0]

    @cached_property
    def forming_work(self) -> float:
        """About how many multiplications the matrix takes, beside those for the rows of J."""
        if self.side == "parameters":
            return self.factor_shape[0] ** 2 * self.factor_shape[1] / 2
        return gram.gram_work(self.net)

    def evidence_for(self, fact: str) -> Error:
        """Proved, but for the rank where trials show it, and the curvature of a caller's loss."""
        if fact == RANK_BOUND:
            return self._rank.evidence
        loss_of_caller = self.net.target is not None and callable(self.net.target.loss)
        return _CONVEX if fact == POSITIVE and loss_of_caller else STATED[fact]

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        if self.side == "parameters":
            return self.scale * gauss_newton_products(self.net, v)
        return self.scale * forward_products(self.net, backward_products(self.net, v))

    def as_matrix(self) -> jax.Array:
        """The matrix, by the structure of the layers on the output side."""
        if self.side == "parameters":
            total, images = gram.parameter_gram(self.net, self.probes)
            self._formed.append(forms_of_images(images))
            return total if self.scale == 1 else self.scale * total
        matrix = gram.output_gram(self.net)
        self._formed.append(forms_of_kernel(self.probes, matrix))
        if self.scale != 1:
            matrix *= self.scale
        return on_device(matrix)

    def factor(self) -> np.ndarray:
        """F with F F^T the operator, in host memory."""
        jacobian = gram.jacobian(self.net)
        self._formed.append(forms_of_rows(self.probes, jacobian))
        jacobian = jacobian * self.scale**0.5
        return jacobian.T if self.side == "parameters" else jacobian

    def factorisation(self) -> Factorisation | None:
        """By J, or for coupled samples by a matrix C of fewer columns with C C^T = J J^T."""
        full = self.full_factorisation()
        if full is None or self.side == "parameters" or not self.net.coupled:
            return full
        columns = sum(gram.widths_of_coupled(self.net))
        blocks = partial(self._blocks, gram.rows_of_coupled, "of fewer columns")

        def form() -> np.ndarray:
            return np.concatenate([np.asarray(rows) for rows in blocks()])

        return Factorisation((self.shape[0], columns), form, self.factor_error, blocks)

    def full_factorisation(self) -> Factorisation | None:
        """By J, which has a column for every parameter."""
        if not has_root(self.net.target):
            return None
        by_rows, blocks = self.side == "outputs", partial(self._blocks, gram.row_blocks, "")
        return Factorisation(self.factor_shape, self.factor, self.factor_error, blocks, by_rows)

    def _blocks(
        self, rows_of: Callable[..., Iterator[Any]], kind: str, folder: Path | None = None
    ) -> Iterator[np.ndarray | jax.Array]:
        """R^T J times the root of the scale, or rows of another ``kind``, some at a time."""
        root = self.scale**0.5

        def computed(first: int) -> Iterator[np.ndarray | jax.Array]:
            return map(wide, rows_of(self.net, first))

        blocks = computed(0) if folder is None else kept(folder, self.net, computed, kind)
        for rows in watched(self.probes, blocks, self._formed.append):
            yield rows if root == 1 else times_number(rows, root)

    def factor_error(self) -> Error:
        """The error of the Jacobian in products, and in all that was formed of it until now."""
        error = self.measured.whole
        for forms in self._formed:
            error = checked(error, self.measured.forms, forms)
        return error.scaled(self.scale**0.5)

    @cached_property
    def measured(self) -> Measured:
        """The error of J, measured with all samples: merging equal ones leaves |J|_F unchanged."""
        return measured(self.net if self.unmerged is None else self.unmerged)

    @cached_property
    def probes(self) -> np.ndarray:
        """The random vectors u (m, n r) of :func:`measured`, folded where samples are merged."""
        if self.unmerged is None:
            return probe_rows(self.net)
        return folded(self.unmerged, probe_rows(self.unmerged))

    @cached_property
    def _formed(self) -> list[Forms]:
        """The forms of every matrix that was formed from the layers."""
        return []

    @property
    def magnitude(self) -> int | None:
        """From the products that measure the error, which every answer needs."""
        if self._by_products:
            exponent = exponent_of(self._measured_products[0].size)
        else:
            root = exponent_of(self.measured.size)
            exponent = None if root is None else 2 * root
        return None if exponent is None else exponent + (exponent_of(self.scale) or 0)

    def error(self, norm: float) -> Error:
        """The error of the matrix from the rounding of the Jacobian, measured.

        For a loss of the caller's own the products are measured instead, with B as a derivative
        and, where R is formed, as R R^T. The reason is that for a singular B, R has errors of the
        size eps^{1/2}, which cancel in R R^T.
        """
        if not self._by_products:
            return gram_error(norm, self.factor_error())
        errors = [product.error for product in self._measured_products]
        return max(errors, key=lambda error: error.value).scaled(self.scale)

    @property
    def _by_products(self) -> bool:
        """Whether the error is measured on products: on the parameters, for a caller's loss."""
        target = self.net.target
        return self.side != "outputs" and target is not None and callable(target.loss)

    @cached_property
    def _measured_products(self) -> list[MeasuredProduct]:
        """With B as a derivative, and with R R^T where R is formed."""
        net = self.net
        roads = (False, True) if has_root(net.target) else (False,)
        return [
            measured_product(
                Partial(_GramProduct(rooted), net),
                net.parameters,
                net.dtype,
                batches=list(sample_batches(net, net.target)),
                work=GRAM * net.written * net.batch,
                reason=_REASON,
            )
            for rooted in roads
        ]


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
        return self._measured.error.scaled(1.0 / float(self.net.total))

    @property
    def magnitude(self) -> int | None:
        """From the products that measure the error, which every answer needs."""
        return exponent_of(self._measured.size / float(self.net.total))

    @cached_property
    def _measured(self) -> MeasuredProduct:
        net = self.net
        return measured_product(
            Partial(_hessian_product, self),
            net.parameters,
            net.dtype,
            batches=list(sample_batches(net, net.target)),
            work=HESSIAN * net.written * net.batch,
            reason=_REASON,
        )

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
    in_known_layers = net.parameters - sum(differentiated(net).values())
    parameters = f"{net.parameters} parameters"
    if layers and in_known_layers < net.parameters:
        parameters = f"{in_known_layers:,} of {net.parameters:,} parameters in known layers"
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


def checked_hessian(op: NetworkHessian) -> NetworkHessian:
    """The operator; refused where the model or the loss cannot be differentiated twice."""
    net = op.net
    x, target = (net.x, net.target) if net.coupled else take((net.x, net.target), slice(0, 1))
    v = jnp.zeros(net.parameters, net.dtype)
    if not net.forward or callable(getattr(target, "loss", None)):
        check_second_derivative("the model or the loss", _hessian_batch, op, x, target, v)
    return op


def _hessian_product(op: NetworkHessian, w: jax.Array, x: Any, target: Target) -> jax.Array:
    """The product with the Hessian of the summed loss of one batch."""
    net, gradient = op.net, jax.grad(partial(op.objective, x, target))
    images = hessian_product(gradient, list(net.leaves), scatter(net, w), forward=net.forward)
    return gather(net, images)


def without_idle_target(net: Network) -> Network:
    """The network, with only that part of its target on which the output Hessian B depends."""
    if net.target is None or not net.target.weighs:
        return replace(net, target=None)
    target = net.target if callable(net.target.loss) else replace(net.target, y=None)
    return replace(net, target=target)


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
