"""A function in float64 whose equations ask for float32 in places, computed in float64 throughout.

A single number that was rounded to float32 gets back the digits that it was written with, as 1e-5
or the scale of attention. What computes in bfloat16 or float16 does so on purpose, and is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gnjax.networks.equations.constants import unrounded
from gnjax.networks.equations.control_flow import CONTROL_FLOW
from gnjax.networks.equations.custom_rules import custom_jvp, custom_vjp
from gnjax.networks.jaxprs import bind, equations, equations_inside, evaluate

_WIDER = {
    jnp.dtype(jnp.float32): jnp.dtype(jnp.float64),
    jnp.dtype(jnp.complex64): jnp.dtype(jnp.complex128),
}
_ANY_FORMAT = frozenset(
    str.split("""
    abs acos acosh add add_any argmax argmin asin asinh atan atan2 atanh broadcast
    broadcast_in_dim cbrt ceil cholesky clamp complex concatenate conj copy copy_p cos cosh
    cumlogsumexp cummax cummin cumprod cumsum digamma div dot_general dynamic_slice
    dynamic_update_slice eigh eq erf erf_inv erfc exp exp2 expand_dims expm1 fft floor gather ge gt
    householder_product igamma igammac imag integer_pow iota is_finite le lgamma log log1p logistic
    lt lu max min mul ne neg optimization_barrier pad polygamma pow qr real reduce_max reduce_min
    reduce_precision reduce_prod reduce_sum reduce_window_max reduce_window_min reduce_window_sum
    rem reshape rev round rsqrt select_and_gather_add select_and_scatter_add select_n sign sin sinh
    slice sort split sqrt square squeeze stop_gradient sub svd tan tanh tile top_k transpose
    triangular_solve conv_general_dilated
    """)
)
_SCATTERS = {
    "scatter": jax.lax.scatter,
    "scatter-add": jax.lax.scatter_add,
    "scatter_add": jax.lax.scatter_add,
    "scatter-mul": jax.lax.scatter_mul,
    "scatter_mul": jax.lax.scatter_mul,
    "scatter-min": jax.lax.scatter_min,
    "scatter_min": jax.lax.scatter_min,
    "scatter-max": jax.lax.scatter_max,
    "scatter_max": jax.lax.scatter_max,
}


@dataclass(frozen=True)
class Widened:
    """(function, *args) -> function(*args), with float64 in place of float32 in its equations.

    With ``traced_narrow`` the equations are traced with every float64 argument in float32, as if
    the function was called in 32-bit mode, for functions that do not take float64 (a loop whose
    first carry is float32, say). Its Python constants are then rounded to float32.
    """

    traced_narrow: bool = False

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """The value of the function in float64."""
        traced_args = args
        if self.traced_narrow:
            narrow = {wide: thin for thin, wide in _WIDER.items()}
            traced_args = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, narrow.get(leaf.dtype, leaf.dtype)),
                args,
            )
        closed_jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*traced_args)
        results = _inside(closed_jaxpr.jaxpr, closed_jaxpr.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)


def traced(function: Callable[..., Any], *args: Any) -> tuple[Any, Any, Widened | None]:
    """The equations of function(*args) in 64-bit mode, with float64 in place of float32.

    Returns:
      The closed jaxpr, the shapes of its results, and the rewriting that was applied to the
      function; None if it has no float32.
    """
    trace: Any = partial(jax.make_jaxpr, return_shape=True)
    try:
        closed_jaxpr, shapes = trace(function)(*args)
    except TypeError:  # such as that of a loop whose first carry is float32
        narrow = Widened(traced_narrow=True)
        try:
            return *trace(partial(narrow, function))(*args), narrow
        except TypeError:
            closed_jaxpr, shapes = trace(function)(*args)  # raises what it raised at first
    if not any(_has_float32(eqn) for eqn in equations(closed_jaxpr.jaxpr)):
        return closed_jaxpr, shapes, None
    return *trace(partial(Widened(), function))(*args), Widened()


def _has_float32(eqn: Any) -> bool:
    """Whether an equation reads or writes float32."""
    return any(_is_narrow(v.aval) for v in (*eqn.invars, *eqn.outvars))


def _is_narrow(aval: Any) -> bool:
    """Whether a type of values is float32 or complex64."""
    return getattr(aval, "dtype", None) in _WIDER


def _inside(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of equations with float64 in place of float32; single constants are unrounded."""
    unrounded_consts = [unrounded(const) if jnp.ndim(const) == 0 else const for const in consts]
    results = evaluate(jaxpr, [_wide(const) for const in unrounded_consts], list(args), _bind)
    return [_wide(result) for result in results]


def _wide(value: Any) -> Any:
    """A float32 array as float64; other values come back as they are."""
    dtype = getattr(value, "dtype", None)
    return value.astype(_WIDER[dtype]) if dtype in _WIDER else value


def _wide_operand(operand: Any, v: Any) -> Any:
    """The operand in float64 where the variable ``v`` of its equation was traced in float32.

    A number that stands in the equation itself gets back the digits that it was written with.
    """
    dtype = getattr(v.aval, "dtype", None)
    if dtype not in _WIDER:
        return operand
    return jnp.asarray(
        unrounded(operand) if isinstance(v, core.Literal) else operand, _WIDER[dtype]
    )


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation with float64 in place of float32.

    An equation without float32 stays as it is. Primitives that mean the same in every format are
    computed in float64. Those with equations inside, as loops and functions with derivative rules,
    have these widened. Any other one, such as a bit cast, is computed in float32, and its results
    are converted to float64.
    """
    if not any(_has_float32(inner) for inner in (eqn, *equations_inside(eqn))):
        return bind(eqn, operands)
    values = [_wide_operand(o, v) for o, v in zip(operands, eqn.invars, strict=True)]
    name = eqn.primitive.name
    if name in _RULES:
        return _RULES[name](eqn, values)
    if name.startswith("custom_vjp_call"):
        return custom_vjp(_inside, eqn, values)
    if name in _SCATTERS:  # called by name, as the primitive holds a function traced in float32
        options = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return _SCATTERS[name](*values, **{option: eqn.params[option] for option in options})
    if name == "reduce_precision" and eqn.params["mantissa_bits"] >= jnp.finfo(jnp.float32).nmant:
        return values[0]  # it would round to float32; a coarser format is intended
    if name in _ANY_FORMAT:
        params = {  # with float64 in place of float32
            key: _WIDER.get(jnp.dtype(value), value)
            if isinstance(value, np.dtype | type)
            else value
            for key, value in eqn.params.items()
        }
        return eqn.primitive.bind(*values, **params)
    narrow = [
        jnp.asarray(value, v.aval.dtype) if _is_narrow(v.aval) else value
        for value, v in zip(values, eqn.invars, strict=True)
    ]
    results = bind(eqn, narrow)
    return [_wide(r) for r in results] if eqn.primitive.multiple_results else _wide(results)


def _convert(eqn: Any, operands: Sequence[Any]) -> Any:
    """A conversion of the dtype; one to float32 goes to float64."""
    dtype = jnp.dtype(eqn.params["new_dtype"])
    return jax.lax.convert_element_type(operands[0], _WIDER.get(dtype, dtype))


_RULES: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "convert_element_type": _convert,
    "custom_jvp_call": partial(custom_jvp, _inside),
    **{name: partial(rule, _inside) for name, rule in CONTROL_FLOW.items()},
}
