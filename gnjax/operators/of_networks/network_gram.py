"""Gauss-Newton matrices and the NTK of any network, as operators.

J (n r, p) is R^T times the Jacobian of the outputs, with the output Hessian B = R R^T of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks import jacobians, kernels
from gnjax.networks.alike import found_for_alike
from gnjax.networks.losses.output_hessian import has_root
from gnjax.networks.losses.targets import Target
from gnjax.networks.network import (
    GRAM,
    Network,
    backward_products,
    columns,
    forward_products,
    gauss_newton_of_batch,
    gauss_newton_products,
    sample_batches,
    sum_of,
)
from gnjax.networks.null_space.ranks import rank_bounds
from gnjax.networks.rounding import (
    SAFETY,
    Forms,
    JacobianErrors,
    MeasuredProduct,
    OtherPrograms,
    SecondLook,
    checked,
    error_of_all,
    forms_of_images,
    forms_of_kernel,
    forms_of_products,
    forms_of_rows,
    is_small,
    look_at_both,
    measure_jacobian,
    measured_product,
    moved_network,
    probe_rows,
    product_by_looks,
    product_probes,
    reason_of,
    watched,
    with_sums,
)
from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.evidence import THOROUGH, evidence, in_a_stage
from gnjax.numerics.host import length, on_device, on_host, times_number, wide
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.memory.free import check_matrix_room
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.scale import exponent_of
from gnjax.numerics.validation import check_known
from gnjax.operators.algebra import Algebra
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.facts import Facts, Product, trial_magnitude
from gnjax.operators.of_networks import linearised, stored_jacobian
from gnjax.operators.of_networks.described import described
from gnjax.operators.of_networks.sides import chosen_side
from gnjax.operators.prepare import multiplied
from gnjax.operators.protocol import Operator
from gnjax.operators.recast import recast_in_float64
from gnjax.operators.trees import ParameterTrees, takes_trees

_CONVEX = Error(0.0, MEASURED, reason="the loss is convex, by computed output Hessians")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class NetworkGram(Algebra, ParameterTrees):
    """scale J^T J (side "parameters", (p, p)) or scale J J^T (side "outputs", (n r, n r)).

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> isinstance(op, gnjax.operators.NetworkGram), op.shape, op.factor().shape
    (True, (26, 26), (26, 10))
    """

    net: Network
    side: str = field(metadata={"static": True})
    scale: float = field(metadata={"static": True})
    loss: str = field(metadata={"static": True})  # in words; "" where no loss enters

    def facts(self) -> Facts:
        """What is known by structure, and the error and magnitude from measured products.

        That J^T B J is positive semidefinite is proved for a loss by name. For a loss of the
        caller's own it rests on output Hessians B that are computed.
        """
        target, (rows, columns) = self.net.target, self.factor_shape
        loss_of_caller = target is not None and callable(target.loss)
        return Facts(
            error=self.error,
            rank=self._rank,
            symmetric=True,
            positive=has_root(target) and (_CONVEX if loss_of_caller else True),
            factor=self.factorisation,
            twin=lambda: self.twin,
            forms_cheaply=True,
            formed_by_products=False,
            forming_work=lambda: (
                rows**2 * columns / 2 if self.side == "parameters" else kernels.gram_work(self.net)
            ),
            magnitude=self._magnitude,
            product=lambda: self._storing(self._linearised),
            one_by_one=self._is_large,
            in_float32=partial(linearised.linearised_in_float32, self),
            in_float64=partial(recast_in_float64, self),
            network=self.net if self.side == "parameters" else None,
        )

    def __repr__(self) -> str:
        form = "J^T J" if self.side == "parameters" else "J J^T"
        return described(self, form, self.net, self.loss, layers=True)

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
        """The smaller one of J^T J and J J^T, which have the same non-zero eigenvalues."""
        net, side = self.net, chosen_side(self.net, "auto")
        if side == self.side or net.parameters == net.samples * net.rows:
            return self
        return replace(self, side=side)

    def _rank(self) -> RankBound:
        """A bound on the rank of J, by the structure of the network."""
        every_leaf = range(len(self.net.leaf_indices))
        return self.net.once("rank", lambda: rank_bounds(self.net, [every_leaf])[0])

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """scale J^T J v or scale J J^T v, for a vector or columns."""
        if self.side == "parameters":
            return self.scale * gauss_newton_products(self.net, v)
        return self.scale * forward_products(self.net, backward_products(self.net, v))

    def as_matrix(self) -> jax.Array:
        """The matrix: J^T J from blocks of rows of J, or J J^T by the structure of the layers.

        Its u^T A w for random u and w are recorded for ``factor_error``.
        """
        check_known("the matrix of an operator", self.net)
        check_matrix_room("the matrix of this operator", *self.shape, self.dtype.itemsize)
        if self.side == "parameters":
            total, images = jacobians.parameter_gram(self.net, self.probes)
            self._formed.append(forms_of_images(images))
            return total if self.scale == 1 else self.scale * total
        matrix = kernels.output_gram(self.net)
        self._formed.append(forms_of_kernel(self.probes, matrix))
        if self.scale != 1:
            matrix *= self.scale
        return on_device(matrix)

    def linear_maps(self) -> tuple[linearised.LinearMap, ...]:
        """For each batch of samples the map v -> dF/dtheta v of its outputs F, linearised.

        They serve :func:`gnjax.linearised`. J J^T needs the factor R of the output Hessian, too.
        """
        rooted = self.side == "outputs"
        return tuple(
            linearised.linear_outputs(self.net, x, target, rooted)
            for x, target in sample_batches(self.net, self.net.target)
        )

    def through(self, maps: Sequence[linearised.LinearMap], v: jax.Array) -> jax.Array:
        """The product with v, a vector or columns, from the linear maps of all batches."""
        net = self.net
        if self.side == "parameters":
            products = (partial(linearised.gauss_newton_product.of(net), m) for m in maps)
            return self.scale * sum_of(columns(net, product, v) for product in products)
        by_sample = v.reshape(net.samples, net.rows, *v.shape[1:])
        transposed = linearised.transposed_product.of(net)
        pulled = sum_of(  # J^T v = sum_b J_b^T u_b, where u_b (n_b, r, ..) are the rows of batch b
            columns(net, partial(transposed, m, net.parameters), u, 2)
            for m, (_, u) in zip(maps, sample_batches(net, by_sample), strict=True)
        )
        products = (partial(linearised.jacobian_product.of(net), m) for m in maps)
        return self.scale * jnp.concatenate([columns(net, f, pulled) for f in products])

    def prepared_by(self, linearised_op: Operator) -> Product:
        """The product of the linearised operator, and that with a stored J once storing it pays.

        ``linearised_op`` is this operator itself where it has no room to be linearised.
        """
        return self._storing(multiplied(self) if linearised_op is self else linearised_op.mv)

    def _storing(self, product: Product) -> Product:
        """This product, which notes what it gives for random vectors, or that with a stored J."""
        return stored_jacobian.storing(self, self.others.watched(product))

    @cached_property
    def _linearised(self) -> Product:
        """The product with the network linearised once, where that fits."""
        linearised_op = linearised.linearised(self)
        return multiplied(self) if linearised_op is self else linearised_op.mv

    def factor(self) -> np.ndarray:
        """F with F F^T the operator, in host memory.

        It is scale^{1/2} J^T (p, n r) on the side of parameters, and else scale^{1/2} J (n r, p).
        The numbers u^T J J^T w of this J, at random vectors u and w, are recorded, so that
        ``factor_error`` compares them with those of products.
        """
        check_known("a factor in host memory", self.net)
        check_matrix_room("the factor of this operator", *self.factor_shape, self.dtype.itemsize)
        jacobian = jacobians.jacobian(self.net)
        self._formed.append(forms_of_rows(self.probes, jacobian))
        jacobian = jacobian * self.scale**0.5
        return jacobian.T if self.side == "parameters" else jacobian

    def rows(self) -> jax.Array:
        """scale^{1/2} J (n r, p), whose product J^T J is the operator on the side of parameters.

        It can be made in a compiled function, since all of it is made at once.
        """
        whole = replace(self.net, batch=self.net.samples * self.net.rows)  # one piece, one program
        return jnp.concatenate(list(jacobians.row_blocks(whole))) * self.scale**0.5

    def factorisation(self) -> Factorisation | None:
        """The factor F with F F^T the operator: scale^{1/2} J^T or scale^{1/2} J.

        On the side of outputs it is, for coupled samples, a matrix of fewer columns with the same
        F F^T. None where the loss's output Hessian has no root.
        """
        full = self.full_factorisation()
        if full is None or self.side == "parameters" or not self.net.coupled:
            return full
        columns = sum(jacobians.widths_of_coupled(self.net))
        blocks = partial(self._blocks, jacobians.rows_of_coupled)

        def form() -> np.ndarray:
            return np.concatenate([np.asarray(rows) for rows in blocks()])

        return Factorisation((self.shape[0], columns), form, self.factor_error, blocks)

    def full_factorisation(self) -> Factorisation | None:
        """The factor scale^{1/2} J^T or scale^{1/2} J, where J has a column for every parameter.

        None where the loss's output Hessian B has no root R with B = R R^T.
        """
        if not has_root(self.net.target):
            return None
        by_rows, blocks = self.side == "outputs", partial(self._blocks, jacobians.row_blocks)
        return Factorisation(self.factor_shape, self.factor, self.factor_error, blocks, by_rows)

    def _blocks(
        self, rows_of: Callable[[Network], Iterator[Any]]
    ) -> Iterator[np.ndarray | jax.Array]:
        """Yield the rows that ``rows_of`` makes, times the root of the scale, and record them."""
        root, blocks = self.scale**0.5, map(wide, rows_of(self.net))
        for rows in watched(self.probes, blocks, self._formed.append):
            yield rows if root == 1 else times_number(rows, root)

    def factor_error(self) -> Error:
        """:meth:`_measured_factor_error` in a stage of its own."""
        return in_a_stage(self._measured_factor_error)

    def _measured_factor_error(self) -> Error:
        """The error of scale^{1/2} J in products, and in all that was formed of it until now.

        The error of products with J is measured. J, J J^T or J^T J may be formed by other programs,
        from the layers, which record their u^T J J^T w at random vectors u and w. Other programs
        for products with A = scale J^T J are compared by v^T A w = scale <J v, J w>, and with
        scale J J^T by J^T in the same way. A difference that errors do not explain becomes the
        error.
        """
        error = self.jacobian_errors.whole
        # matrices that were formed, and then other programs for products
        for forms in self._formed:
            error = checked(error, self.jacobian_errors.forms, forms)
        for images in self.others.images.values():
            forms = forms_of_products(on_host(self._multiplied), images).scaled(1 / self.scale)
            error = checked(error, self._expected, forms)
        return error.scaled(self.scale**0.5)

    @cached_property
    def others(self) -> OtherPrograms:
        """The programs that multiply with the operator, and their products with random vectors."""
        return OtherPrograms(lambda: self._multiplied)

    @cached_property
    def _multiplied(self) -> jax.Array:
        """The random vectors (p, j) or (n r, j) by which programs of products are compared."""
        if self.side == "outputs":
            return on_device(self.probes.T)
        most = 1 if self._is_large else 3
        return product_probes(self.net.parameters, self.dtype, most)

    @cached_property
    def _expected(self) -> Forms:
        """v^T J^T J w, or v^T J J^T w, for the vectors v and w that programs are compared by."""
        if self.side == "outputs":
            return self.jacobian_errors.forms
        return forms_of_images(on_host(forward_products(self.net, self._multiplied)).T)

    @property
    def jacobian_errors(self) -> JacobianErrors:
        """The error of J."""
        return self.net.once(f"{evidence()} evidence", lambda: measure_jacobian(self.net))

    @cached_property
    def probes(self) -> np.ndarray:
        """The random vectors u (m, n r) of :func:`measure_jacobian`."""
        return probe_rows(self.net)

    @cached_property
    def _formed(self) -> list[Forms]:
        """The forms of every matrix that was formed from the layers."""
        return []

    def _magnitude(self) -> int | None:
        """The exponent e with 2^e near the norm, from the first products that are made."""
        if self._by_products:
            size = length(self._images) if self._is_large else self._of_all_samples[0].size
            return exponent_of(size)
        if min(self.factor_shape) > LIMITS.matrix_rows:
            # It is only multiplied, and its rounding is measured after the answer. At 19 million
            # parameters and 5,000 samples that takes more than twice as long as this product.
            return trial_magnitude(self, self._linearised)
        root = exponent_of(self._error_and_size[1])
        return None if root is None else 2 * root + (exponent_of(self.scale) or 0)

    def error(self, norm: float) -> Error:
        """The error of the matrix from the rounding of the Jacobian, measured, and of sums.

        For a loss of the caller's own the products with J^T B J are measured instead, with the
        loss's output Hessian B as a derivative and, if a root R of it is formed, as R R^T. The
        reason is that for a singular B, R has errors of the size eps^{1/2}, which cancel in R R^T.
        The distance between both products counts as well: R leaves out eigenvalues of B that are
        negative, and derivatives do not.
        """
        if self._by_products or self._only_multiplied:
            error = in_a_stage(self._error_of_products)
        else:
            error = gram_error(norm, self.factor_error())
        return with_sums(error, self.net, norm)

    @property
    def _only_multiplied(self) -> bool:
        """Whether a large G was multiplied until now, and nothing was formed of J."""
        usual = self._is_large and evidence() != THOROUGH
        return usual and self.side == "parameters" and bool(self.others.images) and not self._formed

    def _error_of_products(self) -> Error:
        """The measured error of products with scale J^T B J, see :meth:`error`."""
        images = self.others.images.values()
        if self._is_large and evidence() != THOROUGH:
            return self._by_looks.error_beside(images)
        errors = [product.error_beside(images) for product in self._of_all_samples]
        errors.append(error_of_all(self._of_all_samples))
        return max(errors, key=lambda error: error.value)

    @property
    def _by_products(self) -> bool:
        """Whether the error is measured on products with J^T B J, see :meth:`error`."""
        target = self.net.target
        return self.side != "outputs" and target is not None and callable(target.loss)

    @property
    def _is_large(self) -> bool:
        """Whether the rounding of products is not measured by all samples, see ``is_small``."""
        return not is_small(self.net, GRAM)

    @property
    def _ways(self) -> list[Partial]:
        """Products with J^T B J, where B is a derivative, and R R^T if the root R can be formed."""
        rooted_or_not = (False, True) if has_root(self.net.target) else (False,)
        return [Partial(_GramProduct(rooted), self.net) for rooted in rooted_or_not]

    @property
    def _of_all_samples(self) -> list[MeasuredProduct]:
        """The products of ``_ways`` at random vectors, with their rounding, times the scale."""
        net = self.net
        unscaled = net.once(
            "products",
            lambda: [
                measured_product(
                    product,
                    net.parameters,
                    net.dtype,
                    batches=list(sample_batches(net, net.target)),
                    work=GRAM * net.written * net.batch,
                    reason=reason_of(net),
                )
                for product in self._ways
            ],
        )
        return [product.scaled(self.scale) for product in unscaled]

    @cached_property
    def _images(self) -> np.ndarray:
        """The products (p, j) of the operator with random vectors."""
        return self.others.image(self._linearised)

    @cached_property
    def _by_looks(self) -> MeasuredProduct:
        """Products with the operator at random vectors, with their rounding by the usual looks."""
        return self.looked_at(self._images, self.moved()._linearised)

    def moved(self) -> NetworkGram:
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
            name="J^T B J",
            second_look=self._second_look,
        )

    def _second_look(self) -> SecondLook:
        """What some samples show of the rounding of J^T B J, by products or by that of J."""
        if self._by_products:
            return look_at_both(self.net, self._ways, GRAM).scaled(self.scale)
        error, size = self._error_and_size
        of_gram = gram_error(size**2, error).value / SAFETY
        return SecondLook(size**2, of_gram, 1.0, 0.0).scaled(self.scale)

    @property
    def _error_and_size(self) -> tuple[Error, float]:
        """The error of J and an estimate of ||J||_F, also from a network that is nearly this."""
        net = self.net
        return found_for_alike(
            "J", net, lambda: (self.jacobian_errors.whole, self.jacobian_errors.size)
        )


@dataclass(frozen=True)
class _GramProduct:
    """J_b^T B J_b v of a batch, with the output Hessian B as a derivative, or as R R^T."""

    rooted: bool

    def __call__(self, net: Network, v: jax.Array, x: Any, target: Target) -> jax.Array:
        return gauss_newton_of_batch(net, x, target, v, rooted=self.rooted)
