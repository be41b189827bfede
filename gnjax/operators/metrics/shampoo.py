"""The metrics of Shampoo and SOAP, from the second moments of gradients that they keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.frameworks import PyTree
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import indices_of
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_damping
from gnjax.operators.metrics.exact import on_parameters
from gnjax.operators.metrics.metric import (
    ONE,
    SAID,
    Block,
    Factor,
    Metric,
    kronecker_block,
    symmetric_factor,
)
from gnjax.operators.metrics.optimisers import soap_state
from gnjax.operators.metrics.update_response import Basis, response_in_basis
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import network_of

if TYPE_CHECKING:
    import optax

_B2, _EPS = 0.95, 1e-8  # of SOAP, where nobody says others
_GUESSED = (
    "P is a guess with b2 = 0.95 and eps = 1e-8; pass the optimiser beside its state, "
    "gnjax.metrics.soap(op, state, optimizer), or its b2= and eps="
)


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
    op: Operator,
    state: PyTree,
    optimizer: optax.GradientTransformation | None = None,
    *,
    b2: float | None = None,
    eps: float | None = None,
    steps: int | None = None,
) -> Metric:
    """SOAP's metric: P = Q diag(d) Q^T with Q = Q_1 (x) Q_2 .., the eigenvectors in its state.

    SOAP (Vyas et al. 2024) is Adam in the eigenvectors Q_i of Shampoo's factors. The optimiser is
    asked for d, as in :func:`optimizer_metric`: a change dg of the gradient changes its next update
    by -P^{-1} dg. Its rate and its share of the gradient in a mean are in d, and an optimiser that
    does not divide in this basis is refused. Bases are made orthogonal in float64.

    Without the optimiser d = (v^{1/2} + eps) / (1 - b2^t)^{1/2}, for its second moment v in this
    basis after t updates. Answers are uncertified where b2 and eps are not given.

    Args:
      op: an operator on the parameters, which says where they are.
      state: with the fields ``count``, ``exp_avg_sq`` and ``q`` or ``Q``, trees like the parameters
        with the bases of each array in a tuple or list, None for the identity: the states of the
        public implementations for optax, which has none itself up to 0.2.8.
      optimizer: the optimiser itself, which has made this state.
      b2: the decay of v, 0.95 by default; with eps and steps only where no optimizer is given.
      eps: what is added to the root of v, 1e-8 by default.
      steps: t; by default ``count`` - 1, because the first call only makes the basis.

    >>> from collections import namedtuple
    >>> state = namedtuple("SoapState", "count exp_avg_sq q")
    >>> held = state(3, np.array([[4.0], [9.0]]), (np.eye(2), None))
    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.eye(2))
    >>> gnjax.metrics.soap(op, held, b2=0.0, eps=0.0).as_matrix().diagonal()
    array([2., 3.])
    """
    if optimizer is not None and not (b2 is eps is steps is None):
        msg = "b2=, eps= and steps= are for a state alone; the optimizer is asked for its own"
        raise ValueError(msg)
    soap_part = soap_state(state)
    t = int(np.asarray(soap_part.count)) - 1 if steps is None else steps
    if t < 1:
        msg = "the optimiser has made no step yet, so that it has no second moments"
        raise ValueError(msg)
    bases = soap_part.q if hasattr(soap_part, "q") else soap_part.Q
    added, correction = _EPS if eps is None else eps, (1 - (_B2 if b2 is None else b2) ** t) ** 0.5
    blocks: list[Block] = []
    leaves = _leaves_with_indices(op, bases, soap_part.exp_avg_sq)
    for name, indices, shape, bases_of_leaf, v in leaves:
        if np.shape(v) != shape:
            msg = f"{name} {shape} needs second moments of the same shape, got {np.shape(v)}"
            raise ValueError(msg)
        a, b = _sides(shape)
        values = (np.sqrt(np.asarray(v, np.float64)) + added) / correction
        # One basis Q_i for each axis. The array is read as a matrix (a, b) of its last axis and all
        # others, so that the bases of these others are joined to one of size a.
        # Some implementations keep the bases as they are, others in an attribute ``matrices``.
        matrices = getattr(bases_of_leaf, "matrices", bases_of_leaf)
        sizes = zip(matrices, shape or (1,), strict=True)
        *first, last = [np.eye(m) if q is None else _orthogonal(q) for q, m in sizes]
        left, right = (reduce(np.kron, first), last) if first else (last, np.eye(1))
        # factors of one group with these eigenvectors; their own eigenvalues are of no importance
        factors = [Factor(q[None], np.ones((1, len(q))), q[None]) for q in (left, right)]
        places = indices.reshape(1, a, b)
        values = values.reshape(places.shape)
        blocks.append(kronecker_block(name, places, *factors, values=values))
    if optimizer is not None:
        return _asked_in_basis(op, blocks, optimizer, state)
    said = SAID if b2 is not None and eps is not None else unknown(_GUESSED)
    return Metric("SOAP", tuple(blocks), evidence=said)


def _asked_in_basis(op: Any, blocks: Sequence[Block], optimizer: Any, state: Any) -> Metric:
    """The metric with the eigenvectors of the blocks, and eigenvalues by asking the optimiser."""

    def turned(v: np.ndarray, *, back: bool = False) -> np.ndarray:
        """W v for the eigenvectors W of all blocks, or W^T v."""
        image = np.zeros(len(v))
        for block in blocks:
            left, right = block.left.matrix[0], block.right.matrix[0]  # orthogonal, of one group
            if back:
                left, right = left.T, right.T
            image[block.indices] = left @ v[block.indices] @ right.T
        return image

    basis = Basis(turned, partial(turned, back=True))
    values = response_in_basis(
        network_of(on_parameters(op), "a metric is"), optimizer, state, basis
    )
    asked = tuple(replace(block, values=values[block.indices]) for block in blocks)
    reason = "P is how the next update of the optimiser responds to a gradient near zero"
    return Metric("SOAP", asked, evidence=Error(0.0, MEASURED, reason=reason))


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
