"""Any model as a pair (apply, params) with apply(params, x) -> outputs, checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial
from jax.typing import ArrayLike

from gnjax.networks.equations.rewritten import rewritten, rewritten_alike
from gnjax.networks.forms import frameworks
from gnjax.networks.forms.frameworks import Apply, Model, Params
from gnjax.networks.forms.real_form import of_real_parameters
from gnjax.networks.forms.refusals import RAISED, Refused, refusal
from gnjax.networks.forms.samples import (
    check_samples,
    converted,
    sample_count,
)
from gnjax.networks.outputs.shapes import Outputs, described_outputs
from gnjax.networks.parameters import paths
from gnjax.networks.torch_modules.comparison import Notice, compare_modules, noticing
from gnjax.numerics.bounded_jit import bounded_jit, by_shapes
from gnjax.numerics.host import all_finite
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_finite, is_traced

__all__ = [
    "Apply",
    "Params",
    "apply_and_outputs",
    "apply_params_and_inputs",
    "evaluated_model",
    "functional",
]

_FORMS = (
    "a Flax NNX module, a Linen (module, variables) pair, a TrainState, an Equinox module or its "
    "pair (module, state), a Keras model, (hk.transform(f), params), or (apply, params) with "
    "apply(params, x) -> outputs (n, ...)"
)
_COLLECTIONS = ("batch_stats", "cache", "intermediates", "losses", "metrics", "state")


def functional(model: Model, **call: Any) -> tuple[Apply, Params]:
    """(apply, params) of a model, with apply(params, x) -> outputs.

    What is not a parameter (batch statistics, random keys) is held fixed, and ``apply`` does not
    change the model. ``apply`` is a pytree of the fixed numbers and compares by the model's
    structure, so that what is compiled for one set of weights is reused for the next.
    An NNX module whose dropout is switched on is refused.

    Args:
      model: a Flax NNX module, a Linen pair (module, variables), a ``TrainState`` of Flax, an
        Equinox module (it takes one sample and is mapped over them) or the pair (module, state) of
        one with state, a model of Keras 3 on its backend jax, (hk.transform(f), params) of Haiku,
        with the state as a third entry after ``hk.transform_with_state``, or a pair (apply, params)
        of your own.
      call: keywords that are passed on in every call, such as train=False, deterministic=True or,
        with a fixed key, rngs={"dropout": key}.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> apply, params = gnjax.functional(model)
    >>> apply(params, x).shape
    (5, 2)
    """
    if isinstance(model, nnx.Module):
        return frameworks.of_nnx(model, call)
    if frameworks.is_equinox(model):
        return frameworks.of_equinox(model, call)
    if frameworks.is_keras(model):
        return frameworks.of_keras(model, call)
    if frameworks.is_train_state(model):
        return frameworks.of_train_state(model, call)
    if type(model) is tuple and model and frameworks.is_haiku(model[0]):
        return frameworks.of_haiku(model[0], model[1:], call)
    if any(map(frameworks.is_torch, model if type(model) is tuple else (model,))):
        raise ValueError(frameworks.TORCH)
    if not (isinstance(model, tuple) and len(model) == 2):
        msg = f"a model is {_FORMS}; got {type(model).__name__}"
        raise ValueError(msg)
    first, second = model
    if isinstance(first, flax.linen.Module):
        return frameworks.of_linen(first, second, call)
    if isinstance(first, Partial):
        return frameworks.of_function(first, second, call)
    if frameworks.is_equinox(first):
        if frameworks.is_equinox_state(second):
            return frameworks.of_equinox(first, call, second)
        msg = (
            "an Equinox module goes in alone, as it holds its parameters, or with its state as "
            f"eqx.nn.make_with_state returns both; got {type(second).__name__} beside it"
        )
        raise ValueError(msg)
    if not callable(first) or isinstance(first, nnx.Module):
        msg = f"a model is {_FORMS}; got a pair that starts with {type(first).__name__}"
        raise ValueError(msg)
    _check_variables(first, second)
    return frameworks.of_function(first, second, call)


def is_module(value: Any) -> bool:
    """Whether a value is a module of Flax, Equinox, Keras or PyTorch."""
    forms = (frameworks.is_equinox, frameworks.is_keras, frameworks.is_torch)
    return isinstance(value, nnx.Module | flax.linen.Module) or any(form(value) for form in forms)


def is_model(value: Any) -> bool:
    """Whether a value has a form of a model, and not that of samples; no form is looked into."""
    if type(value) is not tuple:
        is_state = frameworks.is_train_state(value)
        return is_state or is_module(value) or frameworks.is_haiku(value)
    first = value[0] if value else None
    return is_module(first) or frameworks.is_haiku(first) or callable(first)


def check_order(model: Any, x: Any) -> None:
    """Refuse samples and a model that changed places."""
    is_array = hasattr(x, "__array__")
    if not is_array and is_model(x) and not is_model(model):
        msg = (
            "the model comes first and the samples second, (model, x), and here they have changed "
            "places"
        )
        raise ValueError(msg)


def _check_variables(apply: Any, params: Any) -> None:
    """Refuse Linen variables, such as {"params": .., "batch_stats": ..}, as the parameters.

    A dictionary with the key "params" and another key is taken for such variables if ``apply`` is
    a method of a Linen module, or if the other key is a usual name of a collection of variables.
    """
    names = [str(name) for name in params] if hasattr(params, "keys") else []
    other_names = [name for name in names if name != "params"]
    of_linen = isinstance(getattr(apply, "__self__", None), flax.linen.Module)
    usual = any(name in _COLLECTIONS for name in other_names)
    if "params" in names and other_names and (of_linen or usual):
        msg = (
            f"the parameters are Linen variables with {', '.join(other_names)}, which would be "
            "differentiated like parameters; pass (module, variables), which holds them fixed, or "
            "(lambda params, x: module.apply({**variables, 'params': params}, x), "
            "variables['params']), with the keywords that the call needs"
        )
        raise ValueError(msg)


def evaluated_model(model: Any, x: ArrayLike) -> tuple[Apply, Params, jax.Array, jax.Array]:
    """A model of any form as a function apply(params, x) -> (n, k), and its outputs at inputs x.

    Its k outputs for a sample, also those in several arrays, are in one row.

    Returns:
      apply, with apply(params, x) -> (n, k), as a pytree of the numbers that the model holds fixed;
      the parameters and the inputs (n, ...) in the working precision; and the outputs (n, k), which
      are finite.
    """
    apply, params, inputs = apply_params_and_inputs(model, x)
    if not isinstance(inputs, jax.Array):
        msg = "x must be one array (n, ...) here, not a dict or a tuple of arrays"
        raise ValueError(msg)
    # from here on the model computes in one precision, and has derivatives at ties of its maxima
    apply, output_shapes = apply_and_outputs(apply, params, inputs)
    # a Partial, and no lambda: what is compiled for it serves all weights of the same shapes
    flat_apply = Partial(_Flattened(output_shapes), apply)
    outputs = _evaluated(flat_apply, params, inputs)
    check_outputs(outputs)
    return flat_apply, params, inputs, outputs


@dataclass(frozen=True)
class _Flattened:
    """A function of (apply, params, x) to the outputs of the model ``apply`` as an array (n, k)."""

    output_shapes: Outputs

    def __call__(self, apply: Apply, params: Params, x: Any) -> jax.Array:
        return self.output_shapes.ravel(apply(params, x), real_dtype())


def apply_params_and_inputs(
    model: Any, x: Any, *, has_aux: bool = False
) -> tuple[Apply, Params, Any]:
    """(apply, params, inputs) of a model, in the working precision; nothing is evaluated.

    With ``has_aux`` the model returns (outputs, extras), and ``apply`` the outputs alone.
    """
    check_order(model, x)
    inputs = check_samples("x", x)
    return *apply_and_params(model, has_aux=has_aux), inputs


def apply_and_params(model: Any, *, has_aux: bool = False) -> tuple[Apply, Params]:
    """(apply, params) of a model, in the working precision, complex parameters as two real ones.

    With ``has_aux`` the model returns (outputs, extras), and ``apply`` the outputs alone.
    """
    apply, params = of_real_parameters(*functional(model))
    return (Partial(_without_extras, apply) if has_aux else apply), checked_parameters(params)


def checked_parameters(params: Params) -> Params:
    """The pytree of parameters as floating arrays in the working precision.

    A parameter that is no array of floating numbers, or not finite, is refused; the message names
    its path.
    """
    unchecked, structure = jax.tree.flatten(params)
    names = [f"the parameter {name}" if name else "a parameter" for name in paths(params)]
    leaves = [_parameter(name, leaf) for name, leaf in zip(names, unchecked, strict=True)]
    if not leaves:
        msg = (
            "the model has no parameters of a floating point type, so there is nothing to "
            "differentiate by; in Equinox integer arrays are held fixed, so make weights floats"
        )
        raise ValueError(msg)
    advice = "a spectrum needs finite parameters, so load those from before the training diverged"
    for name, given, leaf in zip(names, unchecked, leaves, strict=True):
        check_finite(f"{name} of the model", given, leaf, advice)
    return jax.tree.unflatten(structure, leaves)


def _without_extras(apply: Apply, params: Params, x: Any) -> Any:
    """The outputs of a model ``apply`` that returns (outputs, extras); another one is refused."""
    returned = apply(params, x)
    if not (isinstance(returned, tuple) and len(returned) == 2):
        kind = "one array" if hasattr(returned, "shape") else type(returned).__name__
        msg = (
            f"with has_aux=True a model returns (outputs, extras), and this one returns {kind}; "
            "leave has_aux out"
        )
        raise Refused(msg)
    return returned[0]


def _parameter(name: str, leaf: ArrayLike) -> jax.Array:
    """One parameter as a floating array in the working precision; ``name`` is for messages."""
    try:
        floats = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
        array: Any = leaf if floats else jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        msg = (
            f"{name} is of type {type(leaf).__name__} and no array; keep names, functions and "
            "settings out of the parameters, and inside of apply"
        )
        raise ValueError(msg) from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        msg = (
            f"{name} has dtype {array.dtype}; floating point parameters are needed (keep integer "
            "tables and counters out of the parameters and inside of apply)"
        )
        raise ValueError(msg)
    return converted(array, real_dtype())


@bounded_jit
def _evaluated(apply: Apply, params: Params, x: Any) -> Any:
    """apply(params, x), compiled."""
    return apply(params, x)


def apply_and_outputs(apply: Apply, params: Params, x: Any) -> tuple[Apply, Outputs]:
    """The model as the library differentiates it, and the checked shapes of a sample's outputs.

    The model is traced at the inputs x and not evaluated. In the function that comes back, float32
    inside of the model is computed in float64 in 64-bit mode, and maxima are chosen by comparison,
    see :mod:`gnjax.networks.equations.rewritten`. Only modules of PyTorch are evaluated, to compare
    them with their translation, see :mod:`gnjax.networks.torch_modules.comparison`.
    """
    rewritten_example, output_shapes, torch_notice = _traced(apply, params, x)
    apply_rewritten = rewritten_alike(apply, rewritten_example)
    if torch_notice.met and not is_traced((apply, params, x)):
        any_size = torch_notice.any_size
        with _refusing(x):
            compare_modules(apply, params, x, like=apply_rewritten, any_size=any_size)
    return apply_rewritten, output_shapes


@by_shapes
def _traced(apply: Apply, params: Params, x: Any) -> tuple[Any, Outputs, Notice]:
    """The rewritten model, the shapes of its outputs, and whether it calls modules of PyTorch.

    The answer is kept for all models and inputs of the same structure and shapes. So the rewritten
    model comes without the numbers that it holds fixed: it only says to :func:`rewritten_alike`
    which equations are replaced.
    """
    with noticing() as torch_notice, _refusing(x):
        apply_rewritten, outputs = rewritten(apply, params, x)
    example = jax.tree.map(lambda number: None, apply_rewritten)
    return example, described_outputs(outputs, sample_count(x)), torch_notice


@contextmanager
def _refusing(x: Any) -> Iterator[None]:
    """A context in which an error of a model on inputs x becomes a ValueError of one sentence."""
    try:
        yield
    except RAISED as error:
        raise ValueError(refusal(error, x)) from error


def check_outputs(outputs: jax.Array) -> None:
    """Refuse outputs with NaN or Inf."""
    if not all_finite(outputs):
        msg = (
            "the model's outputs contain NaN or Inf at these parameters and inputs; look for token "
            "numbers past the vocabulary, for masks that leave a sample nothing, and for numbers "
            "that overflow"
        )
        raise ValueError(msg)
