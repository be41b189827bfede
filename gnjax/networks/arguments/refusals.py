"""Errors of a model or loss that cannot run on its inputs, as one sentence.

It says what was raised, where, and for which inputs; the error itself is the cause of ours.
"""

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
    NameError,
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
_PACKAGES = ("site-packages", "dist-packages", str(Path(__file__).parents[2]))

_WITHOUT_GNJAX = (
    "evaluate apply(params, x) without gnjax, and mend what it says (x has the samples first, and "
    "a single one goes in as x[None]; images have channels last; tokens are integers; a tuple x is "
    "several arguments of a module; keywords of its call go in by gnjax.functional(model, "
    "name=value))"
)


class Refused(ValueError):
    """A refusal that is raised inside a model or a loss of the user's and is worded already."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without links, for a message of this library."""
    if isinstance(error, KeyError):
        return f"there is no entry {error}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _LINK.sub("", lines[0]).strip().rstrip(".:")


def raised_by(who: str, argument: str, hint: str, error: BaseException, *trees: Any) -> str:
    """A message that a function of the user's, ``who``, raises an error, with the line and a hint.

    ``argument`` is what it was called with, such as "an x", and ``trees`` are its arrays, with the
    target behind those of a loss. A function that needs the numbers of traced arrays, or a size
    that depends on them, gets a message of its own.
    """
    # the last line of the traceback that is in no installed package and not in gnjax
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(package in frame.filename for package in _PACKAGES)
    ]
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    asks_for_size = isinstance(error, TypeError) and "concrete values" in str(error)
    if asks_for_size or isinstance(error, _NUMBERS_IN_PYTHON):
        line = line or " somewhere"
        return f"{who} cannot be traced by JAX{line}: {first_line(error)}; {_NOT_TRACED}"
    shapes = [jax.tree.map(lambda leaf: tuple(leaf.shape), tree) for tree in trees]
    types = [jax.tree.map(lambda leaf: str(leaf.dtype), tree) for tree in trees]
    of_shape = " and a target of shape ".join(map(str, shapes))
    of_type = " and a target of dtype ".join(map(str, types))
    message = f": {first_line(error)}" if str(error).strip() else ""
    return (
        f"{who} raises {type(error).__name__}{line} at {argument} of shape {of_shape} and dtype "
        f"{of_type}{message}; {hint}"
    )


def refusal(error: BaseException, x: Any) -> str:
    """The message to the user about an error that a model has raised on inputs x.

    It is one sentence, which says what to do. Some errors of Flax have sentences of their own.
    """
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
    if isinstance(error, flax.errors.ScopeCollectionNotFound):
        return (
            f"{first_line(error)}; pass (module, variables) with all that module.init has "
            "returned, statistics included, in place of (module.apply, params)"
        )
    if isinstance(error, flax.errors.TraceContextError):
        return (
            "the function of the model changes an NNX object from outside, such as a captured "
            "nnx.Rngs that draws the next key; make the object inside the function from a fixed "
            "key, or pass the NNX module itself in evaluation mode (model.eval())"
        )
    return raised_by("the model", "an x", _WITHOUT_GNJAX, error, x)
