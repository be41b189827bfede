"""``jax.jit`` for functions of operators and networks, whose programs do not pile up.

An operator is a pytree whose structure holds the functions of its caller: the model and the loss.
``jax.jit`` keeps a program, and with it these functions, for every structure that it ever met, so
that a loss that is written down anew in every call would take some megabytes for ever. Here the
functions that an operator holds have a ``jax.jit`` of their own, and the programs of those that
were used longest ago are freed. An operator of the same functions in other shapes, such as one for
each layer, shares that ``jax.jit`` and displaces no other.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache, partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

_REMEMBERED = 16  # sets of functions whose programs are kept

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.dtype)

Arguments = ParamSpec("Arguments")
_Value = TypeVar("_Value")


class BoundedJit(Generic[Arguments, _Value]):
    """A compiled function that keeps the programs of a few sets of functions."""

    def __init__(self, function: Callable[Arguments, _Value], **options: Any) -> None:
        update_wrapper(self, function)
        self._of_functions = lru_cache(_REMEMBERED)(lambda key: _compiled(function, options))
        self._last: tuple[Callable[[], Any], Any] = (lambda: self, None)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> _Value:
        value: _Value = self.of(args[0])(*args, **kwargs)
        return value

    def of(self, owner: Any) -> Any:
        """The ``jax.jit`` for the functions that ``owner`` holds; in a call, the first argument.

        Every other one would compute the same, as each compares all of its arguments. To ask for
        the functions takes as long as a small product, so the last answer is remembered.
        """
        last, program = self._last
        if last() is not owner:
            program = self._of_functions(functions_of(owner))
            self._last = _reference(owner), program
        return program


def bounded_jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``jax.jit`` with its options, as a decorator, that frees programs of forgotten functions.

    >>> @bounded_jit
    ... def value(function, x):
    ...     return function(x)
    >>> float(value(jax.tree_util.Partial(abs), -2.0))
    2.0
    """
    if function is None:
        return partial(bounded_jit, **options)
    return BoundedJit(function, **options)


def by_shapes(function: Callable[..., _Value]) -> Callable[..., _Value]:
    """Remember what a function of pytrees says of their structure, shapes and dtypes alone.

    The numbers in the arrays must not matter; leaves that are no arrays count with their values.
    Answers for the last few structures are kept.
    """
    answers: OrderedDict[Hashable, _Value] = OrderedDict()

    def remembered(*args: Any) -> _Value:
        leaves, structure = jax.tree.flatten(args)
        kinds = [(x.shape, x.dtype) if hasattr(x, "dtype") else x for x in leaves]
        key = structure, tuple(kinds)
        answer = answers.pop(key) if key in answers else function(*args)
        answers[key] = answer
        if len(answers) > _REMEMBERED:
            answers.popitem(last=False)
        return answer

    update_wrapper(remembered, function)
    return remembered


def functions_of(owner: Any) -> tuple[Hashable, ...]:
    """The functions in a pytree's structure, such as models and losses."""
    structure = jax.tree.structure(owner)
    if jax.tree_util.treedef_is_leaf(structure):
        return (_hashable(owner),) if callable(owner) else ()
    return tuple(_functions_in(structure))


def _functions_in(value: Any) -> Iterator[Hashable]:
    """The functions in a structure, in what stands beside the numbers of its nodes, and so on."""
    if isinstance(value, jax.tree_util.PyTreeDef):
        node = value.node_data()
        parts = [*([] if node is None else [node[1]]), *value.children()]
    elif isinstance(value, tuple | list):
        parts = list(value)
    else:
        parts = []
        if not isinstance(value, _PLAIN):
            yield _hashable(value)
    for part in parts:
        yield from _functions_in(part)


def _hashable(value: Any) -> Hashable:
    """The value itself, or a key that compares it as JAX does: by equality, without a hash."""
    try:
        hash(value)
    except TypeError:
        return _ByEquality(value)
    return value


class _ByEquality:
    """A function that has no hash, such as a Flax module with a list of layers."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByEquality) and bool(self.value == other.value)


def _reference(value: Any) -> Callable[[], Any]:
    """A weak reference, or one to nothing for what has none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """``jax.jit`` of a new function that calls this one.

    JAX keeps compiled programs by function, so that those of this wrapper can be dropped alone.
    """

    def again(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    update_wrapper(again, function)
    return jax.jit(again, **options)
