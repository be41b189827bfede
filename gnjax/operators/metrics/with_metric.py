"""P^{-1/2} A P^{-1/2}, whose eigenvalues are those of P^{-1} A: what an optimiser's metric does.

A step along P^{-1} g is a step of gradient descent for the parameters P^{1/2} theta, whose
curvature is P^{-1/2} A P^{-1/2}. P is S^{-2} for the S that is stored, see
:mod:`gnjax.operators.metrics.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.frameworks import PyTree
from gnjax.networks.arguments.real_form import for_both_parts
from gnjax.networks.network import Network, backward_products, forward_products
from gnjax.networks.rounding import JacobianErrors, measure_jacobian, with_sums
from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.outward import raised
from gnjax.numerics.scale import exponent_of
from gnjax.numerics.validation import check_damping, check_known, check_symmetric_matrix
from gnjax.operators.algebra import Algebra
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.facts import (
    Facts,
    error_of,
    factorisation_of,
    facts_of,
    positivity_of,
    trial_magnitude,
)
from gnjax.operators.metrics.exact import exact_blocks, exact_diagonal, on_parameters
from gnjax.operators.metrics.metric import SAID, Metric, diagonal_block, matrix_block
from gnjax.operators.metrics.optimisers import has_optimizer_state, optimizer_metric
from gnjax.operators.metrics.scaling import Scaling
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.prepare import devices_of
from gnjax.operators.protocol import Around, Operator
from gnjax.operators.stored.diagonal import Diagonal
from gnjax.operators.trees import ParameterTrees, network_of, takes_trees
from gnjax.operators.unit_vectors import symmetric_columns

if TYPE_CHECKING:
    import optax

_ASYMMETRY = 1e-6  # relative to the largest entry of a metric: products in float32 pass


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Preconditioned(Around, Algebra, ParameterTrees):
    """S A S for A = ``op`` and S = P^{-1/2}; J S^2 J^T where ``op`` is on the side of outputs.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> scaled = gnjax.preconditioned(op, gnjax.diagonal([0.5, 2.0]))  # P = G
    >>> isinstance(scaled, gnjax.operators.Preconditioned), scaled.as_matrix().round(12).tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """

    op: Any
    scaling: Scaling
    evidence: Error = field(default=SAID, metadata={"static": True})  # of the metric

    def facts(self) -> Facts:
        """What is known about S A S, for S = P^{-1/2} and the operator A.

        S is symmetric and invertible, so that S A S has as many positive, negative and zero
        eigenvalues as A (Sylvester): what A states about its rank and sign holds for S A S.
        """
        stated = facts_of(self.op)
        return Facts(
            error=self.error,
            rank=stated.rank,
            assumed=stated.assumed,
            symmetric=stated.symmetric,
            positive=positivity_of(self.op) or False,
            factor=self.factorisation,
            twin=lambda: self.twin,
            forms_cheaply=stated.forms_cheaply,
            formed_by_products=stated.formed_by_products,
            magnitude=self._magnitude,
            devices=partial(devices_of, self.op),
            network=stated.network,
        )

    @cached_property
    def twin(self) -> Preconditioned:
        """The smaller one of scale S J^T J S and scale J S^2 J^T."""
        smallest = self.op.twin if isinstance(self.op, NetworkGram) else self.op
        return self if smallest is self.op else replace(self, op=smallest)

    @property
    def _on_outputs(self) -> bool:
        """Whether A is scale J J^T, so that this is scale J S^2 J^T."""
        return isinstance(self.op, NetworkGram) and self.op.side == "outputs"

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """S A S v, or scale J S^2 J^T v, for a vector or columns."""
        if not self._on_outputs:
            return self.scaling(self.op.mv(self.scaling(jnp.asarray(v, self.dtype))))
        # S^2 J^T v
        pulled = self.scaling(self.scaling(backward_products(self.op.net, jnp.asarray(v))))
        return jnp.asarray(self.op.scale * forward_products(self.op.net, pulled))

    def as_matrix(self) -> jax.Array:
        """S A S = S (S A)^T from the matrix of A, or J S (J S)^T."""
        if self._on_outputs:
            factorisation = self.factorisation()
            if factorisation is None or factorisation.size_in_bytes > LIMITS.factor_bytes:
                return symmetric_columns(self)
            factor = factorisation.form()
            return on_device(factor @ factor.T, self.dtype)
        scaled_columns = self.scaling(jnp.asarray(self.op.as_matrix()))  # S A
        matrix = self.scaling(scaled_columns.T)
        return (matrix + matrix.T) / 2

    def factorisation(self) -> Factorisation | None:
        """The factor F with F F^T the operator: S F_A for the factor F_A of A, or J S on outputs.

        None where A states no factor.
        """
        op = self.op
        # S acts on parameters, so that J needs a column for each (factorisation() may have fewer).
        factorisation = (
            op.full_factorisation() if isinstance(op, NetworkGram) else factorisation_of(op)
        )
        if factorisation is None:
            return None

        def form() -> np.ndarray:
            """F in host memory: S F_A, or J S = (S J^T)^T on the side of outputs."""
            factor = factorisation.form().T if self._on_outputs else factorisation.form()
            columns = np.asarray(self.scaling(on_device(factor, self.dtype)), np.float64)
            factor = columns.T if self._on_outputs else columns
            # The cached property ``_length`` is set, so that F is not formed again for its norm.
            vars(self)["_length"] = float(np.linalg.norm(factor))
            return factor

        def error() -> Error:
            """For a network the measured error of J S, else ||S|| times the error of the factor."""
            if isinstance(self.op, NetworkGram):
                error_of_factor = self._measured.whole.scaled(self.op.scale**0.5)
            else:
                error_of_factor = factorisation.error().scaled(raised(self.scaling.norm))
            return error_of_factor + self._rounding(self._length) + self.evidence

        return Factorisation(factorisation.shape, form, error)

    @cached_property
    def _length(self) -> float:
        """The Frobenius norm of the factor, which :meth:`factorisation` keeps when it is formed."""
        factorisation = self.factorisation()
        assert factorisation is not None
        return float(np.linalg.norm(factorisation.form()))

    @cached_property
    def _measured(self) -> JacobianErrors:
        """The measured errors of J S for the Jacobian J of the network."""
        return measure_jacobian(self.op.net, scaling=self.scaling)

    def _magnitude(self) -> int | None:
        """The exponent e with 2^e near the norm; None for a matrix of zeros."""
        if not isinstance(self.op, NetworkGram) or self.op.factorisation() is None:
            return trial_magnitude(self)
        exponent = exponent_of(self._measured.size)
        return None if exponent is None else 2 * exponent + (exponent_of(self.op.scale) or 0)

    def error(self, norm: float) -> Error:
        """The error of S A S from that of A, and from the rounding of products with S.

        ``norm`` is about ||S A S||, so that ||A|| <= norm ||S^{-1}||^2, and the error of A is
        multiplied by up to ||S||^2.
        """
        factorisation = self.factorisation() if isinstance(self.op, NetworkGram) else None
        if factorisation is not None:
            return with_sums(gram_error(norm, factorisation.error()), self.op.net, norm)
        size, norm_of_s, norm_of_inverse = abs(float(norm)), self.scaling.norm, self.scaling.inverse
        error_of_op = error_of(self.op, raised(size * norm_of_inverse * norm_of_inverse))
        rounding = self._rounding(size * (self.shape[0] ** 0.5))  # for the Frobenius norm
        return error_of_op.scaled(raised(norm_of_s * norm_of_s)) + rounding + self.evidence

    def _rounding(self, length: float) -> Error:
        """The rounding of products with S whose results have the Frobenius norm ``length``."""
        rounding = self.scaling.rounding(length, self.dtype)
        return Error(raised(rounding), reason="rounding of products with the scaling P^{-1/2}")


def preconditioned(
    op: Operator,
    metric: str | Operator | PyTree,
    *,
    optimizer: optax.GradientTransformation | None = None,
    damping: float = 0.0,
) -> Preconditioned:
    """P^{-1/2} A P^{-1/2} for a metric P on the parameters; its kappa is certified as that of A.

    Args:
      op: an operator A on the parameters of a network; or a Gauss-Newton matrix or NTK on the side
        of the outputs, J J^T, which becomes J P^{-1} J^T.
      metric: P, in one of four forms. A name: "diagonal" for diag(A), "layers" for the diagonal
        blocks of the layers. An operator: a :class:`gnjax.metrics.Metric`, such as
        :func:`gnjax.metrics.kfac` makes, ``gnjax.diagonal(entries)``, or any other for a few
        thousand parameters. A tree: positive diagonal entries like the parameters. An optimiser's
        state with ``optimizer=`` beside it, or an ``nnx.Optimizer`` or ``TrainState``, which hold
        both; see :func:`gnjax.metrics.optimizer_metric`. The root S of P^{-1} is made of these
        numbers and stored, and P is S^{-2}, which differs from the matrix of these numbers by
        rounding.
      optimizer: the optimiser of optax whose state ``metric`` is. It is asked how its next update
        responds to the gradient. A state alone does not say which optimiser divides by it, and the
        answer is uncertified.
      damping: a number that is added to the diagonal of P.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (30, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> whole = gnjax.condition_number(op).value
    >>> layers = gnjax.condition_number(gnjax.preconditioned(op, "layers", damping=1e-6))
    >>> layers.value < whole, layers.certificate.kind
    (True, 'measured')
    """
    check_known("a metric", op)
    inner = on_parameters(op)
    net = network_of(inner, "a metric is")
    added = check_damping(damping)
    p = _metric(inner, net, metric, optimizer)
    if p.parameters != net.parameters:
        msg = (
            f"the metric is on {p.parameters} parameters, and the operator on "
            f"{net.parameters}; make both with the same only= and mask="
        )
        raise ValueError(msg)
    return Preconditioned(op, p.scaling(op.dtype, added), p.evidence)


def _metric(op: Any, net: Network, metric: Any, optimizer: Any) -> Metric:
    """The metric P from a form in which :func:`preconditioned` takes it."""
    if optimizer is not None or has_optimizer_state(metric):
        return optimizer_metric(op, metric, optimizer)
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric == "layers":
        parts = ParameterTrees.places(op, "layer")  # of any operator that states its network
        matrices = exact_blocks(op, list(parts.values()))
        blocks = zip(parts, parts.values(), matrices, strict=True)
        return Metric("exact layers", tuple(matrix_block(*block) for block in blocks))
    if not isinstance(metric, Operator) or isinstance(metric, Diagonal):
        entries = _entries(op, net, metric)
        return Metric("diagonal", (diagonal_block("", np.arange(len(entries)), entries),))
    size = net.parameters
    if size > LIMITS.factor_rows:
        msg = (
            f"the root of a metric of {size} parameters is that of its matrix, which is formed up "
            f"to {LIMITS.factor_rows}; pass a gnjax.metrics.Metric such as gnjax.metrics.kfac "
            "makes, gnjax.diagonal(entries), or fewer parameters by only="
        )
        raise ValueError(msg)
    matrix = np.asarray(metric.as_matrix(), np.float64)
    if matrix.shape != (size, size):
        msg = f"P is a metric of {size} parameters, got shape {matrix.shape}"
        raise ValueError(msg)
    check_symmetric_matrix("a metric", matrix, _ASYMMETRY)
    symmetric = (matrix + matrix.T) / 2
    return Metric("given", (matrix_block("all parameters", np.arange(size), symmetric),))


def _entries(op: Any, net: Network, metric: Any) -> np.ndarray:
    """The diagonal (p,) of a diagonal P: from a name, an operator, or a tree."""
    if isinstance(metric, str):
        if metric != "diagonal":
            msg = (
                f"metric={metric!r} is neither 'diagonal' nor 'layers'; for that of an optimiser "
                "pass its state, as opt_state of optax, and optimizer="
            )
            raise ValueError(msg)
        return exact_diagonal(op)
    if isinstance(metric, Diagonal):
        return np.asarray(metric.entries, np.float64)
    try:
        params = jax.tree.unflatten(net.structure, net.leaves)
        # a complex parameter counts as two real ones, with one entry for both
        return np.asarray(op.ravel(for_both_parts(metric, params)), np.float64)
    except ValueError as error:
        raise ValueError(_right_spelling(net.parameters, metric) or str(error)) from error


def _right_spelling(size: int, metric: Any) -> str | None:
    """How to write a metric that came as a function or array; None for a tree with other leaves."""
    forms = "a metric is a name, an operator P or a tree of positive entries like the parameters"
    if not jax.tree_util.all_leaves([metric]):
        return None
    if callable(metric):
        product = f"scipy.sparse.linalg.LinearOperator(({size}, {size}), function)"
        return f"{forms}, got a function; write gnjax.as_operator({product}) for v -> P v"
    shape = np.shape(metric)
    if len(shape) not in (1, 2):
        return None
    spelling = "gnjax.diagonal(entries)" if len(shape) == 1 else "gnjax.dense(P)"
    return f"{forms}, got an array of shape {shape}; write {spelling}"
