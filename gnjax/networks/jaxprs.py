"""Evaluate jaxprs equation by equation, with calls inlined and slow convolutions replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

# The name that each primitive has for the equations that it evaluates once:
CALLS = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
CHECKPOINTS = dict.fromkeys(("checkpoint", "remat", "remat2"), "jaxpr")
CUSTOM_VJPS = {"custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}
CUSTOM_RULES = {"custom_jvp_call": "call_jaxpr", **CUSTOM_VJPS}
CALLS_AND_CHECKPOINTS = {**CALLS, **CHECKPOINTS}
ALL_CALLS = {**CALLS_AND_CHECKPOINTS, **CUSTOM_RULES}
_FEW_PAIRS = 256  # pairs of input and output channels up to which XLA's convolution is slow

Bind = Callable[[Any, Sequence[Any]], Any]
"""An equation applied to operands."""


def inlined(function: Callable[..., Any], *args: Any) -> Any:
    """The closed jaxpr of ``function(*args)`` with the equations of calls in place of the calls.

    So the equation of a layer is found in one list, or in the body of a scan, which has no calls
    either. A checkpoint counts as a call. The arguments of the jaxpr are the leaves of ``args``.
    """
    closed_jaxpr, leaves = jax.make_jaxpr(function)(*args), jax.tree.leaves(args)

    def bind_inlined(eqn: Any, operands: Sequence[Any]) -> Any:
        if eqn.primitive.name == "scan":  # becomes one whose body has no calls
            return scanned(eqn, operands, lambda body, args, _: (inside(body, args), None))[0]
        return bind(eqn, operands)

    def inside(body: Any, args: Sequence[Any]) -> list[Any]:
        return evaluate(body.jaxpr, body.consts, args, bind_inlined, CALLS_AND_CHECKPOINTS)

    return jax.make_jaxpr(lambda *args: inside(closed_jaxpr, args))(*leaves)


def with_wide_convolutions(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, a single array, computed with faster convolutions on a CPU.

    Images and kernels get input channels of zeros where :func:`_widened` says that this is faster,
    which changes no value.
    """
    closed_jaxpr = jax.make_jaxpr(function)(*args)
    flat = jax.tree.leaves(args)
    return evaluate(closed_jaxpr.jaxpr, closed_jaxpr.consts, flat, bind_widened)[0]


def evaluate(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    bind: Bind,
    entered: Mapping[str, str] = CALLS,
) -> list[Any]:
    """The results of a jaxpr, equation by equation, on values of any kind that ``bind`` takes.

    Numbers that stand in the equations become arrays (:func:`literal`). The memory of a value is
    freed after the last equation that uses it. ``entered`` are the primitives, such as calls, whose
    inner equations are evaluated one by one, each with the name of its jaxpr's parameter; ``bind``
    gives the results of every other equation for its operands. If checkpoints and functions with
    derivative rules are entered, values stay the same, but not derivatives or memory.
    """
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    unused_after = _unused(jaxpr)

    def value_of(v: Any) -> Any:
        return literal(v) if isinstance(v, core.Literal) else values[v]

    for index, eqn in enumerate(jaxpr.eqns):
        operands = [value_of(v) for v in eqn.invars]
        if eqn.primitive.name in entered:
            results = evaluate(*called(eqn), operands, bind, entered)
        else:
            bound = bind(eqn, operands)
            results = bound if eqn.primitive.multiple_results else [bound]
        values.update(zip(eqn.outvars, results, strict=True))
        for v in unused_after.get(index, ()):
            values.pop(v, None)
    return [value_of(v) for v in jaxpr.outvars]


def literal(v: Any) -> np.ndarray:
    """The number that stands in an equation in place of a variable, as an array of its own dtype.

    JAX keeps such numbers as Python's, as NumPy's, and as types of its own, some without a shape.
    """
    return np.asarray(v.val, v.aval.dtype)


def _unused(jaxpr: Any) -> dict[int, list[Any]]:
    """For the index of an equation the variables whose values can be freed after it."""
    last_use = {  # the index of the last equation that reads or makes each variable
        v: index
        for index, eqn in enumerate(jaxpr.eqns)
        for v in (*variables(eqn.invars), *eqn.outvars)
    }
    for v in variables(jaxpr.outvars):
        last_use.pop(v, None)  # the results are used to the end
    last_used_at: dict[int, list[Any]] = {}
    for v, index in last_use.items():
        last_used_at.setdefault(index, []).append(v)
    return last_used_at


def most_bytes(jaxpr: Any) -> int:
    """The most bytes that the results of equations take at one time in :func:`evaluate`.

    What is inside of loops and branches is left out, and so are arguments and constants.
    """
    unused_after, in_use, most = _unused(jaxpr), 0, 0
    results = {v for eqn in jaxpr.eqns for v in eqn.outvars}
    for index, eqn in enumerate(jaxpr.eqns):
        inner = called(eqn)[0] if eqn.primitive.name in ALL_CALLS else None
        in_use += sum(_bytes(v) for v in eqn.outvars)
        most = max(most, in_use + (0 if inner is None else most_bytes(inner)))
        in_use -= sum(_bytes(v) for v in unused_after.get(index, ()) if v in results)
    return most


def _bytes(v: Any) -> int:
    """The bytes that the value of a variable takes, 0 where it is no array."""
    return int(v.aval.size * v.aval.dtype.itemsize) if hasattr(v.aval, "dtype") else 0


def variables(atoms: Sequence[Any]) -> list[Any]:
    """The variables among the atoms; the others are literal numbers."""
    return [v for v in atoms if not isinstance(v, core.Literal)]


ScanStep = Callable[[Any, Sequence[Any], Any], tuple[list[Any], Any]]
"""(body of a scan, its arguments, a row of arrays beside them) to its results and a pytree."""


def scanned(
    eqn: Any, operands: Sequence[Any], step: ScanStep, beside: Any = None
) -> tuple[list[Any], Any]:
    """The results of a scan whose body ``step`` runs, and what ``step`` returns beside them.

    The result is a new ``jax.lax.scan``, whose operands are constants, then what it carries, then
    arrays with a row for each step. ``beside`` is a pytree of further such arrays for ``step``.
    """
    params, carry_start = eqn.params, eqn.params["num_consts"]
    rows_start = carry_start + params["num_carry"]
    consts, rows = operands[:carry_start], operands[rows_start:]
    carry = [  # lax.scan wants every carry in one dtype from the first step on
        o if isinstance(o, jax.Array) else jnp.asarray(o, v.aval.dtype)
        for o, v in zip(
            operands[carry_start:rows_start], eqn.invars[carry_start:rows_start], strict=True
        )
    ]

    def body(state: list[Any], row: tuple[list[Any], Any]) -> tuple[list[Any], Any]:
        row_of_operands, row_of_beside = row
        results, extras = step(params["jaxpr"], [*consts, *state, *row_of_operands], row_of_beside)
        return results[: len(carry)], (results[len(carry) :], extras)

    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    last_carry, (stacked, extras) = jax.lax.scan(body, carry, (list(rows), beside), **options)
    return [*last_carry, *stacked], extras


def called(eqn: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr and the constants of a call, a checkpoint or a function with rules of its own."""
    inner = eqn.params[ALL_CALLS[eqn.primitive.name]]
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def bind_widened(eqn: Any, operands: Sequence[Any]) -> Any:
    """:func:`bind`, where a convolution that XLA computes slowly gets more input channels.

    It is for numbers and not for tracing: in a traced program the kernel would be the result of the
    padding, and would no longer be recognised as the parameter that it is.
    """
    convolves = eqn.primitive.name == "conv_general_dilated"
    return bind(eqn, _widened(eqn, operands) if convolves else operands)


def _widened(eqn: Any, operands: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The image and the kernel of a convolution, with input channels of zeros where that is faster.

    On a CPU XLA has no fast float64 convolution for kernels with up to 256 pairs of input and
    output channels. So many channels are added that there are more pairs, unless that would more
    than double the inputs.
    """
    x, kernel = operands
    layout = eqn.params["dimension_numbers"]  # the order of the axes
    outputs, inputs, *window = (kernel.shape[axis] for axis in layout.rhs_spec)
    added = _FEW_PAIRS // outputs + 1 - inputs  # (inputs + added) outputs > 256
    ungrouped = eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1
    slow = kernel.dtype == jnp.float64 and max(window, default=1) > 1 and 0 < added <= inputs
    if not (ungrouped and slow and jax.default_backend() == "cpu"):
        return operands
    arrays_and_channel_axes = (x, layout.lhs_spec[1]), (kernel, layout.rhs_spec[1])
    return [
        jnp.pad(array, [(0, added if axis == channel_axis else 0) for axis in range(array.ndim)])
        for array, channel_axis in arrays_and_channel_axes
    ]


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those of loops, branches and calls inside it too."""
    for eqn in jaxpr.eqns:
        yield eqn
        yield from equations_inside(eqn)


def equations_inside(eqn: Any) -> Iterator[Any]:
    """All equations in the jaxprs among the parameters of an equation, as of a loop or a call."""
    for value in jax.tree.leaves(
        list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
    ):
        inner = getattr(value, "jaxpr", value)  # a closed jaxpr holds its jaxpr
        if hasattr(inner, "eqns"):
            yield from equations(inner)


def coarsest_eps(jaxpr: Any) -> float:
    """The eps of the coarsest floating format among the results in a jaxpr, 0 where none floats."""
    kinds = {v.aval.dtype for eqn in equations(jaxpr) for v in eqn.outvars if floats(v)}
    return max((float(jnp.finfo(kind).eps) for kind in kinds), default=0.0)


def narrowest(jaxpr: Any) -> jnp.dtype:
    """The floating dtype with the smallest exponent range among the results in a jaxpr."""
    kinds = {v.aval.dtype for eqn in equations(jaxpr) for v in eqn.outvars if inexact(v.aval)}
    return max(kinds, key=lambda kind: float(jnp.finfo(kind).tiny), default=jnp.dtype(float))


def inexact(value: Any) -> bool:
    """Whether an array, or its shape and dtype, is of floating or complex numbers."""
    kind = getattr(value.dtype, "kind", "V")  # NumPy knows bfloat16 and its like as "V" alone
    return kind in "fc" or (kind == "V" and bool(jnp.issubdtype(value.dtype, jnp.inexact)))


def floats(v: Any) -> bool:
    """Whether a variable of a jaxpr is of real floating numbers."""
    return hasattr(v.aval, "dtype") and jnp.issubdtype(v.aval.dtype, jnp.floating)


def has_custom_vjp(jaxpr: Any) -> bool:
    """Whether some equation has a reverse mode of its own, and so no forward mode."""
    return any(eqn.primitive.name in CUSTOM_VJPS for eqn in equations(jaxpr))


def may_have_no_derivative(jaxpr: Any) -> bool:
    """Whether there is a loop of unknown length, or a call of code that JAX cannot trace."""
    names = {eqn.primitive.name for eqn in equations(jaxpr)}
    return "while" in names or any("callback" in name for name in names)


def bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation of a jaxpr for given operands, by its primitive.

    Up to jax 0.9 ``get_bind_params`` returns the functions among its parameters apart from them.
    """
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ([], bound)
    return eqn.primitive.bind(*functions, *operands, **params)
