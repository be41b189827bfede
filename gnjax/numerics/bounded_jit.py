"""``jax.jit`` for functions of operators and networks, whose programs do not pile up.

An operator is a pytree whose structure holds the functions of its caller: the model and the loss.
``jax.jit`` keeps a program, and with it these functions, for every structure that it has ever met,
so that a loss that is written down anew in every call would take some megabytes for ever. Here each
structure has its own ``jax.jit``, and the programs of those that were used longest ago are freed.
What JAX itself remembers of a structure, some kilobytes, stays in its own bounded caches.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import lru_cache, partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import jax

_STRUCTURES = 16  # that a function remembers

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class BoundedJit(Generic[Arguments, Value]):
    """A compiled function that remembers a few structures of its first argument."""

    def __init__(self, function: Callable[Arguments, Value], **options: Any) -> None:
        update_wrapper(self, function)
        self._new = partial(_compiled, function, options)
        self._of_structure = lru_cache(maxsize=_STRUCTURES)(lambda structure: self._new())
        self._last: tuple[Callable[[], Any], Any] = (lambda: None, self._new())

    def __call__(self, *args: Arguments.args, **named: Arguments.kwargs) -> Value:
        value: Value = self._program(args[0])(*args, **named)
        return value

    def lower(self, *args: Any, **named: Any) -> Any:
        """As of ``jax.jit``."""
        return self._program(args[0]).lower(*args, **named)

    def eval_shape(self, *args: Any, **named: Any) -> Any:
        """As of ``jax.jit``."""
        return self._program(args[0]).eval_shape(*args, **named)

    def trace(self, *args: Any, **named: Any) -> Any:
        """As of ``jax.jit``."""
        return self._program(args[0]).trace(*args, **named)

    def _program(self, first: Any) -> Any:
        """The ``jax.jit`` for the structure of an argument; any other would give the same values.

        To look at the structure takes as long as a small product, so the last one is remembered.
        """
        last, program = self._last
        if last() is not first:
            program = self._of_structure(_structure(first))
            self._last = _reference(first), program
        return program


def bounded_jit(function: Callable[Arguments, Value] | None = None, **options: Any) -> Any:
    """``jax.jit`` with its options, as a decorator, that forgets structures of the first argument.

    >>> @bounded_jit
    ... def value(function, x):
    ...     return function(x)
    >>> float(value(jax.tree_util.Partial(abs), -2.0))
    2.0
    """
    if function is None:
        return partial(bounded_jit, **options)
    return BoundedJit(function, **options)


def _structure(first: Any) -> Any:
    """The structure of a pytree; of a function, which is a static argument, the function itself."""
    structure = jax.tree.structure(first)
    return first if jax.tree_util.treedef_is_leaf(structure) and callable(first) else structure


def _reference(value: Any) -> Callable[[], Any]:
    """A weak reference, or one to nothing for what has none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    def again(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    update_wrapper(again, function)
    return jax.jit(again, **options)
