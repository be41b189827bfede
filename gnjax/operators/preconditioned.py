"""P^{-1/2} A P^{-1/2}, whose eigenvalues are those of P^{-1} A: what an optimiser's metric does.

A step along P^{-1} g is a step of gradient descent for the parameters P^{1/2} theta, whose
curvature is P^{-1/2} A P^{-1/2}.

The scaling S is computed, so that S P S = I + R with a small R. With eta >= ||R|| there is an
orthogonal Q with S P^{1/2} = Q H and ||H - I|| <= eta, so that S A S has the eigenvalues of
H M H for the exact M = P^{-1/2} A P^{-1/2}, and ||H M H - M|| <= (2 eta + eta^2) ||M||.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.kernels import row_blocks
from gnjax.networks.network import Network, backward_products, forward_products, parameter_names
from gnjax.networks.parameters import grouped
from gnjax.networks.rounding import jacobian_error
from gnjax.numerics.certificate import Error
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import gamma, unit_roundoff
from gnjax.numerics.validation import check_finite_number
from gnjax.operators.algebra import Algebra
from gnjax.operators.blocks import indices_of
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.facts import (
    error_of,
    factorisation_of,
    forms_cheaply,
    is_positive,
    rank_bound_of,
    rank_is_assumed,
)
from gnjax.operators.network import NetworkGram, symmetric_columns
from gnjax.operators.optimisers import has_optimizer_state, optimizer_metric
from gnjax.operators.trees import ParameterTrees, takes_trees


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaling:
    """S = P^{-1/2}, block diagonal: a root is a vector (a diagonal block) or a symmetric matrix.

    ``eta`` bounds ||S P S - I||, ``norm`` is about ||S|| and ``inverse`` about ||S^{-1}||.
    """

    indices: tuple[jax.Array, ...]
    roots: tuple[jax.Array, ...]
    eta: float = field(metadata={"static": True})
    norm: float = field(metadata={"static": True})
    inverse: float = field(metadata={"static": True})

    def __call__(self, v: jax.Array) -> jax.Array:
        """S v for a vector (p,) or a block of columns (p, b)."""
        image = jnp.zeros_like(v)
        for own, root in zip(self.indices, self.roots, strict=True):
            part, acting = v[own], root.astype(v.dtype)
            if root.ndim == 1:
                part = acting.reshape(-1, *(1,) * (v.ndim - 1)) * part
            else:
                part = jnp.matmul(acting, part, precision="highest")
            image = image.at[own].set(part)
        return image


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Preconditioned(Algebra, ParameterTrees):
    """S A S for A = ``op`` and S = P^{-1/2}; J S^2 J^T where ``op`` is on the side of outputs.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> scaled = gnjax.preconditioned(op, np.array([0.5, 2.0]))  # P = G
    >>> isinstance(scaled, gnjax.Preconditioned), scaled.as_matrix().round(12).tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """

    op: Any
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.op.shape
        return shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.op.dtype

    @property
    def symmetric(self) -> bool:
        return bool(getattr(self.op, "symmetric", False))

    @property
    def forms_cheaply(self) -> bool:
        return forms_cheaply(self.op)

    @property
    def positive(self) -> bool:
        return is_positive(self.op)

    @property
    def rank_bound(self) -> int:
        """The bound of A, because S is not singular."""
        return rank_bound_of(self.op)

    @property
    def assumed(self) -> bool:
        return rank_is_assumed(self.op)

    @property
    def net(self) -> Network | None:
        return getattr(self.op, "net", None)

    @property
    def side(self) -> str:
        return getattr(self.op, "side", "parameters")

    @cached_property
    def twin(self) -> Preconditioned:
        """The smaller one of scale S J^T J S and scale J S^2 J^T."""
        small = self.op.twin if isinstance(self.op, NetworkGram) else self.op
        return self if small is self.op else replace(self, op=small)

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        if self.side == "parameters":
            return self.scaling(self.op.mv(self.scaling(jnp.asarray(v, self.dtype))))
        pulled = self.scaling(self.scaling(backward_products(self.op.net, jnp.asarray(v))))
        return jnp.asarray(self.op.scale * forward_products(self.op.net, pulled))

    def as_matrix(self) -> jax.Array:
        if self.side == "outputs":
            return symmetric_columns(self)
        once = self.scaling(jnp.asarray(self.op.as_matrix()))
        matrix = self.scaling(once.T)
        return (matrix + matrix.T) / 2

    def factorisation(self) -> Factorisation | None:
        """S J, or its transpose J S on the side of outputs."""
        known = factorisation_of(self.op)
        if known is None:
            return None

        @cache
        def form() -> np.ndarray:
            factor = jnp.asarray(known.form(), self.dtype)
            if self.side == "outputs":
                return np.asarray(self.scaling(factor.T).T, np.float64)
            return np.asarray(self.scaling(factor), np.float64)

        def error() -> Error:
            """For a network the measured error of J S, else ||S|| times the error of the factor."""
            if isinstance(self.op, NetworkGram):
                own = self._measured_rounding
            else:
                own = known.error().scaled(raised(self.scaling.norm))
            length = float(np.linalg.norm(form()))
            return own + self._scaling_error(self.scaling.eta * length, length)

        return Factorisation(known.shape, form, error)

    @cached_property
    def _measured_rounding(self) -> Error:
        net = self.op.net if self.op.unmerged is None else self.op.unmerged
        return jacobian_error(net, scaling=self.scaling).scaled(self.op.scale**0.5)

    @cached_property
    def _factor_error(self) -> Error:
        known = self.factorisation()
        assert known is not None
        return known.error()

    def error(self, norm: float) -> Error:
        """The error of S A S from those of A and of S, and from the rounding of products with S."""
        if isinstance(self.op, NetworkGram) and self.op.factorisation() is not None:
            return gram_error(norm, self._factor_error)
        size, eta = abs(float(norm)), self.scaling.eta
        own = error_of(self.op, raised(size * self.scaling.inverse**2))
        moved = self._scaling_error((2 + eta) * eta * size, size * (self.shape[0] ** 0.5))
        return own.scaled(raised(self.scaling.norm**2)) + moved

    def _scaling_error(self, moved: float, length: float) -> Error:
        """The error of S, and the rounding of its products with numbers of the given norm."""
        largest = max(len(own) if root.ndim > 1 else 1 for own, root in self._blocks)
        spread = self.scaling.norm * self.scaling.inverse if largest > 1 else 1.0
        rounding = gamma(2 * largest + 4, self.dtype) * spread * length
        return Error(raised(moved + rounding), reason="the error of the scaling P^{-1/2}")

    @property
    def _blocks(self) -> list[tuple[jax.Array, jax.Array]]:
        return list(zip(self.scaling.indices, self.scaling.roots, strict=True))


def preconditioned(op: Any, metric: Any, *, damping: float = 0.0) -> Preconditioned:
    """P^{-1/2} A P^{-1/2} for a metric P on the parameters; its kappa is certified as that of A.

    Args:
      op: an operator A on the parameters of a network; or a Gauss-Newton matrix or NTK on the side
        of the outputs, J J^T, which becomes J P^{-1} J^T.
      metric: P, as positive diagonal entries (a tree like the parameters, or a vector (p,)); a
        state of optax's Adam, RMSprop or Adagrad (see :func:`optimizer_metric` for constants other
        than optax's defaults); "diagonal" for diag(A); or "layers" for the diagonal blocks of the
        layers. P is the matrix of these numbers as they are computed; the error of its inverse
        root is part of the answer.
      damping: a number that is added to the diagonal of P.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (30, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> whole = gnjax.condition_number(op).value
    >>> layers = gnjax.condition_number(gnjax.preconditioned(op, "layers", damping=1e-6))
    >>> layers.value < whole, layers.certificate.kind
    (True, 'measured')
    """
    if getattr(op, "net", None) is None:
        msg = (
            f"a metric is on the parameters of a network, got a {type(op).__name__}; pass an "
            "operator such as gnjax.gauss_newton(model, x)"
        )
        raise ValueError(msg)
    if getattr(op, "side", "parameters") != "parameters" and not isinstance(op, NetworkGram):
        msg = "this operator acts on the outputs of the model; make it with side='parameters'"
        raise ValueError(msg)
    added = check_finite_number("damping", damping)
    if added < 0:
        msg = f"damping={damping} is negative; a metric is positive definite"
        raise ValueError(msg)
    if isinstance(metric, str) and metric == "layers":
        groups = grouped(parameter_names(op.net), "layer")
        return Preconditioned(op, _block_scaling(_on_parameters(op), list(groups.values()), added))
    return Preconditioned(op, _diagonal_scaling(_metric_entries(op, metric) + added, op.dtype))


def diagonal_of(op: Any) -> Any:
    """The diagonal of an operator on the parameters of a network, as a tree like them.

    Of a Gauss-Newton matrix these are the squared lengths of the columns of J, some samples at a
    time; of another operator it comes from the matrix.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> gnjax.diagonal_of(op).ravel().tolist()
    [0.5, 2.0]
    """
    inner = _on_parameters(op)
    return inner.unravel(jnp.asarray(_diagonal(inner), inner.dtype))


def _on_parameters(op: Any) -> Any:
    return replace(op, side="parameters") if isinstance(op, NetworkGram) else op


def _diagonal(op: Any) -> np.ndarray:
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        blocks = (
            np.square(np.asarray(rows, np.float64)).sum(axis=0) for rows in row_blocks(op.net)
        )
        total: np.ndarray = op.scale * sum(blocks)
        return total
    return np.diagonal(np.asarray(op.as_matrix(), np.float64)).copy()


def _metric_entries(op: Any, metric: Any) -> np.ndarray:
    """The diagonal (p,) of P."""
    inner = _on_parameters(op)
    if isinstance(metric, str):
        if metric != "diagonal":
            msg = f"metric={metric!r} is neither 'diagonal' nor 'layers'"
            raise ValueError(msg)
        return _diagonal(inner)
    if has_optimizer_state(metric):
        metric = optimizer_metric(metric)
    if isinstance(metric, jax.Array | np.ndarray) and metric.shape == (op.net.parameters,):
        return np.asarray(metric, np.float64)
    return np.asarray(inner.ravel(metric), np.float64)


def _diagonal_scaling(entries: np.ndarray, dtype: jnp.dtype) -> Scaling:
    """1 / sqrt(P) entry by entry: root, quotient and storage each round once."""
    if not (np.isfinite(entries).all() and (entries > 0).all()):
        bad = int((~(np.isfinite(entries) & (entries > 0))).sum())
        msg = (
            f"{bad} of the {len(entries)} diagonal entries of P are not positive numbers; pass "
            "damping=1e-8, or another number to add to all of them"
        )
        raise ValueError(msg)
    roots = 1 / np.sqrt(entries)
    eta = 12 * unit_roundoff(dtype)  # of the square of a number with three roundings, and more
    stored = jnp.asarray(roots, dtype)
    ends = float(roots.max()), float(1 / roots.min())
    return Scaling((jnp.arange(len(entries)),), (stored,), eta, *ends)


def _block_scaling(op: Any, groups: Sequence[Sequence[int]], damping: float) -> Scaling:
    """(G_bb + damping)^{-1/2} of every block, with ||S P S - I|| as it is found."""
    parts = [indices_of(op.net.counts, group) for group in groups]
    roots, eta, norm, inverse = [], 0.0, 0.0, 0.0
    for own, block in zip(parts, _block_matrices(op, parts), strict=True):
        matrix = block + damping * np.eye(len(own))
        values, vectors = np.linalg.eigh(matrix)
        least = 1e-13 * len(own) * abs(values[-1])
        if not values[0] > least:
            msg = (
                f"a block of P with {len(own)} parameters has the eigenvalue {values[0]:.2g} and "
                f"is not positive definite; pass damping={max(1e-6 * values[-1], 1e-12):.1g}, say"
            )
            raise ValueError(msg)
        root = (vectors / np.sqrt(values)) @ vectors.T
        stored = jnp.asarray((root + root.T) / 2, op.dtype)
        kept = np.asarray(stored, np.float64)
        off = float(np.linalg.norm(kept @ matrix @ kept - np.eye(len(own))))
        quotient = float(values[-1] / values[0])
        seen = gamma(2 * len(own), np.dtype(np.float64)) * quotient**0.5 * len(own) ** 0.5
        eta, norm = max(eta, off + seen), max(norm, float(values[0] ** -0.5))
        inverse = max(inverse, float(values[-1] ** 0.5))
        roots.append(stored)
    indices = tuple(jnp.asarray(own) for own in parts)
    return Scaling(indices, tuple(roots), raised(eta), norm, inverse)


def _block_matrices(op: Any, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        totals = [np.zeros((len(own), len(own))) for own in parts]
        for rows in row_blocks(op.net):
            host = np.asarray(rows, np.float64)
            for own, total in zip(parts, totals, strict=True):
                total += host[:, own].T @ host[:, own]
        return [op.scale * total for total in totals]
    matrix = np.asarray(op.as_matrix(), np.float64)
    return [matrix[np.ix_(own, own)] for own in parts]
