"""The Hessian of any scalar function of parameters, such as a physics-informed loss or a VAE's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks import jaxprs
from gnjax.networks.arguments import frameworks
from gnjax.networks.arguments.frameworks import Params, PyTree
from gnjax.networks.arguments.real_form import of_real_parameters
from gnjax.networks.arguments.refusals import RAISED, raised_by
from gnjax.networks.arguments.same_function import known
from gnjax.networks.equations.beside import compare_maxima
from gnjax.networks.equations.rewritten import rewritten
from gnjax.networks.model import checked_parameters
from gnjax.networks.network import Network, stated_by
from gnjax.networks.output_shapes import flat_outputs
from gnjax.networks.parameters import Only, choose
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_held, is_traced
from gnjax.operators.of_networks.hessian import NetworkHessian, twice_differentiable


def hessian_of(
    loss_fn: Callable[..., ArrayLike],
    params: Params,
    *args: PyTree,
    only: Only | None = None,
    mask: PyTree | None = None,
) -> NetworkHessian:
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
    function, parameters = of_real_parameters(*_of_parameters(loss_fn, params))
    parameters = checked_parameters(parameters)
    fixed = jax.tree.map(_argument, args)
    loss = _rewritten(known(function, parameters, *fixed), parameters, fixed)
    op = NetworkHessian(_as_network(loss, parameters, fixed, mask, only), functional=False)
    if op.net.forward != "own":  # the second derivative may fail, and is tried with one product
        op = twice_differentiable("loss_fn", op, op.net.x, None)
    if is_traced(op):  # inside of jax.jit there are no numbers to check
        return op
    _check_finite(op)
    # The rewritten function must compute what ``loss_fn`` does, and have its derivatives.
    compare_maxima("loss_fn", loss, parameters, *fixed)
    return op


def _as_network(
    loss: Callable[..., Any],
    parameters: Params,
    args: tuple[Any, ...],
    mask: Any,
    only: Only | None,
) -> Network:
    """A network whose one output is the value of the function, so that both have one Hessian.

    It gets one sample, a zero that it does not read, and there is no loss. ``args`` are the
    function's other arguments.
    """
    leaves, structure = jax.tree.flatten(parameters)
    leaf_indices, entry_indices = choose(parameters, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(leaf_indices, entry_indices, strict=True)
    )
    jaxpr = jaxprs.inlined(loss, parameters, *args).jaxpr
    return Network(
        tuple(leaves),
        entry_indices,
        x=jnp.zeros(1, leaves[0].dtype),
        target=None,
        total=1.0,
        apply=Partial(_value, loss, args),
        structure=structure,
        leaf_indices=leaf_indices,
        counts=counts,
        shapes=flat_outputs(1),
        batch=1,
        **stated_by(jaxpr),
    )


def _value(loss: Any, args: tuple[Any, ...], params: Params, x: jax.Array) -> jax.Array:
    """The value of the function (1, 1)."""
    del x
    return jnp.reshape(loss(params, *args), (1, 1))


def _of_parameters(loss_fn: Callable[..., Any], params: Any) -> tuple[Partial, Params]:
    """The loss as a function (a pytree) of a tree of arrays, and this tree of parameters.

    If ``params`` is a module, the function makes it again from the arrays of its parameters.
    """
    if not callable(loss_fn):
        msg = f"loss_fn must be a function loss_fn(params, *args), got {type(loss_fn).__name__}"
        raise ValueError(msg)
    function = loss_fn if isinstance(loss_fn, Partial) else Partial(loss_fn)
    if isinstance(params, nnx.Module):
        rebuild, parameters = frameworks.nnx_parts(params)
    elif frameworks.is_equinox(params):
        rebuild, parameters = frameworks.equinox_parts(params)
    else:
        return function, params
    return Partial(_on_module, function, rebuild), parameters


def _on_module(function: Any, rebuild: Any, params: Params, *args: Any) -> Any:
    """``function`` of the module with these parameters, and of its other arguments."""
    return function(rebuild(params), *args)


def _argument(leaf: Any) -> jax.Array:
    """An argument by which nothing is differentiated, as an array; floats in JAX's precision."""
    try:
        with np.errstate(over="ignore"):  # refused below
            array = jnp.asarray(leaf)
    except (TypeError, OverflowError) as error:
        msg = f"args must be arrays or pytrees of them, got {type(leaf).__name__}; close over it"
        raise ValueError(msg) from error
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(real_dtype())
    check_held("an array of args", leaf if hasattr(leaf, "dtype") else np.asarray(leaf), array)
    return array


def _rewritten(function: Any, params: Params, args: tuple[Any, ...]) -> Any:
    """The function in a form that can be differentiated, and its rounding measured.

    An error that the function raises becomes a message with the shapes that it was called with, and
    with how it is called, unless it failed because it asks for numbers where JAX traces it without
    any. Refused is a function whose value is not one real number.
    """
    try:
        loss, value = rewritten(function, params, *args)
    except RAISED as error:
        called = "it is called as loss_fn(params, *args), with the args that hessian_of is given"
        msg = raised_by("loss_fn", "the parameters and arguments", called, error, args)
        raise ValueError(msg) from error
    shape = getattr(value, "shape", None)
    if shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        returned = type(value).__name__ if shape is None else f"{value.dtype}{list(shape)}"
        hint = "return the loss alone" if shape is None else "take the mean or the sum of it"
        msg = f"loss_fn must return one real number, got {returned}; {hint}"
        raise ValueError(msg)
    return loss


def _check_finite(op: NetworkHessian) -> None:
    """Refuse a function whose value or gradient is not finite at the parameters."""
    value, gradient_is_finite = _value_and_whether_finite(op)
    if not bool(jnp.isfinite(value)):
        msg = (
            "loss_fn is NaN or Inf at these parameters and arguments; look for an overflow, a "
            "division by zero or a logarithm of what is not positive"
        )
        raise ValueError(msg)
    if not bool(gradient_is_finite):
        msg = (
            "the gradient of loss_fn has NaN or Inf at these parameters and arguments, as that of "
            "a square root or a norm has at zero; add a small number under the root"
        )
        raise ValueError(msg)


@bounded_jit
def _value_and_whether_finite(op: NetworkHessian) -> tuple[jax.Array, jax.Array]:
    """The value of the function, and whether every entry of its gradient is finite."""
    objective = partial(op.objective, op.net.x, None)
    value, gradient = jax.value_and_grad(objective)(list(op.net.leaves))
    return value, jnp.stack([jnp.isfinite(leaf).all() for leaf in gradient]).all()
