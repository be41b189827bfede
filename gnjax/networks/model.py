"""Any model as a pair (apply, params) with apply(params, x) -> (n, k)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.errors
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.numerics.precision import real_dtype

Params = Any
Apply = Callable[[Params, jax.Array], jax.Array]

_FORMS = (
    "a Flax NNX module, a Linen (module, variables) pair, or (apply, params) with "
    "apply(params, x) -> (n, k)"
)
REFUSALS = (TypeError, ValueError, IndexError, AssertionError, flax.errors.FlaxError)
"""What a model raises that does not take an input of a given shape."""

_COLLECTIONS = ("batch_stats", "cache", "intermediates", "losses", "metrics", "state")


def functional(model: Any) -> tuple[Apply, Params]:
    """(apply, params) of a Flax NNX module, a Linen (module, variables) pair, or such a pair.

    What is not a parameter (batch statistics, random keys) is held fixed; ``apply`` leaves the
    model as it was. It is a pytree of those numbers and compares by the model's structure, so that
    what is compiled for one set of weights serves the next. An NNX module whose dropout is switched
    on is refused.
    """
    if isinstance(model, nnx.Module):
        return _nnx(model)
    if not (isinstance(model, tuple) and len(model) == 2):
        msg = f"a model is {_FORMS}; got {type(model).__name__}"
        raise ValueError(msg)
    first, second = model
    if isinstance(first, flax.linen.Module):
        return _linen(first, second)
    if isinstance(first, Partial):
        return first, second
    if not callable(first) or isinstance(first, nnx.Module):
        msg = f"a model is {_FORMS}; got a pair that starts with {type(first).__name__}"
        raise ValueError(msg)
    _check_variables(first, second)
    return Partial(first), second


def _check_variables(apply: Any, params: Any) -> None:
    """Refuse Linen variables as parameters, where more than parameters is among them."""
    names = [str(name) for name in params] if hasattr(params, "keys") else []
    others = [name for name in names if name != "params"]
    bound = isinstance(getattr(apply, "__self__", None), flax.linen.Module)
    if "params" in names and others and (bound or any(name in _COLLECTIONS for name in others)):
        msg = (
            f"the parameters are Linen variables with {', '.join(others)}, which would be "
            "differentiated like parameters; pass (module, variables), which holds them fixed, or "
            "(lambda params, x: module.apply({**variables, 'params': params}, x), "
            "variables['params']), with the keywords that the call needs"
        )
        raise ValueError(msg)


def _nnx(model: nnx.Module) -> tuple[Apply, Params]:
    _check_dropout(model)
    graph, params, *others = nnx.split(model, nnx.Param, ...)
    return Partial(_NnxCall(graph), others), params


def _check_dropout(model: nnx.Module) -> None:
    """Refuse dropout that is switched on: its one frozen mask would be part of the network."""
    active = [
        "/".join(str(part) for part in path) for path, node in nnx.iter_graph(model) if _drops(node)
    ]
    if active:
        msg = (
            f"dropout is switched on ({', '.join(active)}): a new NNX module is in training mode; "
            "call model.eval() first, or, to see the network under one dropout mask, pass "
            "(apply, params) with an apply that makes its nnx.Rngs from a fixed key"
        )
        raise ValueError(msg)


def _drops(node: Any) -> bool:
    if isinstance(node, nnx.Dropout):
        return node.rate > 0 and not node.deterministic
    if isinstance(node, nnx.MultiHeadAttention):
        return node.dropout_rate > 0 and not node.deterministic
    return False


@dataclass(frozen=True)
class _NnxCall:
    graph: Any

    def __call__(self, others: Any, params: Params, x: jax.Array) -> jax.Array:
        return nnx.merge(self.graph, params, *_like(params, others), copy=True)(x)


def _linen(module: flax.linen.Module, variables: Any) -> tuple[Apply, Params]:
    if not hasattr(variables, "keys") or "params" not in variables:
        msg = (
            "a Linen model is (module, variables) with variables['params'], as module.init "
            f"returns it; got {type(variables).__name__}"
        )
        raise ValueError(msg)
    rest = {name: value for name, value in variables.items() if name != "params"}
    return Partial(_LinenCall(module), rest), variables["params"]


@dataclass(frozen=True)
class _LinenCall:
    module: flax.linen.Module

    def __call__(self, rest: Any, params: Params, x: jax.Array) -> jax.Array:
        return self.module.apply({"params": params, **_like(params, rest)}, x)  # type: ignore[return-value]


def _like(params: Params, rest: Any) -> Any:
    """What is held fixed, in the precision of the parameters."""
    dtype = jnp.result_type(*jax.tree.leaves(params))

    def cast(leaf: Any) -> Any:
        floating = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(cast, rest)


def checked(model: Any, x: ArrayLike) -> tuple[Apply, Params, jax.Array, jax.Array]:
    """apply, parameters and inputs in the working precision, and the outputs (n, k)."""
    apply, params, inputs = prepared(model, x)
    described(apply, params, inputs)
    outputs = evaluate(apply, params, inputs)
    check_outputs(outputs)
    return apply, params, inputs, outputs


def prepared(model: Any, x: ArrayLike) -> tuple[Apply, Params, jax.Array]:
    """apply, parameters and inputs in the working precision; the model is not evaluated."""
    apply, params = functional(model)
    inputs = _inputs(x)
    params = jax.tree.map(_parameter, params)
    leaves = jax.tree.leaves(params)
    if not leaves:
        msg = "the model has no parameters, so there is nothing to differentiate by"
        raise ValueError(msg)
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in leaves):
        msg = "a parameter of the model is NaN or Inf; a spectrum needs finite parameters"
        raise ValueError(msg)
    return apply, params, inputs


def _inputs(x: ArrayLike) -> jax.Array:
    given = x if isinstance(x, jax.Array) else np.asarray(x)
    if jnp.issubdtype(given.dtype, jnp.integer):
        inputs = jnp.asarray(given)  # tokens stay integers: an embedding looks them up
    elif jnp.issubdtype(given.dtype, jnp.floating):
        inputs = jnp.asarray(given, real_dtype())
    else:
        msg = f"x must hold real numbers, got dtype {given.dtype}"
        raise ValueError(msg)
    if inputs.ndim == 0 or 0 in inputs.shape:
        msg = f"x must be a batch (n, ...) of at least one sample, got shape {inputs.shape}"
        raise ValueError(msg)
    if not bool(jnp.isfinite(inputs).all()):
        msg = "x contains NaN or Inf; remove or impute those samples"
        raise ValueError(msg)
    return inputs


def _parameter(leaf: ArrayLike) -> jax.Array:
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        msg = (
            f"a parameter has dtype {array.dtype}; real floating point parameters are needed "
            "(keep integer tables out of the parameters)"
        )
        raise ValueError(msg)
    return array.astype(real_dtype())


@jax.jit
def evaluate(apply: Apply, params: Params, x: jax.Array) -> jax.Array:
    return apply(params, x)


def described(apply: Apply, params: Params, x: jax.Array) -> jax.ShapeDtypeStruct:
    """The shape (n, k) and the dtype of the outputs, checked without evaluating the model."""
    try:
        outputs = jax.eval_shape(apply, params, x)
    except flax.errors.ModifyScopeVariableError as error:
        msg = (
            "the Linen module wants to update its batch statistics: call it in evaluation mode, "
            "or pass (apply, params) with an apply that discards the updates"
        )
        raise ValueError(msg) from error
    except flax.errors.InvalidRngError as error:
        msg = (
            "the Linen module wants random numbers, as dropout does in training mode: pass "
            "(lambda params, x: module.apply({'params': params}, x, deterministic=True), params), "
            "with the keyword that your module has for evaluation"
        )
        raise ValueError(msg) from error
    except flax.errors.TraceContextError as error:
        msg = (
            "the function of the model changes an NNX object from outside, such as a captured "
            "nnx.Rngs that draws the next key; make the object inside the function from a fixed "
            "key, or pass the NNX module itself in evaluation mode (model.eval())"
        )
        raise ValueError(msg) from error
    except REFUSALS as error:
        msg = f"the model does not take an x of shape {x.shape}: {error}"
        raise ValueError(msg) from error
    shape = getattr(outputs, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != len(x) or shape[1] == 0:
        what = f"shape {shape}" if shape is not None else type(outputs).__name__
        msg = (
            f"the model must map x of shape {x.shape} to outputs ({len(x)}, k), got {what}; "
            "flatten or pool what it returns"
        )
        raise ValueError(msg)
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        msg = f"the model must return real numbers, got dtype {outputs.dtype}"
        raise ValueError(msg)
    return outputs


def check_outputs(outputs: jax.Array) -> None:
    if not bool(jnp.isfinite(outputs).all()):
        msg = "the model's outputs contain NaN or Inf at these parameters and inputs"
        raise ValueError(msg)
