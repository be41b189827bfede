"""The Hessian of any scalar function of parameters, such as a physics-informed loss or a VAE's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.tree_util import Partial

from gnjax.networks import jaxprs
from gnjax.networks.equations.rewritten import rewritten
from gnjax.networks.forms import frameworks
from gnjax.networks.forms.derivatives import check_second_derivative
from gnjax.networks.forms.frameworks import Params
from gnjax.networks.forms.refusals import (
    PYTHON_VALUES,
    RAISED,
    does_not_take,
    shapes_of,
    types_of,
)
from gnjax.networks.jaxprs import hessian_product
from gnjax.networks.model import checked_parameters
from gnjax.networks.network import HESSIAN, batched, columns, gather, scatter
from gnjax.networks.parameters import Only, choose
from gnjax.networks.rounding import MeasuredProduct, measured_product
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.certificate import Error
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.scale import exponent_of
from gnjax.operators.algebra import Algebra
from gnjax.operators.columns import symmetric_columns
from gnjax.operators.recast import Recast
from gnjax.operators.trees import ParameterTrees, takes_trees


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class FunctionHessian(Algebra, ParameterTrees, Recast):
    """The Hessian (p, p) of f(params, *args) by the chosen entries of the parameters.

    >>> op = gnjax.hessian_of(lambda w: (w**4).sum(), np.array([1.0, 2.0]))
    >>> op.shape, np.asarray(op @ np.ones(2))
    ((2, 2), array([12., 48.]))
    """

    leaves: tuple[jax.Array, ...]
    entry_indices: tuple[jax.Array | None, ...]  # of a leaf's chosen entries; None for all
    args: tuple[Any, ...]
    function: Callable[..., jax.Array]  # a pytree
    structure: Any = field(metadata={"static": True})
    leaf_indices: tuple[int, ...] = field(metadata={"static": True})  # of the chosen leaves
    counts: tuple[int, ...] = field(metadata={"static": True})  # entries of each chosen leaf
    convolves: bool = field(metadata={"static": True})
    forward: bool = field(metadata={"static": True})  # the function has a forward mode
    written: float = field(metadata={"static": True})  # numbers that an evaluation writes

    symmetric = True
    forms_cheaply = True
    batch = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.parameters, self.parameters

    @property
    def dtype(self) -> jnp.dtype:
        return self.leaves[0].dtype

    @property
    def parameters(self) -> int:
        return sum(self.counts)

    @property
    def net(self) -> FunctionHessian:
        """The parameters, for trees of them."""
        return self

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        return columns(self, partial(_products, self), v, evaluations=HESSIAN)

    def as_matrix(self) -> jax.Array:
        """Columns by products, some at a time, and the symmetric part of them."""
        return symmetric_columns(self)

    def error(self, norm: float) -> Error:
        """The error of the products from the rounding of the function, measured."""
        del norm
        return self._measured.error

    @property
    def magnitude(self) -> int | None:
        """From the products that measure the error, which every answer needs."""
        return exponent_of(self._measured.size)

    @cached_property
    def _measured(self) -> MeasuredProduct:
        return measured_product(
            Partial(_product, self), self.shape[0], self.dtype, work=HESSIAN * self.written
        )

    def value(self, leaves: list[jax.Array]) -> jax.Array:
        params = jax.tree.unflatten(self.structure, leaves)
        return self.function(params, *self.args).astype(self.dtype)


def hessian_of(
    loss_fn: Callable[..., Any],
    params: Params,
    *args: Any,
    only: Only | None = None,
    mask: Any = None,
) -> FunctionHessian:
    """The Hessian of ``loss_fn(params, *args)``, any scalar that can be differentiated twice.

    Args:
      loss_fn: returns one real number.
      params: a pytree of floating arrays, or a Flax NNX or Equinox module, by whose parameters the
        function is differentiated.
      args: arrays, or pytrees of them, that are held fixed.
      only: which parameters, see :func:`gnjax.gauss_newton`.
      mask: which of their entries, see :func:`gnjax.gauss_newton`.

    >>> def loss(w, x):
    ...     return (w["a"] ** 2).sum() * x + w["b"] ** 2
    >>> op = gnjax.hessian_of(loss, {"a": np.ones(2), "b": np.array(1.0)}, 3.0)
    >>> gnjax.eigenvalues(op).values
    array([6., 6., 2.])
    """
    function, parameters = _opened(loss_fn, params)
    parameters = checked_parameters(parameters)
    fixed = jax.tree.map(_argument, args)
    loss, value = _rewritten(function, parameters, fixed)
    _check_scalar(value)
    leaves, structure = jax.tree.flatten(parameters)
    leaf_indices, entry_indices = choose(parameters, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(leaf_indices, entry_indices, strict=True)
    )
    jaxpr = jaxprs.inlined(loss, parameters, *fixed).jaxpr
    op = FunctionHessian(
        tuple(leaves),
        entry_indices,
        fixed,
        loss,
        structure,
        leaf_indices,
        counts,
        convolves=any(eqn.primitive.name == "conv_general_dilated" for eqn in jaxpr.eqns),
        forward=not jaxprs.has_custom_vjp(jaxpr),
        written=float(max(1, sum(v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars))),
    )
    if not op.forward:
        check_second_derivative("loss_fn", _products, op, jnp.zeros(op.parameters, op.dtype))
    _check_finite(op)
    return op


def _opened(loss_fn: Callable[..., Any], params: Any) -> tuple[Callable[..., Any], Params]:
    """The function as a pytree, of the parameters of a module where one is given."""
    if not callable(loss_fn):
        msg = f"loss_fn must be a function loss_fn(params, *args), got {type(loss_fn).__name__}"
        raise ValueError(msg)
    function = loss_fn if isinstance(loss_fn, Partial) else Partial(loss_fn)
    if isinstance(params, nnx.Module):
        return _of_module(function, *frameworks.nnx_parts(params))
    if frameworks.is_equinox(params):
        return _of_module(function, *frameworks.equinox_parts(params))
    return function, params


def _of_module(function: Any, rebuild: Any, params: Params) -> tuple[Callable[..., Any], Params]:
    return Partial(_on_module, function, rebuild), params


def _on_module(function: Any, rebuild: Any, params: Params, *args: Any) -> Any:
    return function(rebuild(params), *args)


def _argument(leaf: Any) -> jax.Array:
    try:
        array = jnp.asarray(leaf)
    except TypeError as error:
        msg = f"args must be arrays or pytrees of them, got {type(leaf).__name__}; close over it"
        raise ValueError(msg) from error
    return array.astype(real_dtype()) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _rewritten(function: Any, params: Params, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """:func:`rewritten`, with a message for a function that does not take its arguments."""
    try:
        return rewritten(function, params, *args)
    except RAISED as error:
        arguments = "the parameters and arguments"
        sentence = does_not_take("loss_fn", arguments, shapes_of(args), types_of(args), error)
        msg = f"{sentence}; {_advice(error)}"
        raise ValueError(msg) from error


def _advice(error: BaseException) -> str:
    """What a user can do about an error that the loss_fn raised."""
    if isinstance(error, PYTHON_VALUES):
        return (
            "it is traced, so write it with jax.numpy in place of numpy and float, and with "
            "jnp.where in place of an if on numbers"
        )
    return "it is called as loss_fn(params, *args), with the args that hessian_of is given"


def _check_scalar(value: Any) -> None:
    shape = getattr(value, "shape", None)
    if shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        returned = type(value).__name__ if shape is None else f"{value.dtype}{list(shape)}"
        hint = "return the loss alone" if shape is None else "take the mean or the sum of it"
        msg = f"loss_fn must return one real number, got {returned}; {hint}"
        raise ValueError(msg)


def _check_finite(op: FunctionHessian) -> None:
    value, finite = _value_and_whether_finite(op)
    if not bool(jnp.isfinite(value)):
        msg = (
            "loss_fn is NaN or Inf at these parameters and arguments; look for an overflow, a "
            "division by zero or a logarithm of what is not positive"
        )
        raise ValueError(msg)
    if not bool(finite):
        msg = (
            "the gradient of loss_fn has NaN or Inf at these parameters and arguments, as that of "
            "a square root or a norm has at zero; add a small number under the root"
        )
        raise ValueError(msg)


@bounded_jit
def _value_and_whether_finite(op: FunctionHessian) -> tuple[jax.Array, jax.Array]:
    """The value of the function, and whether every entry of its gradient is finite."""
    value, gradient = jax.value_and_grad(op.value)(list(op.leaves))
    return value, jnp.stack([jnp.isfinite(leaf).all() for leaf in gradient]).all()


@bounded_jit
def _products(op: FunctionHessian, v: jax.Array) -> jax.Array:
    return batched(partial(_product, op), v)


def _product(op: FunctionHessian, w: jax.Array) -> jax.Array:
    """H w."""
    gradient, point = jax.grad(op.value), list(op.leaves)
    return gather(op, hessian_product(gradient, point, scatter(op, w), forward=op.forward))
