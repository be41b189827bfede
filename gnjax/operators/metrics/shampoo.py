"""The metrics of Shampoo and SOAP, from the second moments of gradients that they keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.frameworks import PyTree
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import indices_of
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_damping
from gnjax.operators.metrics.exact import on_parameters
from gnjax.operators.metrics.metric import (
    ONE,
    Block,
    Factor,
    Metric,
    kronecker_block,
    symmetric_factor,
)
from gnjax.operators.metrics.optimisers import soap_state
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import network_of


def shampoo(
    op: Operator, factors: PyTree, *, damping: float = 0.0, exponent: float | None = None
) -> Metric:
    """Shampoo's metric: P = L^{1/4} (x) R^{1/4} + damping I for every matrix of parameters.

    Shampoo (Gupta, Koren and Singer 2018) steps along L^{-1/4} M R^{-1/4} for the gradient M (a, b)
    of a parameter and the sums L = sum M M^T, R = sum M^T M over the gradients so far. An array of
    more axes is read as a matrix whose columns are its last axis, as in :func:`shampoo_factors`.
    A vector has the single factor L and P = L^{1/2}. If the optimiser adds an epsilon to L and R,
    add it to ``factors`` too; ``damping`` is added to P. Without an epsilon the power of an
    eigenvalue near zero is that of its rounding.

    Args:
      op: an operator on the parameters, which says where they are.
      factors: a tree like the parameters with (L, R) in place of each array of two or more axes,
        and (L,) in place of a vector or number.
      damping: what is added to the diagonal of P.
      exponent: e in P = L^e (x) R^e in place of 1/4, for a matrix, and in P = L^e in place of 1/2,
        for a vector; some implementations take 1/2 for both.

    >>> model = lambda w, x: x @ w, np.ones((2, 1))
    >>> op = gnjax.gauss_newton(model, np.diag([1.0, 2.0]))
    >>> gradients = np.array([[[2.0], [0.0]], [[0.0], [4.0]]])  # of two steps, (2, 2, 1)
    >>> factors = gnjax.metrics.shampoo_factors(gradients)  # L = diag(4, 16), R = 20
    >>> gnjax.metrics.shampoo(op, factors).as_matrix() / 20**0.25
    array([[1.41421356, 0.        ],
           [0.        , 2.        ]])
    """
    added = check_damping(damping)
    if exponent is not None and not 0 < exponent <= 1:
        msg = f"exponent={exponent} is not in (0, 1]; Shampoo's own is 1/4 for a matrix"
        raise ValueError(msg)
    blocks: list[Block] = []
    for name, indices, shape, factors_of_leaf in _leaves_with_indices(op, factors):
        a, b = _sides(shape)
        arrays = [np.asarray(factor, np.float64) for factor in factors_of_leaf]
        expected = [(a, a), (b, b)][: 1 if len(shape) < 2 else 2]
        if [factor.shape for factor in arrays] != expected:
            shapes = ", ".join(str(factor.shape) for factor in arrays) or "none"
            msg = f"{name} {shape} needs factors of shapes {expected}, got {shapes}"
            raise ValueError(msg)
        left = symmetric_factor(arrays[0][None])
        right = symmetric_factor(arrays[1][None]) if len(arrays) > 1 else ONE
        power = (0.5 if len(arrays) == 1 else 0.25) if exponent is None else exponent
        places = indices.reshape(1, a, b)
        blocks.append(kronecker_block(name, places, left, right, power=power))
    return Metric("Shampoo", tuple(blocks), added)


def shampoo_factors(gradients: PyTree) -> PyTree:
    """L = sum M M^T and R = sum M^T M of gradients M, as :func:`shampoo` takes them.

    Args:
      gradients: a tree like the parameters with one more axis in front, over steps or samples.
        They are real; the sums are taken in float64, or in float32 without JAX's x64.

    >>> gradients = np.ones((3, 2, 4))  # three gradients of ones (2, 4)
    >>> left, right = gnjax.metrics.shampoo_factors(gradients)
    >>> left[0].tolist(), right.shape
    ([12.0, 12.0], (4, 4))
    """

    def factors(leaf: Any) -> tuple[jax.Array, ...]:
        """L, and R unless the parameter is a vector or a number."""
        given = jnp.result_type(leaf)
        if jnp.issubdtype(given, jnp.complexfloating):
            msg = (
                f"Shampoo's factors are of real gradients, got {given}; for complex parameters use "
                "the metric 'diagonal' or 'layers'"
            )
            raise ValueError(msg)
        # Half precision and integers do not hold sums of squares, and how far float32 errs in a
        # sum of thousands depends on the order in which this machine adds.
        array = jnp.asarray(leaf, real_dtype())
        a, b = _sides(array.shape[1:])
        m = array.reshape(-1, a, b)
        left = jnp.einsum("nab,ncb->ac", m, m, precision="highest")
        if array.ndim < 3:
            return (left,)
        return left, jnp.einsum("nab,nac->bc", m, m, precision="highest")

    return jax.tree.map(factors, gradients)


def soap(
    op: Operator, state: PyTree, *, b2: float = 0.95, eps: float = 1e-8, steps: int | None = None
) -> Metric:
    """SOAP's metric: P = Q diag((v^{1/2} + eps) / (1 - b2^t)^{1/2}) Q^T with Q = Q_1 (x) Q_2 ..

    SOAP (Vyas et al. 2024) is Adam in the eigenvectors Q_i of Shampoo's factors; v is its second
    moment there, after t updates. The next step uses the same basis, and a v that includes one
    more gradient. Bases are made orthogonal in float64.

    Args:
      op: an operator on the parameters, which says where they are.
      state: with the fields ``count``, ``exp_avg_sq`` and ``q`` or ``Q``, trees like the parameters
        with the bases of each array in a tuple or list, None for the identity: the states of the
        public implementations for optax, which has none itself up to 0.2.8.
      b2: the decay of v.
      eps: what is added to the root of v.
      steps: t; by default ``count`` - 1, because the first call only makes the basis.

    >>> from collections import namedtuple
    >>> state = namedtuple("SoapState", "count exp_avg_sq q")
    >>> held = state(3, np.array([[4.0], [9.0]]), (np.eye(2), None))
    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.eye(2))
    >>> gnjax.metrics.soap(op, held, b2=0.0, eps=0.0).as_matrix().diagonal()
    array([2., 3.])
    """
    soap_part = soap_state(state)
    t = int(np.asarray(soap_part.count)) - 1 if steps is None else steps
    if t < 1:
        msg = "the optimiser has made no step yet, so that it has no second moments"
        raise ValueError(msg)
    bases = soap_part.q if hasattr(soap_part, "q") else soap_part.Q
    correction = (1 - b2**t) ** 0.5
    blocks: list[Block] = []
    leaves = _leaves_with_indices(op, bases, soap_part.exp_avg_sq)
    for name, indices, shape, bases_of_leaf, v in leaves:
        if np.shape(v) != shape:
            msg = f"{name} {shape} needs second moments of the same shape, got {np.shape(v)}"
            raise ValueError(msg)
        a, b = _sides(shape)
        values = (np.sqrt(np.asarray(v, np.float64)) + eps) / correction
        # One basis Q_i for each axis. The array is read as a matrix (a, b) of its last axis and all
        # others, so that the bases of these others are joined to one of size a.
        # Some implementations keep the bases as they are, others in an attribute ``matrices``.
        matrices = getattr(bases_of_leaf, "matrices", bases_of_leaf)
        sizes = zip(matrices, shape or (1,), strict=True)
        *first, last = [np.eye(m) if q is None else _orthogonal(q) for q, m in sizes]
        left, right = (reduce(np.kron, first), last) if first else (last, np.eye(1))
        # a factor of one group with these eigenvectors, whose eigenvalues are of no importance
        factors = [Factor(q[None], np.ones((1, len(q))), q[None]) for q in (left, right)]
        places = indices.reshape(1, a, b)
        values = values.reshape(places.shape)
        blocks.append(kronecker_block(name, places, *factors, values=values))
    return Metric("SOAP", tuple(blocks))


def _leaves_with_indices(op: Any, *trees: Any) -> Iterator[tuple[Any, ...]]:
    """Yield each chosen leaf's name, indices in the vector, shape, and value in every tree.

    The value is what a tree has in the place of that parameter, such as its factors (L, R).
    """
    net = network_of(on_parameters(op), "a metric is")
    if any(mask is not None for mask in net.entry_indices):
        msg = "this metric is of whole arrays of parameters, and the operator has a mask"
        raise ValueError(msg)
    try:
        values = [net.structure.flatten_up_to(tree) for tree in trees]
    except (ValueError, TypeError) as error:
        msg = f"the tree does not look like the parameters of the model: {error}"
        raise ValueError(msg) from error
    names_and_leaves = zip(parameter_names(net), net.leaf_indices, strict=True)
    for parameter, (name, leaf) in enumerate(names_and_leaves):
        indices, of_trees = indices_of(net.counts, [parameter]), (value[leaf] for value in values)
        yield name, indices, net.leaves[leaf].shape, *of_trees


def _sides(shape: Sequence[int]) -> tuple[int, int]:
    """The shape of an array as a matrix, whose columns are its last axis; a vector is a column."""
    return (math.prod(shape), 1) if len(shape) < 2 else (math.prod(shape[:-1]), shape[-1])


def _orthogonal(basis: Any) -> np.ndarray:
    """The orthogonal matrix that is nearest to ``basis``, its polar factor."""
    left, _, right = np.linalg.svd(np.asarray(basis, np.float64))
    return np.asarray(left @ right)
