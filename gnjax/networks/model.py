"""Any model as a pair (apply, params) with apply(params, x) -> outputs, checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial

from gnjax.networks.arguments import frameworks
from gnjax.networks.arguments.frameworks import Apply, Model, Params
from gnjax.networks.arguments.real_form import of_real_parameters
from gnjax.networks.arguments.refusals import RAISED, Refused, refusal
from gnjax.networks.arguments.same_function import known
from gnjax.networks.arguments.samples import (
    check_samples,
    converted,
    sample_count,
)
from gnjax.networks.equations.rewritten import rewritten, rewritten_alike
from gnjax.networks.output_shapes import Outputs, described_outputs
from gnjax.networks.parameters import paths
from gnjax.networks.torch_modules.comparison import Notice, compare_modules, noticing
from gnjax.numerics.bounded_jit import by_shapes
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_finite, is_traced

__all__ = [
    "Apply",
    "Params",
    "apply_and_outputs",
    "apply_and_params",
    "functional",
    "output_count",
]

_FORMS = (
    "a Flax NNX module, a Linen (module, variables) pair, a TrainState, an Equinox module or its "
    "pair (module, state), a Keras model, (hk.transform(f), params), or (apply, params) with "
    "apply(params, x) -> outputs (n, ...)"
)
# where the models of this library, and the translations of PyTorch's modules, are defined
_OWN = ("gnjax.models.", "gnjax.networks.torch_modules.")
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
    is_of_framework = (frameworks.is_equinox, frameworks.is_keras, frameworks.is_torch)
    return isinstance(value, nnx.Module | flax.linen.Module) or any(
        check(value) for check in is_of_framework
    )


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


def output_count(model: Any, x: Any) -> int:
    """k, the numbers that a model of any form returns for a sample of x; nothing is evaluated."""
    inputs = check_samples("x", x)
    return apply_and_outputs(*apply_and_params(model, inputs), inputs)[1].k


def apply_and_params(model: Any, x: Any, *, has_aux: bool = False) -> tuple[Apply, Params]:
    """(apply, params) of a model, in the working precision, complex parameters as two real ones.

    With ``has_aux`` the model returns (outputs, extras), and ``apply`` the outputs alone.

    ``apply`` equals another only if both compute the same. A function of the caller's is known by
    its code and all that it reads. A module may read what changes unseen, and is known by its
    equations at samples with the shapes of ``x``. Models of this library, and translations of
    PyTorch's modules, read only what they hold.
    """
    apply, params = functional(model)
    assert isinstance(apply, Partial)  # a pytree of what it holds fixed
    defined_in = type(model).__module__, type(apply.func).__module__
    apply, params = of_real_parameters(apply, params)
    params = checked_parameters(params)
    if not any(name.startswith(_OWN) for name in defined_in):
        apply = known(apply, params, x)
    return (Partial(_without_extras, apply) if has_aux else apply), params


def checked_parameters(params: Params) -> Params:
    """The pytree of parameters as floating arrays in the working precision.

    A parameter that is no array of floating numbers, or not finite, is refused; the message names
    its path.
    """
    unchecked, structure = jax.tree.flatten(params)
    if not unchecked:
        msg = (
            "the model has no parameters of a floating point type, so there is nothing to "
            "differentiate by; in Equinox integer arrays are held fixed, so make weights floats"
        )
        raise ValueError(msg)
    advice = "a spectrum needs finite parameters, so load those from before the training diverged"
    leaves = []
    for path, leaf in zip(paths(params), unchecked, strict=True):
        name = f"the parameter {path}" if path else "a parameter"
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
                f"{name} has dtype {array.dtype}; floating point parameters are needed (keep "
                "integer tables and counters out of the parameters and inside of apply)"
            )
            raise ValueError(msg)
        leaves.append(converted(array, real_dtype()))
        given = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)  # a number of Python
        check_finite(f"{name} of the model", given, leaves[-1], advice)
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

    The answer serves all models of the same structure and shapes, and so the rewritten model comes
    without the numbers that it holds fixed.
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
