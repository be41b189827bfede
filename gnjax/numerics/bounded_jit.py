"""``jax.jit`` for functions of operators and networks, whose programs do not pile up.

``jax.jit`` keeps a program, and with it the model and the loss, for every structure of an operator
that it ever met. Here the functions that an operator holds have a ``jax.jit`` of their own, and the
programs of those that were used longest ago are freed.
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
    """A compiled function whose first argument, its owner, holds functions such as model and loss.

    It keeps one ``jax.jit`` for each of the last 16 sets of such functions. JAX keeps programs by
    function, so that each is of a new partial, whose programs can be dropped alone.
    """

    def __init__(self, function: Callable[Arguments, _Value], **options: Any) -> None:
        """Wrap a function, with ``options`` for ``jax.jit``; nothing is compiled."""
        update_wrapper(self, function)
        self._program_of = lru_cache(_REMEMBERED)(
            lambda functions: jax.jit(partial(function), **options)
        )
        # The owner of the last call, by a weak reference, and its program; at first no owner's.
        self._last: tuple[Callable[[], Any], Any] = (lambda: self, None)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> _Value:
        value: _Value = self.of(args[0])(*args, **kwargs)
        return value

    def of(self, owner: Any) -> Any:
        """The ``jax.jit`` for the functions, such as model and loss, that ``owner`` holds.

        The owner is the first argument of a call. Which ``jax.jit`` is taken decides how long its
        programs are kept, and not what is computed. To find the functions takes longer than a small
        product, so the answer for the last owner is remembered.
        """
        last_owner, program = self._last
        if last_owner() is not owner:
            structure = jax.tree.structure(owner)
            is_function = jax.tree_util.treedef_is_leaf(structure) and callable(owner)
            program = self._program_of(tuple(_functions_in([owner] if is_function else structure)))
            try:
                self._last = weakref.ref(owner), program
            except TypeError:  # a type that allows no weak references
                self._last = (lambda: None), program
        return program


def bounded_jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A decorator like ``jax.jit``, with its options, that keeps programs for few models only.

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
    """Keep the last 16 answers of a function that reads only shapes and dtypes of its arguments.

    The arguments are pytrees. Two calls have the same answer if the trees have the same structure,
    their arrays the same shapes and dtypes, and their other leaves the same values.
    """
    answers: OrderedDict[Hashable, _Value] = OrderedDict()

    def remembered(*args: Any) -> _Value:
        leaves, structure = jax.tree.flatten(args)
        kinds = [(x.shape, x.dtype) if hasattr(x, "dtype") else x for x in leaves]
        key = structure, tuple(kinds)
        answer = answers.pop(key) if key in answers else function(*args)
        answers[key] = answer  # at the end, as the one used last
        if len(answers) > _REMEMBERED:
            answers.popitem(last=False)
        return answer

    update_wrapper(remembered, function)
    return remembered


def _functions_in(value: Any) -> Iterator[Hashable]:
    """The functions in the structure of a pytree: in the metadata of its nodes, at any depth.

    Metadata is what a class of pytrees states beside its children. Whatever in it is neither a
    structure, a tuple or list, nor a plain number or word, counts as a function.
    """
    if isinstance(value, jax.tree_util.PyTreeDef):
        node = value.node_data()  # (type, metadata), or None for a leaf
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
    """The value itself where it has a hash; otherwise a key that is equal where the values are."""
    try:
        hash(value)
    except TypeError:
        return _ByEquality(value)
    return value


class _ByEquality:
    """A key for a function that has no hash, such as a Flax module with a list of layers."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByEquality) and bool(self.value == other.value)
