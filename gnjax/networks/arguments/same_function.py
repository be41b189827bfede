"""Functions that compare by what they do: a new lambda around an old function is no new one.

JAX knows a function by its identity. It compiles everything again for one that was written down
again, and nothing again for one that has meanwhile read another number from a dictionary. Here two
functions are the same where their code is the same and everything that it reads is. A function that
reads what may change unseen is traced, and is the same while it has the same equations.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.extend import core
from jax.tree_util import Partial

from gnjax.networks import jaxprs
from gnjax.networks.arguments.refusals import RAISED

_LIBRARIES = frozenset(["builtins", "flax", "functools", "jax", "jaxlib", "math", "numpy", "optax"])
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_JITTED = type(jax.jit(abs))
_BY_TEXT = frozenset(
    ["__import__", "delattr", "eval", "exec", "globals", "locals", "setattr", "vars"]
)
"""Functions that read or set variables and attributes which the code does not name."""
_ADDRESS = re.compile("0x[0-9a-f]+")  # of a function, as an equation with its own rule prints it
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
    """A function that compares by a key; ``shapes`` are the arguments at which it was traced."""

    key: Any
    function: Callable[..., Any]
    shapes: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The function's value; refused if a variable that the function reads has changed.

        A program that JAX compiles from this call serves every function with the same key, so that
        the key must still be true of what is traced.
        """
        if not self.is_current():
            msg = (
                "a variable that the function of the model, or its loss, reads has changed since "
                "the operator was made; make the operator again"
            )
            raise ValueError(msg)
        return self.function(*args, **keywords)

    def is_current(self) -> bool:
        """Whether all that the function reads is as it was."""
        again = by_equations if self.shapes else compared
        return again(self.function, *self.shapes) == self


def known(function: Partial, *args: Any) -> Partial:
    """A function and what it holds as one that equals another only if both compute the same.

    One that holds nothing is compared by its code and what that reads; any other, such as the call
    of a module, by its equations at ``args``.
    """
    if not (function.args or function.keywords):
        return Partial(compared(function.func, *args))
    of_equations = by_equations(_called, function, *args)
    return function if of_equations is _called else Partial(of_equations, function)


def _called(function: Callable[..., Any], *args: Any) -> Any:
    """The function's value."""
    return function(*args)


def compared(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The function as an object that equals another if both have the same code and read the same.

    So JAX, which compiles anew for a function that is not equal to an earlier one, does not compile
    again for a lambda that is written down again. A function that reads what may change unseen,
    such as a list or its own attributes, is compared :func:`by_equations` at the arguments
    ``args``; without them it comes back unchanged.
    """
    if isinstance(function, _Compared):
        return function
    try:
        return _Compared(_key(function, {}), function, ())
    except _UnknownError:
        return by_equations(function, *args) if args else function


def by_equations(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The function as an object that equals itself, and only while it has the same equations.

    These are its equations at arguments of the shapes of ``args``, which are pytrees of arrays. A
    function that cannot be traced at them comes back unchanged.
    """
    try:
        shapes = jax.eval_shape(lambda *args: args, *args)
        key = _Itself(function), _equations(function, shapes)
    except (*RAISED, jax.errors.JAXTypeError):  # also where it holds a traced array
        return function
    return _Compared(key, function, shapes)


def is_current(function: Any) -> bool:
    """Whether all that a :func:`compared` function reads is as it was; True for any other value."""
    return not isinstance(function, _Compared) or function.is_current()


def _equations(function: Callable[..., Any], shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key of the equations of a function at arguments of these shapes.

    A function may hold a derivative rule of the caller's (``jax.custom_jvp`` or ``custom_vjp``),
    which its equations do not show. Then those of its gradient belong to the key, too.
    """

    def total(*args: Any) -> Any:
        """The sum of all floating results."""
        results = jax.tree.leaves(function(*args))
        return sum(jnp.real(result).sum() for result in results if jaxprs.inexact(result))

    def gradient(*args: Any) -> list[Any]:
        value, pullback = jax.vjp(total, *args)
        parts = jax.tree.leaves(pullback(jnp.ones_like(value)))
        return [part for part in parts if jaxprs.inexact(part)]

    closed_jaxpr = jax.make_jaxpr(lambda *args: function(*args))(*shapes)
    inside = {eqn.primitive.name for eqn in jaxprs.equations(closed_jaxpr.jaxpr)}
    if not inside.isdisjoint(jaxprs.CUSTOM_RULES):
        return *_key_of(closed_jaxpr), *_key_of(jax.make_jaxpr(gradient)(*shapes))
    return _key_of(closed_jaxpr)


def _key_of(closed_jaxpr: Any) -> tuple[Any, ...]:
    """The text of a closed jaxpr without addresses, and a hash of each of its constants."""
    consts = list(closed_jaxpr.consts)
    for eqn in jaxprs.equations(closed_jaxpr.jaxpr):
        consts += [v.val for v in eqn.invars if isinstance(v, core.Literal)]
        consts += [const for value in eqn.params.values() for const in _consts(value)]
    digests = (hashlib.sha256(np.asarray(const).tobytes()).digest() for const in consts)
    return _ADDRESS.sub("", str(closed_jaxpr.jaxpr)), *digests


def _consts(value: Any) -> list[Any]:
    """The constants of the closed jaxprs in a parameter of an equation."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return [const for part in parts for const in getattr(part, "consts", ())]


def _key(value: Any, visited: dict[int, int]) -> Any:
    """A hashable key of something that a function reads; equal keys mean that both act alike.

    The key of a constant is its value, of a small array of NumPy its bytes, of an array of JAX or
    of a library's function its identity, and of another function its code and all that it reads
    (:func:`_function_key`). What may change unseen, such as a list, has no key and raises
    :class:`_UnknownError`. ``visited`` numbers the functions that were met so far, by their ids.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, repr(value)  # tells 1 from 1.0 and 0.0 from -0.0
    if kind is tuple:
        return kind, tuple(_key(entry, visited) for entry in value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        if value.nbytes > _LARGEST:
            raise _UnknownError
        return kind, value.dtype.str, value.shape, value.tobytes()
    if kind is functools.partial:
        keywords = tuple(value.keywords.items())
        keys = (_key(entry, visited) for entry in (value.func, value.args, keywords))
        return kind, *keys, _attributes(value, visited)
    if isinstance(value, jax.core.Tracer):
        raise _UnknownError
    if isinstance(value, jax.Array | _JITTED) or _of_a_library(value):
        return _Itself(value)
    if isinstance(value, types.FunctionType):
        return _function_key(value, visited)
    if isinstance(value, types.MethodType):
        return kind, _key(value.__func__, visited), _key(value.__self__, visited)
    if isinstance(value, flax.linen.Module | nnx.GraphDef):
        try:
            hash(value)
        except TypeError as error:  # a module with an array or a list among its fields
            raise _UnknownError from error
        return value
    raise _UnknownError


def _of_a_library(value: Any) -> bool:
    """Whether this is a module, a function or a class of a library such as JAX or NumPy.

    Such a value does not change while a program runs, so that its identity is its key. A method of
    an object does not count, because it reads the object.
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


def _function_key(function: types.FunctionType, visited: dict[int, int]) -> Any:
    """A key of a function: its code, defaults and attributes, and all that it reads from outside.

    ``visited`` numbers the functions that were met so far, by their ids: one that is met again, as
    in a recursion, has its number as key. A function that imports something, or sets
    variables outside of itself, has no key and raises :class:`_UnknownError`.
    """
    if id(function) in visited:
        return "seen", visited[id(function)]
    visited[id(function)] = len(visited)
    cells = function.__closure__ or ()
    try:
        enclosed = tuple(_key(cell.cell_contents, visited) for cell in cells)
    except ValueError as error:  # a cell that is still empty
        raise _UnknownError from error
    codes = tuple(_codes(function.__code__))
    if any(_reaches_out(step, code) for code in codes for step in dis.get_instructions(code)):
        raise _UnknownError
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    if not _BY_TEXT.isdisjoint(names):  # eval and the like may read what the code does not name
        raise _UnknownError
    globals_used = tuple(
        (name, _key(function.__globals__[name], visited))
        for name in names
        if name in function.__globals__
    )
    # a function may have builtins of its own in place of Python's
    builtins_used = function.__globals__.get("__builtins__", builtins)
    if builtins_used is not builtins and builtins_used is not vars(builtins):
        raise _UnknownError
    keyword_defaults = tuple((function.__kwdefaults__ or {}).items())
    defaults = _key((function.__defaults__, keyword_defaults), visited)
    attributes = _attributes(function, visited)
    return function.__code__, defaults, enclosed, globals_used, attributes


def _attributes(function: Callable[..., Any], visited: dict[int, int]) -> tuple[Any, ...]:
    """The names and keys of what a caller stored on a function, as in ``function.scale = 2.0``.

    ``visited`` numbers the functions that were met so far, by their ids.
    """
    return tuple((name, _key(value, visited)) for name, value in sorted(vars(function).items()))


def _reaches_out(step: dis.Instruction, code: types.CodeType) -> bool:
    """Whether an instruction imports, or sets a variable or an attribute outside of the function.

    ``step`` is an instruction of Python's bytecode, and ``code`` the function's code.
    """
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
