"""Losses of one sample.

``squared_error`` is |f - y|^2 / 2 (``mse`` is an older name of the same loss), ``cross_entropy`` is
logsumexp(f) - f_y over the last axis of the outputs, and ``binary_cross_entropy`` is
y log(1 + e^-f) + (1 - y) log(1 + e^f) for every output. A loss may also be a function of one
sample's outputs and target.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.refusals import RAISED, Refused, raised_by
from gnjax.networks.equations.maxima import ByComparison
from gnjax.networks.output_shapes import Outputs

Loss = str | Callable[..., jax.Array]
LOSSES = ("squared_error", "cross_entropy", "binary_cross_entropy", "mse")


class _Unnamed(str):
    """The name of a loss that the caller did not choose; it is equal to the plain name."""


UNNAMED: Loss = _Unnamed("squared_error")  # the default of every argument ``loss``


def check_loss(loss: Loss) -> None:
    """Refuse a loss that is neither a known name nor a function."""
    if callable(loss) or (isinstance(loss, str) and loss in LOSSES):
        return
    msg = (
        f"loss={loss!r} is not one of {', '.join(LOSSES)}, nor a function loss(f, y) of one "
        "sample's output"
    )
    raise ValueError(msg)


def loss_in_words(loss: Loss) -> str:
    """The name of a loss, as operators and reports say it; a function is said to be one."""
    if isinstance(loss, str):
        return str(loss)  # a plain string, also of the default
    function = loss.func if isinstance(loss, partial) else loss
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} (a function)"


def is_squared(loss: Loss) -> bool:
    """Whether a loss is the squared error, under either of its names."""
    return isinstance(loss, str) and loss in ("squared_error", "mse")


def loss_terms(loss: Loss) -> Callable[..., jax.Array]:
    """The function (f, y) to the terms whose sum is a sample's loss, for outputs f and target y.

    There is one term for each output or token, or one number alone. In a loss of the caller's,
    maxima are replaced by choices between compared numbers, which JAX differentiates safely.
    """
    if not isinstance(loss, str):
        return partial(ByComparison(), partial(checked_terms, loss))
    functions = {"cross_entropy": _cross_entropy, "binary_cross_entropy": _binary_cross_entropy}
    return functions.get(loss, _squared_error)


def sample_loss(loss: Loss) -> Callable[..., jax.Array]:
    """The function (f, y) to the loss of one sample's outputs f and its target y, a number."""
    terms = loss_terms(loss)
    return lambda f, *target: terms(f, *target).sum()


def checked_terms(loss: Callable[..., jax.Array], f: Any, *target: Any) -> jax.Array:
    """The caller's loss at one sample's outputs f: one number, or one for each output."""
    value = jnp.asarray(loss(f, *target))
    if not jnp.issubdtype(value.dtype, jnp.floating):
        msg = f"the loss must return a real number, got dtype {value.dtype}"
        raise Refused(msg)
    shape = getattr(f, "shape", ())
    if value.shape != shape[: value.ndim]:
        outputs = shape or "of several arrays"
        msg = (
            f"the loss of one sample, outputs of shape {outputs}, has shape {value.shape}; "
            "return one number, or one number for each output (they are then summed)"
        )
        raise Refused(msg)
    return value


def _squared_error(f: Any, y: Any) -> jax.Array:
    """(f - y)^2 / 2 for each output."""
    return jnp.square(f - y) / 2


def _cross_entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    """logsumexp(f) - sum_c y_c f_c (...) for logits f (..., classes) of one sample.

    y are integer labels (...), each of which stands for one class of probability one, or the
    probabilities (..., classes). A label below zero does not count: its loss is zero.
    """
    if y.ndim == f.ndim:
        return jax.nn.logsumexp(f, axis=-1) - (y * f).sum(axis=-1)
    at_target = jnp.take_along_axis(f, jnp.maximum(y, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(y < 0, 0, jax.nn.logsumexp(f, axis=-1) - at_target)


def _binary_cross_entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    """y log(1 + e^-f) + (1 - y) log(1 + e^f) for each output f and its label y in [0, 1]."""
    return y * jax.nn.softplus(-f) + (1 - y) * jax.nn.softplus(f)


def check_call(loss: Loss, outputs: Outputs, y: Any, dtype: Any) -> tuple[int, ...]:
    """The shape of what the caller's loss returns for one sample; the loss is traced for it.

    A function is refused that does not take one sample's outputs and target, and one whose target
    has the default None where no targets are given. ``outputs`` are the shapes of one sample's
    outputs, ``y`` the targets of all samples (None where there are none), and ``dtype`` the working
    precision.
    """
    if y is None and _needs_target(loss):
        msg = (
            "the loss compares with targets, its second argument, and none came; pass them as y, "
            "or lambda f: loss(f) where the loss is meant without"
        )
        raise ValueError(msg)
    arguments = sample_arguments(outputs, y, dtype)
    try:
        shape = tuple(jax.eval_shape(loss_terms(loss), *arguments).shape)
    except Refused as error:
        raise ValueError(str(error)) from None
    except RAISED as error:
        hint = "it is given arrays of JAX, and called for every sample by itself"
        hint = "pass the targets as y" if y is None else hint
        msg = raised_by("the loss", "one sample, outputs", hint, error, *arguments)
        raise ValueError(msg) from error
    _check_not_stretched(outputs, y, shape)
    return shape


def sample_arguments(outputs: Outputs, y: Any, dtype: Any) -> list[Any]:
    """The shapes of what a loss is called with: one sample's outputs, and its target if any."""
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape in outputs.shapes]
    arguments = [jax.tree.unflatten(outputs.structure, leaves)]
    if y is not None:
        arguments.append(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), y))
    return arguments


def _needs_target(loss: Loss) -> bool:
    """Whether the second argument of a loss, its target, has the default None.

    So it is in optax's regression losses, for which None means targets of zero.
    """
    if not callable(loss):
        return False
    try:
        parameters = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):  # what is not written in Python has none
        return False
    positional = [a for a in parameters if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 and positional[1].default is None


def _check_not_stretched(outputs: Outputs, y: Any, loss_shape: tuple[int, ...]) -> None:
    """Refuse a loss that broadcasts its target, and so compares several outputs with one number.

    ``outputs`` are the shapes of one sample's outputs, ``loss_shape`` is the shape of its loss, and
    ``y`` are the targets of all samples.
    """
    if not (outputs.is_array and loss_shape == outputs.shape and hasattr(y, "shape")):
        return
    shape_of_y = tuple(y.shape[1:])
    if math.prod(shape_of_y) < math.prod(loss_shape):
        msg = (
            f"the loss gives one number for each output {loss_shape} of a sample, but its target "
            f"has shape {shape_of_y} and would be stretched to all of them; give y the shape of "
            "the outputs"
        )
        raise ValueError(msg)
