"""Functions that compare by what they do: a new lambda around an old function is no new one.

JAX knows a function by its identity, and compiles everything again for one that was written down
again. Here two functions are the same where their code is the same and everything that it reads is:
defaults, enclosed variables, globals, attributes of functions, and in turn what the functions among
these read. Tuples and small NumPy arrays count with their entries at the time of asking, JAX arrays
by identity. Where a function reads anything else that may change unseen, such as a list or an
object of a class of the caller's, or sets a variable or an attribute outside of itself, or looks
variables up by a text, it is compared by identity as ever.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flax.linen
import jax
import numpy as np
from flax import nnx

_LIBRARIES = frozenset(["builtins", "flax", "functools", "jax", "jaxlib", "math", "numpy", "optax"])
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_JITTED = type(jax.jit(abs))
_BY_TEXT = frozenset(
    ["__import__", "delattr", "eval", "exec", "globals", "locals", "setattr", "vars"]
)
"""Functions that read or set variables and attributes which the code does not name."""
_LARGEST = 10_000_000  # bytes of a NumPy array whose entries are compared


class _UnknownError(Exception):
    """The function reads something that may change unseen."""


@dataclass(frozen=True)
class _Itself:
    """An object that compares by identity, held so that nothing else takes its place."""

    held: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


@dataclass(frozen=True)
class _Compared:
    """A function that compares by a key."""

    key: Any
    function: Callable[..., Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The value; refused where what the function reads is no longer what it was compared by.

        JAX calls this when it writes a program down, which then serves every function of this key.
        """
        if not _is_still(self.function, self.key):
            msg = (
                "a variable that the function of the model reads has changed since the operator "
                "was made; make the operator again"
            )
            raise ValueError(msg)
        return self.function(*args, **keywords)


def compared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as an object that is equal to others whose code and what it reads are the same.

    It comes back unchanged, and compares by identity, where it reads what may change unseen.
    """
    try:
        return _Compared(_key(function, {}), function)
    except _UnknownError:
        return function


def _is_still(function: Callable[..., Any], key: Any) -> bool:
    """Whether the function still has this key, so that it reads what it read before."""
    try:
        return bool(_key(function, {}) == key)
    except _UnknownError:
        return False


def _key(value: Any, numbers: dict[int, int]) -> Any:
    """A hashable key of something that a function reads, equal only for values that act alike.

    Constants are told apart by their value, small arrays of NumPy by their bytes, arrays of JAX and
    what is of a library by identity, and functions by their code and by all that they read
    (:func:`_function_key`). What may change unseen, such as a list, has no key and raises
    :class:`_UnknownError`. ``numbers`` has the functions that were met on the way, by their ids, in
    the order of meeting.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, repr(value)  # tells 1 from 1.0 and 0.0 from -0.0
    if kind is tuple:
        return kind, tuple(_key(entry, numbers) for entry in value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        if value.nbytes > _LARGEST:
            raise _UnknownError
        return kind, value.dtype.str, value.shape, value.tobytes()
    if kind is functools.partial:
        keywords = tuple(value.keywords.items())
        parts = (value.func, value.args, keywords)
        return kind, *(_key(part, numbers) for part in parts), _attributes(value, numbers)
    if isinstance(value, jax.core.Tracer):
        raise _UnknownError
    if isinstance(value, jax.Array | _JITTED) or _of_a_library(value):
        return _Itself(value)
    if isinstance(value, types.FunctionType):
        return _function_key(value, numbers)
    if isinstance(value, types.MethodType):
        return (
            kind,
            _key(value.__func__, numbers),
            _key(value.__self__, numbers),
        )
    if isinstance(value, flax.linen.Module | nnx.GraphDef):
        return _hashable(value)
    raise _UnknownError


def _of_a_library(value: Any) -> bool:
    """Whether this is a module, a function or a class of a library, which nobody edits at work.

    Such a value stands for itself. A method of an object is none, because it reads the object.
    """
    if isinstance(value, types.ModuleType):
        return _top(value.__name__) in _LIBRARIES
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(
        value.__self__, types.ModuleType
    ):
        return False  # a method of an object
    is_function_or_class = isinstance(
        value, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc
    )
    # jax.nn.relu and jnp.add are objects of classes of JAX
    of_jax = callable(value) and _top(type(value).__module__) in ("jax", "jaxlib")
    return (is_function_or_class or of_jax) and _top(
        getattr(value, "__module__", "numpy")
    ) in _LIBRARIES


def _top(name: str | None) -> str:
    """The name of the package that a module of this name is in."""
    return (name or "").split(".")[0]


def _hashable(value: Any) -> Any:
    """The value as its own key, if it can be hashed."""
    try:
        hash(value)
    except TypeError as error:  # a module with an array or a list among its fields
        raise _UnknownError from error
    return value


def _function_key(function: types.FunctionType, numbers: dict[int, int]) -> Any:
    """A key of the code, defaults and attributes, and of what the function reads from outside.

    ``numbers`` has the functions that were met on the way, by their ids: one that is met again, as
    in a recursion, has its number as key.
    """
    if id(function) in numbers:  # it calls itself
        return "seen", numbers[id(function)]
    numbers[id(function)] = len(numbers)
    cells = function.__closure__ or ()
    try:
        enclosed = tuple(_key(cell.cell_contents, numbers) for cell in cells)
    except ValueError as error:  # a cell that is still empty
        raise _UnknownError from error
    codes = tuple(_codes(function.__code__))
    if any(_reaches_out(step, code) for code in codes for step in dis.get_instructions(code)):
        raise _UnknownError
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    if not _BY_TEXT.isdisjoint(names):
        raise _UnknownError
    globals_used = tuple(
        (name, _key(function.__globals__[name], numbers))
        for name in names
        if name in function.__globals__
    )
    builtins_used = function.__globals__.get("__builtins__", builtins)
    if builtins_used is not builtins and builtins_used is not vars(builtins):
        raise _UnknownError
    keyword_defaults = tuple((function.__kwdefaults__ or {}).items())
    defaults = _key((function.__defaults__, keyword_defaults), numbers)
    attributes = _attributes(function, numbers)
    return function.__code__, defaults, enclosed, globals_used, attributes


def _attributes(function: Callable[..., Any], numbers: dict[int, int]) -> tuple[Any, ...]:
    """The names and keys of what a caller stored on a function, as in ``function.scale = 2.0``.

    ``numbers`` has the functions that were met on the way, as in :func:`_key`.
    """
    return tuple((name, _key(value, numbers)) for name, value in sorted(vars(function).items()))


def _reaches_out(step: dis.Instruction, code: types.CodeType) -> bool:
    """Whether a step imports something, or sets a variable or an attribute outside."""
    if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
        return step.argval in code.co_freevars
    return step.opname in (
        "IMPORT_NAME",
        "STORE_GLOBAL",
        "DELETE_GLOBAL",
        "STORE_ATTR",
        "DELETE_ATTR",
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function, and that of the functions written inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
