"""Whether a function is affine in its argument, F(x) = C x + c, proved from its jaxpr.

Every value in the jaxpr is "constant" (it does not depend on x), "affine" in x, or "unknown".
Sums, products with constants, matrix products and convolutions with one constant side, and
everything that moves entries around at places that do not depend on x keep an affine value affine.
The proof is about exact arithmetic: a conversion between floating types counts as the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jaxprs import ALL_CALLS, bind, evaluate

_CONSTANT, _AFFINE, _UNKNOWN = range(3)

_SUMS = ("add", "add_any", "sub", "concatenate", "pad", "complex")
_MOVES = frozenset(
    str.split("""
    broadcast broadcast_in_dim conj copy copy_p cumsum device_put expand_dims imag name neg
    optimization_barrier psum real reduce_sum reduce_window_sum reshape rev sharding_constraint
    slice split squeeze stop_gradient tile transpose
    """)
)
_PRODUCTS = ("mul", "dot_general", "conv_general_dilated")
_INDEXED = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}
_SCATTERS = ("scatter", "scatter_add", "scatter-add", "scatter_sub", "scatter-sub")


@dataclass(frozen=True, eq=False)
class _Form:
    """How a value depends on x, and its number where it is one constant number.

    Two values that are the same object are equal whatever x is.
    """

    kind: int
    number: Any = None
    reason: str = ""  # the operation that made it unknown


def is_affine(function: Callable[[Any], Any], x: Any) -> bool:
    """Whether every output of ``function`` is proved to be affine in the array or pytree x.

    False means that there is no proof, as for a ReLU or for a product of two values of x.
    """
    return not what_bends(function, x)


def what_bends(function: Callable[[Any], Any], x: Any) -> str:
    """The name of an operation because of which F is not proved affine; "" if F is proved affine.

    Args:
      function: any JAX function.
      x: an argument, of which only the shapes and dtypes matter.
    """
    closed_jaxpr = jax.make_jaxpr(function)(x)
    inputs = [_Form(_AFFINE) for _ in closed_jaxpr.jaxpr.invars]
    results = _inside(closed_jaxpr.jaxpr, closed_jaxpr.consts, inputs)
    reasons = [form.reason for form in results if form.kind == _UNKNOWN]
    return reasons[0] if reasons else ""


def _form(value: Any) -> _Form:
    """Literals arrive as numbers."""
    return value if isinstance(value, _Form) else _constant(value)


def _constant(value: Any) -> _Form:
    is_number = np.size(value) == 1 and not isinstance(value, jax.core.Tracer)
    return _Form(_CONSTANT, value if is_number else None)


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The forms of an equation's results."""
    forms, name = [_form(o) for o in operands], eqn.primitive.name
    if all(form.kind == _CONSTANT for form in forms) and name not in _LOOPS:
        results = _constants(eqn, forms)
    else:
        rule = _LOOPS.get(name, _plain)
        results = rule(eqn, forms)
    return results if eqn.primitive.multiple_results else results[0]


def _inside(jaxpr: Any, consts: Sequence[Any], forms: Sequence[_Form]) -> list[_Form]:
    results = evaluate(jaxpr, [_constant(c) for c in consts], list(forms), _bind, ALL_CALLS)
    return [_form(result) for result in results]


def _constants(eqn: Any, forms: Sequence[_Form]) -> list[_Form]:
    """The results of constant operands: constants, with their value if it is a single number."""
    are_numbers = all(form.number is not None for form in forms)
    single = all(v.aval.size == 1 for v in eqn.outvars)
    if not (are_numbers and single and forms and not eqn.effects):
        return [_Form(_CONSTANT) for _ in eqn.outvars]
    with jax.ensure_compile_time_eval():
        results = bind(eqn, [form.number for form in forms])
    return [_constant(r) for r in (results if eqn.primitive.multiple_results else [results])]


def _plain(eqn: Any, forms: Sequence[_Form]) -> list[_Form]:
    """The forms of the results of an equation that is no loop, branch or call."""
    same = _returned_operand(eqn, forms)
    if same is not None:
        return [same]
    unknown = [form for form in forms if form.kind == _UNKNOWN]
    if unknown:
        return [_Form(_UNKNOWN, reason=unknown[0].reason) for _ in eqn.outvars]
    kind = _AFFINE if _keeps_affine(eqn, [form.kind for form in forms]) else _UNKNOWN
    return [_Form(kind, reason="" if kind == _AFFINE else eqn.primitive.name) for _ in eqn.outvars]


def _returned_operand(eqn: Any, forms: Sequence[_Form]) -> _Form | None:
    """The operand that the equation returns as it is: 1 x, or a choice between x and x."""
    name = eqn.primitive.name
    if name == "select_n" and all(form is forms[1] for form in forms[2:]):
        return forms[1]
    if name == "mul":
        for factor, operand in (forms, forms[::-1]):
            is_one = factor.number is not None and np.all(factor.number == 1)
            if factor.kind == _CONSTANT and is_one:
                return operand
    floats = name == "convert_element_type" and _between_floats(eqn)
    copies = name in ("copy", "copy_p") or floats
    shapes = {v.aval.shape for v in (*eqn.invars, *eqn.outvars)}
    return forms[0] if copies and len(shapes) == 1 else None


def _between_floats(eqn: Any) -> bool:
    return all(jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in (eqn.invars[0], eqn.outvars[0]))


def _keeps_affine(eqn: Any, kinds: Sequence[int]) -> bool:
    """Whether the results are affine in x; every operand is constant or affine."""
    name = eqn.primitive.name
    if name in _SUMS or name in _MOVES:
        return True
    if name in _PRODUCTS:
        return _CONSTANT in kinds
    if name == "div":
        return kinds[1] == _CONSTANT
    if name == "select_n":
        return kinds[0] == _CONSTANT
    if name == "integer_pow":
        return bool(eqn.params["y"] == 1)
    if name in _SCATTERS:
        return kinds[1] == _CONSTANT and not eqn.params.get("update_consts")
    if name in _INDEXED:
        return all(kind == _CONSTANT for kind in kinds[_INDEXED[name] :])
    return False


def _cond(eqn: Any, forms: Sequence[_Form]) -> list[_Form]:
    """The worst form of all branches, if the choice of the branch does not depend on x."""
    index, *arguments = forms
    if index.kind != _CONSTANT:
        return [_Form(_UNKNOWN, reason="cond") for _ in eqn.outvars]
    branches = [
        _inside(branch.jaxpr, branch.consts, arguments) for branch in eqn.params["branches"]
    ]
    return [_worst(results) for results in zip(*branches, strict=True)]


def _worst(forms: Sequence[_Form]) -> _Form:
    """The form of a value that may have any of these forms."""
    worst = max(forms, key=lambda form: form.kind)
    return _Form(worst.kind, reason=worst.reason)


def _carry_after_loop(
    body: Callable[[list[_Form]], list[_Form]], carry: list[_Form]
) -> list[_Form]:
    """The carried values of a loop after any number of steps; every step can only make it worse."""
    current = [_worst([form]) for form in carry]
    while True:
        after = [_worst(pair) for pair in zip(current, body(current), strict=True)]
        if [form.kind for form in after] == [form.kind for form in current]:
            return current
        current = after


def _while(eqn: Any, forms: Sequence[_Form]) -> list[_Form]:
    """The carried values of a loop; unknown if x decides when it ends."""
    params, first = eqn.params, eqn.params["cond_nconsts"]
    second = first + params["body_nconsts"]
    condition_consts, body_consts, carry = forms[:first], forms[first:second], list(forms[second:])
    body, condition = params["body_jaxpr"], params["cond_jaxpr"]
    carry = _carry_after_loop(
        lambda current: _inside(body.jaxpr, body.consts, [*body_consts, *current]), carry
    )
    goes_on = _inside(condition.jaxpr, condition.consts, [*condition_consts, *carry])[0]
    return carry if goes_on.kind == _CONSTANT else [_Form(_UNKNOWN, reason="while") for _ in carry]


def _scan(eqn: Any, forms: Sequence[_Form]) -> list[_Form]:
    """The carried values after the last step, and the stacked results of all steps."""
    params, body, first = eqn.params, eqn.params["jaxpr"], eqn.params["num_consts"]
    count = params["num_carry"]
    consts, rows = forms[:first], [_worst([form]) for form in forms[first + count :]]

    def step(current: list[_Form]) -> list[_Form]:
        return _inside(body.jaxpr, body.consts, [*consts, *current, *rows])

    carry = _carry_after_loop(
        lambda current: step(current)[:count], list(forms[first : first + count])
    )
    return [*carry, *(_worst([form]) for form in step(carry)[count:])]


_LOOPS = {"cond": _cond, "while": _while, "scan": _scan}
