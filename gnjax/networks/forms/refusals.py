"""Errors of a model or loss that cannot run on its inputs, as one sentence with advice."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import flax.errors
import jax

RAISED = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    RuntimeError,
    flax.errors.FlaxError,
)
"""What a function raises that does not take an input of a given shape."""

_NUMBERS_IN_PYTHON = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
_NOT_TRACED = (
    "a model, a loss or a function is traced, so write it with jax.numpy in place of numpy and "
    "float, with jnp.where or jax.lax.cond in place of an if on numbers or an index by a mask, and "
    "give sizes that depend on numbers as constants: num_segments= of segment_max, size= of "
    "nonzero and unique, length= of bincount, total_repeat_length= of repeat"
)

_LINK = re.compile(r"\s*\(https?://\S+\)")
_OF_SHAPES = re.compile(
    r"arguments?\b|\bax[ei]s\b|broadcast|channel|\bdim\b|dimension|divisible|features?\b|indexed|indices"
    r"|incompatible|\bndim\b|out of bounds|\brank\b|shape|\bsizes?\b|tuple index|unpack",
    re.IGNORECASE,
)
_OF_TYPES = re.compile(r"dtype|integer|float|boolean", re.IGNORECASE)
_PACKAGES = ("site-packages", "dist-packages", str(Path(__file__).parents[2]))


class Refused(ValueError):
    """A refusal that is raised inside a model or a loss of the user's and is worded already."""


def told(error: BaseException) -> str:
    """The first line of what an error says, without links."""
    if isinstance(error, KeyError):
        return f"there is no entry {error}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _LINK.sub("", lines[0]).strip().rstrip(".:")


def does_not_take(who: str, argument: str, shapes: Any, types: Any, error: BaseException) -> str:
    """Say how a function of the user's fails at its ``argument``.

    Only an error that speaks of shapes or of types is about the argument. One that asks for numbers
    which are not there while JAX traces says so. Any other is told as the function's own. Both come
    with the line that has raised it.
    """
    if asks_for_numbers(error):
        place = _place(error) or " somewhere"
        return f"{who} cannot be traced by JAX{place}: {told(error)}; {_NOT_TRACED}"
    about_shapes = bool(_OF_SHAPES.search(str(error)))
    if about_shapes or _OF_TYPES.search(str(error)):
        kind = f"shape {shapes}" if about_shapes else f"dtype {types}"
        return f"{who} does not take {argument} of {kind}: {told(error)}"
    raised = f"{who} raises {type(error).__name__}{_place(error)} at {argument} of shape {shapes}"
    return f"{raised}: {told(error)}" if str(error).strip() else raised


def asks_for_numbers(error: BaseException) -> bool:
    """Whether a traced function asks for a number, or for a size, that is not there yet."""
    sizes = isinstance(error, TypeError) and "concrete values" in str(error)
    return sizes or isinstance(error, _NUMBERS_IN_PYTHON)


def _place(error: BaseException) -> str:
    """The last line of the user's code that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    frames_of_user = [f for f in frames if not any(package in f.filename for package in _PACKAGES)]
    return (
        f" (line {frames_of_user[-1].lineno} of {Path(frames_of_user[-1].filename).name})"
        if frames_of_user
        else ""
    )


def shapes_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)


def types_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: str(leaf.dtype), tree)


def refusal(error: BaseException, x: Any) -> str:
    """The sentence for what a model has raised on inputs x."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, flax.errors.ModifyScopeVariableError):
        return (
            "the Linen module wants to update its batch statistics: pass "
            "gnjax.functional((module, variables), train=False) with the keyword that its call has "
            "for evaluation mode, or (apply, params) with an apply that discards the updates"
        )
    if isinstance(error, flax.errors.InvalidRngError):
        return (
            "the Linen module wants random numbers, as dropout does in training mode: pass "
            "gnjax.functional((module, variables), deterministic=True) with the keyword that its "
            "call has for evaluation, or rngs={'dropout': key} to fix one mask"
        )
    if isinstance(error, flax.errors.TraceContextError):
        return (
            "the function of the model changes an NNX object from outside, such as a captured "
            "nnx.Rngs that draws the next key; make the object inside the function from a fixed "
            "key, or pass the NNX module itself in evaluation mode (model.eval())"
        )
    sentence = does_not_take("the model", "an x", shapes_of(x), types_of(x), error)
    if asks_for_numbers(error):
        return sentence
    return f"{sentence}; {_advice(error, x)}"


def _advice(error: BaseException, x: Any) -> str:
    """What a user can do about an error that the model raised."""
    text = str(error).lower()
    if "apply must be called" in text or "apply_fn()" in text:
        return (
            "a Haiku model goes in as (transformed, params), and with state as (transformed, "
            "params, state), and not with transformed.apply"
        )
    if any(word in text for word in ("prngkey", "dropout", "rng", "requires a key")):
        return (
            "it wants random numbers, as dropout does in training mode: pass the keyword that its "
            "call has for evaluation by gnjax.functional(model, train=False), or "
            "eqx.nn.inference_mode(model) of Equinox, or fix one mask by "
            "gnjax.functional(model, rng=key)"
        )
    if isinstance(error, flax.errors.ScopeCollectionNotFound):
        return (
            "pass (module, variables) with all that module.init has returned, statistics included, "
            "in place of (module.apply, params)"
        )
    if "unexpected keyword" in text:
        return (
            "its call has no such keyword; leave it out, or pass those that it has by "
            "gnjax.functional(model, name=value)"
        )
    if type(x) is tuple and ("argument" in text or "tuple" in text):
        return (
            f"x is a tuple, whose {len(x)} entries are {len(x)} arguments of a module, and one "
            "tuple to an apply of your own; targets do not go there but in y="
        )
    if "argument" in text:
        return (
            "pass several arguments of a module as a tuple x, and keywords of its call by "
            "gnjax.functional(model, name=value)"
        )
    if "string indexing" in text or "indices must be" in text:
        return "apply is called as apply(params, x), with the parameters first"
    if isinstance(error, KeyError):
        return "give a dict x the names that the model reads, and the model its own parameters"
    if "valid jax type" in text:
        return "let it return arrays alone"
    if _OF_SHAPES.search(text) or _OF_TYPES.search(text):
        return _about_shapes(text, x)
    return (
        "the error is the model's own: evaluate it at this x without gnjax, by apply(params, x), "
        "and mend what it says"
    )


def _about_shapes(text: str, x: Any) -> str:
    """Which inputs to pass instead, after an error about shapes or types."""
    if "integer" in text:
        return "give tokens as integers, x.astype(int)"
    if "dtype should be bool" in text:
        return "give masks as booleans, mask.astype(bool)"
    images = any(leaf.ndim > 2 and leaf.dtype.kind == "f" for leaf in jax.tree.leaves(x))
    channels = " (images of Flax and Haiku have channels last)" if images else ""
    return (
        "the first axis of x counts samples, so that a single one goes in as x[None], and the "
        f"other axes are those that the model and its parameters were made for{channels}"
    )
