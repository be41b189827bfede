"""What counts of the outputs of a module of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnjax.networks.arguments.refusals import Refused
from gnjax.networks.torch_modules.arrays import torch

Output = str | int | Callable[[Any], Any] | None
"""A name, an index, a function of what the module returns, or None for the tensor or the logits."""


def choose_output(returned: Any, output: Output) -> Any:
    """The outputs to differentiate: a tensor, or a dict or tuple of tensors, out of ``returned``.

    Where ``output`` is None, ``returned`` is the one tensor, or its entry or attribute "logits" is
    taken.
    """
    if callable(output):
        return output(returned)
    if output is None:
        if isinstance(returned, torch().Tensor):
            return returned
        if isinstance(returned, Mapping) and "logits" in returned:
            return returned["logits"]
        if hasattr(returned, "logits"):
            return returned.logits
        msg = (
            f"the module returns {_listed(returned)}; say which of them counts by output=, a name, "
            "an index or a function, as in gnjax.from_torch(module, output='last_hidden_state')"
        )
        raise Refused(msg)
    try:
        by_index = isinstance(returned, Mapping) or isinstance(output, int)
        return returned[output] if by_index else getattr(returned, str(output))
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        msg = f"output={output!r} is no output of this module, which returns {_listed(returned)}"
        raise Refused(msg) from error


def _listed(returned: Any) -> str:
    """What a module returns, for a message: its type, and the names and shapes of its entries."""
    if isinstance(returned, torch().Tensor):
        return "one tensor"
    if isinstance(returned, Mapping):
        entries = list(returned.items())
    elif isinstance(returned, list | tuple):
        fields = getattr(returned, "_fields", range(len(returned)))
        entries = list(zip(fields, returned, strict=True))
    else:
        return f"a {type(returned).__name__}"
    return f"{type(returned).__name__} with {', '.join(_entry(*entry) for entry in entries)}"


def _entry(name: Any, value: Any) -> str:
    """An output by its name and shape, such as "logits (n, 10)", for a message."""
    if not isinstance(value, torch().Tensor):
        return f"{name} (a {type(value).__name__})"
    sizes = ["n", *(str(size) for size in value.shape[1:])] if value.ndim else []
    return f"{name} ({', '.join(sizes)})"
