"""Operators of samples that come in batches: memory is that of one batch at a time.

    G = 1/N sum_b sum_{i in b} J_i^T B_i J_i

with N the number of all samples, or of the labels that count, and in the same way for Hessians.
Every product passes over all batches once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.batches import Batches, check_again, pair_of, tree_digest
from gnjax.networks.arguments.samples import check_samples, sample_count
from gnjax.networks.construct import network
from gnjax.networks.losses.sample_losses import Loss
from gnjax.networks.losses.targets import NOTHING_COUNTS, check_has_targets, make_target
from gnjax.networks.network import Network, sum_of
from gnjax.networks.null_space.ranks import rank_bound_of_batches
from gnjax.networks.rounding import with_sums
from gnjax.numerics.certificate import UNKNOWN, Error
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.validation import check_known
from gnjax.operators.algebra import Algebra
from gnjax.operators.factorisation import gram_error
from gnjax.operators.facts import Facts
from gnjax.operators.of_networks.described import loss_of, said
from gnjax.operators.of_networks.hessian import NetworkHessian, checked_hessian
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.of_networks.sides import without_idle_target
from gnjax.operators.prepare import devices_of_arrays
from gnjax.operators.recast import multiplies_in_float64, widened
from gnjax.operators.trees import ParameterTrees, takes_trees


@dataclass(frozen=True, repr=False)
class Streamed(Algebra, ParameterTrees):
    """The Gauss-Newton matrix (``functional`` None), the Hessian (False), or H_F (True) of batches.

    Attributes:
      batches: what every product passes over.
      net: the network of the largest batch, without samples.
      total: what the sum over all batches is divided by.
      rows: the rows of J of all batches.

    >>> model = lambda w, x: x @ w, np.ones((2, 1))
    >>> x, y = np.arange(8.0).reshape(4, 2), np.zeros((4, 1))
    >>> streamed = gnjax.gauss_newton(model, [(x[:2], y[:2]), (x[2:], y[2:])])
    >>> np.allclose(streamed.as_matrix(), gnjax.gauss_newton(model, x).as_matrix())
    True
    """

    batches: Batches
    net: Network
    loss: Loss
    functional: bool | None
    total: float
    rows: int

    def facts(self) -> Facts:
        """What is known about the matrix of all batches, which no batch holds alone."""
        return Facts(
            error=self.error,
            rank=lambda: self._rank,
            symmetric=True,
            forms_cheaply=True,
            formed_by_products=self.functional is not None,
            in_float64=self._in_float64,
            devices=partial(devices_of_arrays, self.net),
            network=self.net,
        )

    def __repr__(self) -> str:
        form = {None: "J^T J", False: "H", True: "H_F"}[self.functional]
        p, dtype = self.net.parameters, jnp.dtype(self.dtype).name
        loss = said(loss_of(self.net))
        return f"<Streamed: {form}, {p} x {p}, {dtype}, {p} parameters, batches of samples, {loss}>"

    @property
    def shape(self) -> tuple[int, int]:
        return self.net.parameters, self.net.parameters

    @property
    def dtype(self) -> jnp.dtype:
        return self.net.dtype

    @cached_property
    def _rank(self) -> RankBound:
        """A bound on the rank of G by the rows and columns of J; the size for a Hessian."""
        if self.functional is not None:
            return RankBound(self.net.parameters)
        return rank_bound_of_batches(
            self.net, lambda: (part.net for part in self.parts()), self.rows
        )

    def _in_float64(self) -> Streamed | None:
        """The operator with its parameters in float64; None if the model stays in float32."""
        wide = replace(self, net=widened(self.net))
        return wide if multiplies_in_float64(next(wide.parts())) else None

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """The sum over all batches of their products, divided by ``total``."""
        return sum_of(part.mv(v) for part in self.parts()) / self.total

    def as_matrix(self) -> jax.Array:
        """The sum over all batches of their matrices, divided by ``total``."""
        return sum_of(part.as_matrix() for part in self.parts()) / self.total

    def error(self, norm: float) -> Error:
        """The error of the sum from the measured errors of all batches; ``norm`` is its 2-norm.

        G = J^T J / total is wrong by the error of J, and a Hessian by the sum of its parts' errors.
        J has the rows of all batches, so that the Frobenius norm of its error is the root of the
        sum of the squares of theirs.
        """
        if self.functional is not None or callable(self.loss):
            # at the norm 0 the parts leave out what sums lose, which is counted once, at the end
            parts = (part.error(0.0) for part in self.parts())
            error = reduce(add, parts).scaled(1 / self.total)
        else:
            error = self._error_by_factors(norm)
        return with_sums(error, self.net, norm)

    def _error_by_factors(self, norm: float) -> Error:
        """The error of G = J^T J / total, of the 2-norm ``norm``, from those of the rows of J."""
        errors = [part.factor_error() for part in self.parts() if isinstance(part, NetworkGram)]
        total = reduce(add, errors).scaled(self.total**-0.5)
        if total.kind == UNKNOWN:
            return total
        size = math.hypot(*(error.value for error in errors)) / self.total**0.5
        return gram_error(norm, total.to(size))

    def parts(self) -> Iterator[NetworkGram | NetworkHessian]:
        """Yield for each batch b the operator of its samples alone: their sum, not yet divided.

        For a Gauss-Newton matrix it is J_b^T J_b with the rows R_i^T dF/dtheta(x_i) of the samples
        i of the batch, and otherwise the sum of the Hessians of their losses, or of the parts H_F.
        A batch in which no sample counts, because all labels are to be ignored, is left out.
        """
        first = self.net
        for x, y in self.batches:
            inputs = check_samples("x", x)
            n = sample_count(inputs)
            target, total = make_target(self.loss, y, None, first.shapes, n, first.dtype, idle=True)
            if total == 0:
                continue
            batch = min(first.batch, n)
            net = replace(first, x=inputs, target=target, total=1.0, batch=batch)
            if self.functional is None:
                # Idle is what B_i does not depend on, as the labels of a loss with a name. Products
                # with J_b^T J_b need B_i alone. 1.0: ``mv`` divides by ``total`` after the sum.
                yield NetworkGram(without_idle_target(net), "parameters", 1.0, loss_of(net))
            else:  # a Hessian also needs the loss's gradient, and so the labels
                yield NetworkHessian(net, self.functional)


def streamed(
    model: Any, source: Any, functional: bool | None, loss: Loss, **options: Any
) -> Streamed:
    """Make the operator of all batches, after a check of each batch; see :class:`Streamed`.

    A second pass over the source has to give the same batches, by their digests.
    """
    check_again(source)
    # 1. Check every batch, and add up the divisor of the mean loss and the rows of J.
    digests, total, rows, first = [], 0.0, 0, None
    for batch in source:
        x, y = pair_of(batch)
        if functional is not None:
            check_has_targets(loss, y)
        convex = functional is None  # J^T W J needs output Hessians W that are not negative
        # ``idle``: a single batch may have no sample that counts, such as one of padding.
        net = network(model, x, y=y, loss=loss, convex=convex, idle=True, **options)
        check_known("a sequence of batches", net)
        if net.coupled:
            msg = (
                "the samples of a batch are coupled, and the matrix would depend on how they are "
                "put into batches; call model.eval(), or give all samples as one x"
            )
            raise ValueError(msg)
        _check_same(first, net)
        if functional is not None and first is None:
            checked_hessian(NetworkHessian(net, functional))
        digests.append(tree_digest((x, y)))
        total, rows = total + float(net.total), rows + net.samples * net.rows
        # Kept is the network of the largest batch. Products read samples and targets again.
        if first is None or net.batch > first.batch:
            assert net.target is not None
            first = replace(net, x=(), target=replace(net.target, y=None, weights=None), total=1.0)
    if first is None:
        msg = "x is an empty sequence of batches; give at least one batch (x, y)"
        raise ValueError(msg)
    if total == 0:
        raise ValueError(NOTHING_COUNTS)
    # 2. A second pass: a generator, or a loader that shuffles, would give other batches.
    batches = Batches(source, tuple(digests))
    for _ in batches:  # a pass compares the digests
        pass
    return Streamed(batches, first, loss, functional, total, rows)


def _check_same(first: Network | None, net: Network) -> None:
    """Refuse a batch whose outputs have other shapes than those of the ``first`` one, if any."""
    if first is not None and first.shapes != net.shapes:
        msg = (
            f"the outputs of one sample have shapes {first.shapes.shapes} in one batch and "
            f"{net.shapes.shapes} in another; pad the samples to one length"
        )
        raise ValueError(msg)
