"""The equations of a network in exact arithmetic: modulo a prime, with unknowns for its functions.

What is zero there, or linearly dependent, is so by algebra: 1 - tanh^2 is not zero where tanh
rounds to 1. Floating values decide the comparisons (of ReLU, say) as they do in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs
from gnjax.networks.equations.control_flow import (
    MOST_STEPS,
    chosen,
    step_counts,
    while_loop,
)
from gnjax.networks.rounding.numpy_operations import numpy_operation, result_by_numpy
from gnjax.numerics import modular
from gnjax.numerics.modular import PRIME


class NotFollowedError(Exception):
    """An equation of which no residues can be computed."""


@dataclass(frozen=True)
class Number:
    """An array of numbers in exact arithmetic, beside their values as the network computes them.

    What depends on the vectors that J is multiplied with has residues only.

    Attributes:
      residues: modulo the prime; None for integers, booleans and random keys.
      values: the floating (or integer) values, where known.
      masked: whether a mask may have put a number such as -1e9, which stands for -inf, among them.
    """

    residues: np.ndarray | None
    values: Any = None
    masked: bool = False

    @property
    def known(self) -> np.ndarray:
        """The residues modulo the prime; those of integers and booleans follow from their values.

        Keys of random numbers have none, and are refused.
        """
        if self.residues is not None:
            return self.residues
        if not jnp.issubdtype(self.values.dtype, jnp.integer) and self.values.dtype != bool:
            raise NotFollowedError("keys of random numbers")
        values = np.asarray(self.values)
        # int64 holds every other integer type, and the prime as well
        integers = values if values.dtype == np.uint64 else values.astype(np.int64)
        return (integers % PRIME).astype(np.int64)


def number(array: Any) -> Number:
    """An array of known values as a :class:`Number`, with their residues where they are floating.

    Integers, booleans and keys of random numbers have their values alone. A :class:`Number` comes
    back as it is.
    """
    if isinstance(array, Number):
        return array
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return Number(None, array)
    values = np.asarray(array)
    return Number(modular.residues(values), values)


_ZERO = number(np.zeros(()))


class Followed:
    """A function of arrays to an array, computed modulo the prime instead."""

    def __init__(self, function: Callable[..., jax.Array]) -> None:
        self.function = function
        self.programs: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> np.ndarray:
        """The residues of the result for these arguments, arrays or instances of :class:`Number`.

        The function is traced once for arguments of the same shapes and dtypes.
        """
        flat, structure = jax.tree.flatten(args, is_leaf=lambda leaf: isinstance(leaf, Number))
        shapes = [
            jax.ShapeDtypeStruct(leaf.known.shape, jnp.result_type(float))
            if isinstance(leaf, Number)
            else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            for leaf in flat
        ]
        key = structure, *shapes
        if key not in self.programs:
            arguments = jax.tree.unflatten(structure, shapes)
            self.programs[key] = jax.make_jaxpr(self.function)(*arguments)
        (result,) = _evaluated(self.programs[key], [number(leaf) for leaf in flat])
        return result.known


def _evaluated(closed_jaxpr: Any, operands: Sequence[Any]) -> list[Number]:
    """The results of a closed jaxpr, each as floating numbers and as the same modulo a prime."""
    jaxpr, consts = closed_jaxpr.jaxpr, closed_jaxpr.consts
    results = jaxprs.evaluate(jaxpr, consts, operands, _bind, jaxprs.ALL_CALLS)
    return [number(result) for result in results]


def _bind(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of one equation of a jaxpr, as instances of :class:`Number`.

    Every result gets its value in floating arithmetic too, if all operands have theirs: comparisons
    and indices need it. An equation that has integer or boolean results of other operands is
    refused.
    """
    numbers, name = [number(operand) for operand in operands], eqn.primitive.name
    if name in _LOOPS:
        return _LOOPS[name](eqn, numbers)
    dtypes = [getattr(v.aval, "dtype", bool) for v in (*eqn.invars, *eqn.outvars)]
    if any(jnp.issubdtype(dtype, jnp.complexfloating) for dtype in dtypes):
        raise NotFollowedError(f"{name} of complex numbers")
    values = None  # the results as the network computes them, where all operands have values
    if all(operand.values is not None for operand in numbers):
        computed = result_by_numpy(eqn, [operand.values for operand in numbers])
        values = list(computed) if eqn.primitive.multiple_results else [computed]
    if name in _COMPARISONS:
        _check_decided(numbers)
    if not any(jaxprs.floats(v) for v in eqn.outvars):
        if values is None:
            raise NotFollowedError(name)
        results = [Number(None, value) for value in values]
    else:
        residues = _residues(eqn, numbers, values)
        of_each = values or [None] * len(residues)
        masked = _keeps_masks(eqn, operands, numbers)
        results = [Number(*pair, masked) for pair in zip(residues, of_each, strict=True)]
    return results if eqn.primitive.multiple_results else results[0]


def _keeps_masks(eqn: Any, operands: Sequence[Any], numbers: Sequence[Number]) -> bool:
    """Whether a mask may have put a number that stands for -inf among the results of an equation.

    It is a constant of the equations (which comes as an operand that is no :class:`Number`), and is
    chosen, added, or multiplied with zeros and ones.
    """
    name, masks = eqn.primitive.name, [False]
    for operand, n in zip(operands, numbers, strict=True):
        is_constant = not isinstance(operand, Number) and n.residues is not None
        masks.append(n.masked or (is_constant and bool((np.asarray(n.values) < _MASKED).any())))
    if name == "mul":
        others = [n.values for n, is_mask in zip(numbers, masks[1:], strict=True) if not is_mask]
        return any(masks) and all(p is not None and np.isin(p, (0, 1)).all() for p in others)
    return any(masks) and (name in _MOVES or name in _KEEP_MASKS)


def _check_decided(numbers: Sequence[Number]) -> None:
    """Refuse to compare the first two if they are equal in floating arithmetic and not in residues.

    Rounding would decide which of them is larger. Integers are exact, and any two may be compared.
    """
    first, second = numbers[:2]
    if first.residues is None or second.residues is None or first.values is None:
        return
    if ((first.values == second.values) & (first.residues != second.residues)).any():
        raise NotFollowedError("a comparison that rounding decides")


def _residues(eqn: Any, numbers: Sequence[Number], values: list[Any] | None) -> list[np.ndarray]:
    """The residues modulo the prime of all results of an equation, of which one floats at least.

    They are those of ``values``, its results as the network computes them, where floating results
    are exact. Sums, products and quotients are computed modulo the prime, and the values of other
    functions are unknowns: residues that depend on the argument alone.
    """
    name = eqn.primitive.name
    # a conversion that changes no number, as from float32 to float64
    if name == "convert_element_type" and values is not None and _unchanged(numbers[0], values[0]):
        return [numbers[0].known]
    if not all(jaxprs.floats(v) for v in eqn.outvars):
        raise NotFollowedError(f"{name} with integers among its results")
    if any(jnp.finfo(v.aval.dtype).eps > _COARSEST for v in eqn.outvars):
        raise NotFollowedError(f"{name} in a coarse format, whose rounding is no algebra")
    # exact in floating arithmetic: step functions, as sign and floor, and results of integers
    from_integers = not any(jaxprs.floats(v) for v in eqn.invars)
    if name in _STEPS or (from_integers and name not in _MOVES):
        if values is None:
            raise NotFollowedError(name)
        if numbers and numbers[0].residues is not None:
            _check_decided((numbers[0], number(_STEPS[name](np.asarray(numbers[0].values)))))
        return [modular.residues(np.asarray(value)) for value in values]
    if name in _ARITHMETIC:
        return [_ARITHMETIC[name](*(operand.known for operand in numbers))]
    if name in _MOVES:  # sums and rearrangements of entries
        return _moved(eqn, numbers)
    if name in _PRODUCTS:  # of matrices, and convolutions
        return [_product(eqn, *numbers)]
    if name in _OF_VALUES:  # maxima and the like
        if any(operand.values is None for operand in numbers):
            raise NotFollowedError(name)
        return [_OF_VALUES[name](eqn, *numbers)]
    if name in _UNKNOWN and values is not None:  # exp, tanh and the like
        return [_unknown(name, numbers, values[0])]
    if name in _RULES:  # conversions and integer powers
        return [_RULES[name](eqn, *numbers)]
    raise NotFollowedError(name)


def _unchanged(before: Number, converted: Any) -> bool:
    """Whether floating numbers are the same after they were converted to another format."""
    if before.residues is None:
        return False
    return bool((np.asarray(converted, np.float64) == np.asarray(before.values, np.float64)).all())


def _unknown(name: str, numbers: Sequence[Number], value: Any) -> np.ndarray:
    """Residues for the values of a function that no algebra describes, such as tanh.

    At the argument zero many functions have a simple value, as exp(0) = 1. There the residue of
    ``value`` is taken, the function's floating value. And exp(-1e9) is zero where a mask put -1e9
    for -inf; its root is no number of any format.
    """
    unknowns = modular.unknowns(name, *(argument.known for argument in numbers))
    if name not in _KNOWN_AT_ZERO:
        return unknowns
    (argument,) = numbers
    at_zero = (argument.known == 0) & (argument.values == 0)
    residues = np.where(at_zero, modular.residues(np.asarray(value)), unknowns)
    if argument.masked and name in _ZERO_WHERE_MASKED:
        return np.where(argument.values < _MASKED, 0, residues)
    return residues


def _moved(eqn: Any, numbers: Sequence[Number]) -> list[np.ndarray]:
    """The residues of results that are sums of entries of the operands, as of a slice or a gather.

    The same operation on the residues gives them, but for multiples of the prime. Indices and the
    like are taken as they are.
    """
    operands = [n.values if n.residues is None else n.residues for n in numbers]
    results = numpy_operation(eqn.primitive.name, eqn.params, *operands)
    if results is NotImplemented:
        return _moved_by_jax(eqn, numbers)
    sums = results if eqn.primitive.multiple_results else [results]
    return [array % PRIME for array in sums]


def _moved_by_jax(eqn: Any, numbers: Sequence[Number]) -> list[np.ndarray]:
    """The residues of results that are sums of entries of the operands, by JAX's own operation.

    JAX computes in the floating format of the equation. So in float32 a residue, which has 31 bits,
    is written as sum_k d_k 2^(8 k) with digits d_k of 8 bits. The operation is applied to the d_k
    for one k at a time. Sums of digits are exact below 2^24 or 2^53, which is checked. What a
    gather has for indices out of bounds is refused, as it is no entry of an operand.
    """
    if "fill_value" in eqn.params:
        eqn = eqn.replace(params={**eqn.params, "fill_value": np.nan})
    dtype = next(v.aval.dtype for v in eqn.outvars if jaxprs.floats(v))
    exact_below = 2.0 ** (jnp.finfo(dtype).nmant + 1)
    bits = 31 if exact_below > 2.0**50 else 8  # of a digit
    totals: list[Any] = [np.zeros((), np.int64)] * len(eqn.outvars)
    for shift in range(0, 31, bits):
        digits = [
            n.values if n.residues is None
            else np.asarray((n.residues >> shift) & (2**bits - 1), v.aval.dtype)
            for n, v in zip(numbers, eqn.invars, strict=True)
        ]  # fmt: skip
        bound = jaxprs.bind(eqn, digits)
        results = bound if eqn.primitive.multiple_results else [bound]
        for i, result in enumerate(map(np.asarray, results)):
            if not (result < exact_below).all():  # also where an index out of bounds gives NaN
                raise NotFollowedError(eqn.primitive.name)
            totals[i] = (totals[i] + result.astype(np.int64) % PRIME * 2**shift) % PRIME
    return totals


def _product(eqn: Any, a: Number, b: Number) -> np.ndarray:
    """The residues of a product of matrices, or of a convolution, of a and b, by NumPy."""
    params = {**eqn.params, "preferred_element_type": None}  # results are to be float64

    def multiplied(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        product = numpy_operation(eqn.primitive.name, params, left, right)
        if product is NotImplemented:
            raise NotFollowedError(eqn.primitive.name)
        return np.asarray(product)

    return modular.bilinear(multiplied, a.known, b.known)


def _power(eqn: Any, base: Number) -> np.ndarray:
    """The residues of base^k with the integer k of the equation; 1 / base^|k| for a negative k."""
    exponent = eqn.params["y"]
    power = modular.powers(base.known, abs(exponent))
    return power if exponent >= 0 else modular.inverses(power)


def _convert(eqn: Any, operand: Number) -> np.ndarray:
    """The residues of numbers after a conversion to another format: the same, if it is no coarser.

    A coarser format would round the numbers, which is no algebra, and is refused.
    """
    before, after = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    if jnp.finfo(after).eps > jnp.finfo(before).eps:
        raise NotFollowedError(f"rounding from {before} to {after}")
    return operand.known


def _chosen(compare: np.ufunc, eqn: Any, a: Number, b: Number) -> np.ndarray:
    """The residues of max(a, b) for np.greater, or min(a, b) for np.less."""
    _check_decided((a, b))
    return np.where(compare(a.values, b.values), a.known, b.known)


def _clamped(eqn: Any, low: Number, operand: Number, high: Number) -> np.ndarray:
    """The residues of min(max(operand, low), high); the floating values decide what is chosen."""
    _check_decided((operand, low))
    _check_decided((operand, high))
    at_most_high = np.where(operand.values > high.values, high.known, operand.known)
    return np.where(operand.values < low.values, low.known, at_most_high)


def _extreme(find: Callable[..., np.ndarray], eqn: Any, operand: Number) -> np.ndarray:
    """The residues of the largest entries over some axes, found by np.argmax, or the smallest."""
    axes = eqn.params["axes"]
    kept = [axis for axis in range(operand.values.ndim) if axis not in axes]
    order, shape = (*kept, *axes), [operand.values.shape[axis] for axis in kept]
    values, residues = (  # with the axes of the equation joined to the last one
        array.transpose(order).reshape(*shape, -1) for array in (operand.values, operand.known)
    )
    indices = find(values, axis=-1)[..., None]
    return np.take_along_axis(residues, indices, axis=-1)[..., 0]


def _absolute(eqn: Any, operand: Number) -> np.ndarray:
    """The residues of |operand|: those of -operand at negative floating values."""
    _check_decided((operand, _ZERO))
    return np.where(operand.values < 0, -operand.known % PRIME, operand.known)


def _scan_results(eqn: Any, numbers: Sequence[Number]) -> list[Number]:
    """The results of a scan, computed step by step: its last carry, then its stacked outputs."""
    params, carry_start = eqn.params, eqn.params["num_consts"]
    rows_start, body = carry_start + params["num_carry"], params["jaxpr"]
    consts, carry = numbers[:carry_start], list(numbers[carry_start:rows_start])
    arrays = numbers[rows_start:]
    steps = range(params["length"])
    results_of_steps: list[list[Number]] = []
    for step in reversed(steps) if params["reverse"] else steps:
        row = [_map(lambda part, step=step: part[step], array) for array in arrays]
        results = _evaluated(body, [*consts, *carry, *row])
        carry = results[: len(carry)]
        results_of_steps.append(results[len(carry) :])
    if params["reverse"]:
        results_of_steps.reverse()
    if not results_of_steps:
        raise NotFollowedError("a loop of no steps")
    stacked = (_map(_stack, *over_steps) for over_steps in zip(*results_of_steps, strict=True))
    return [*carry, *stacked]


def _stack(*parts: Any) -> Any:
    """Arrays in one array with a new first axis; those of JAX, such as random keys, by JAX."""
    of_numpy = all(isinstance(part, np.ndarray | np.generic) for part in parts)
    return np.stack(parts) if of_numpy else jnp.stack(parts)


def _map(function: Callable[..., Any], *numbers: Number) -> Number:
    """Apply a function of arrays to the residues and to the values, where all numbers have them."""

    def of(arrays: Sequence[Any]) -> Any:
        return None if any(array is None for array in arrays) else function(*arrays)

    masked = any(n.masked for n in numbers)
    return Number(of([n.residues for n in numbers]), of([n.values for n in numbers]), masked)


def _while_results(eqn: Any, numbers: Sequence[Number]) -> list[Number]:
    """The last carry of a while loop, whose condition is decided by the floating values.

    A loop that was vmapped has a condition for each lane. One that does not stop after as many
    steps as in its compiled program is refused: what rounds decides when it stops.
    """
    # What has no values, as it depends on the vectors that J is multiplied with, decides nothing.
    values = [
        np.zeros(v.aval.shape, v.aval.dtype) if n.values is None else n.values
        for n, v in zip(numbers, eqn.invars, strict=True)
    ]
    most = int(step_counts(eqn, values).max(initial=0))
    if most == MOST_STEPS:
        raise NotFollowedError("a loop of too many steps")
    loop, carry = while_loop(eqn, numbers)
    for _ in range(most + 1):
        goes_on = number(_evaluated(loop.condition, loop.of_condition(carry))[0]).values
        if goes_on is None:
            raise NotFollowedError("a loop of unknown length")
        lanes = np.asarray(goes_on)
        if not lanes.any():
            return carry
        results = _evaluated(loop.body, loop.of_body(carry))
        carry = results if lanes.all() else [
            _map(lambda new, old, lanes=lanes: chosen(lanes, [new], [old])[0], *pair)
            for pair in zip(results, carry, strict=True)
        ]  # fmt: skip
    raise NotFollowedError("a loop whose length rounding decides")


def _cond_results(eqn: Any, numbers: Sequence[Number]) -> list[Number]:
    """The results of the branch that the first operand chooses, clipped to the branches."""
    branches = eqn.params["branches"]
    branch = branches[min(max(_decision(numbers[0]), 0), len(branches) - 1)]
    return _evaluated(branch, numbers[1:])


def _decision(condition: Any) -> int:
    """The value of a condition, or the index of a branch; refused where it is not known."""
    value = number(condition).values
    if value is None:
        raise NotFollowedError("a branch")
    return int(value)


_LOOPS: dict[str, Callable[[Any, Sequence[Number]], list[Number]]] = {
    "scan": _scan_results, "while": _while_results, "cond": _cond_results
}  # fmt: skip
_COMPARISONS = frozenset(("eq", "ge", "gt", "le", "lt", "ne"))
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda a, b: (a + b) % PRIME,
    "add_any": lambda a, b: (a + b) % PRIME,
    "div": lambda a, b: a * modular.inverses(b) % PRIME,
    "mul": lambda a, b: a * b % PRIME,
    "neg": lambda a: -a % PRIME,
    "square": lambda a: a * a % PRIME,
    "sub": lambda a, b: (a - b) % PRIME,
}
_MOVES = frozenset(
    str.split("""
    broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice dynamic_update_slice expand_dims
    gather optimization_barrier pad reduce_sum reduce_window_sum reshape rev scatter scatter-add
    scatter_add select_n slice split squeeze stop_gradient transpose
    """)
)
_PRODUCTS = frozenset(("conv_general_dilated", "dot_general"))
_OF_VALUES: dict[str, Callable[..., np.ndarray]] = {
    "abs": _absolute,
    "clamp": _clamped,
    "max": partial(_chosen, np.greater),
    "min": partial(_chosen, np.less),
    "reduce_max": partial(_extreme, np.argmax),
    "reduce_min": partial(_extreme, np.argmin),
}
_RULES: dict[str, Callable[..., np.ndarray]] = {
    "convert_element_type": _convert,
    "integer_pow": _power,
}
_STEPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sign": np.zeros_like,
    "floor": np.rint,
    "ceil": np.rint,
    "round": lambda x: np.floor(x) + 0.5,
}
"""Step functions, which are exact in floating numbers, and the place of the jump next to a number.

The result of a step function compares its argument with that place.
"""
_COARSEST = jnp.finfo(jnp.float32).eps
_UNKNOWN = frozenset(
    str.split("""
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1
    lgamma log log1p logistic pow rsqrt sin sinh sqrt tan tanh
    """)
)
_KNOWN_AT_ZERO = frozenset(
    str.split("""
    asin asinh atan atanh cbrt cos cosh erf erf_inv erfc exp exp2 expm1 log1p logistic sin sinh
    sqrt tan tanh
    """)
)
"""Functions whose values at zero are 0, 1/2 or 1, and exact in floating numbers."""
_ZERO_WHERE_MASKED = ("exp", "exp2", "logistic")
_KEEP_MASKS = ("add", "sub", "max", "min", "reduce_max", "convert_element_type")
_MASKED = -9e3
"""Masks put -inf, the least number of a format, -1e9 or -1e4, beside which scores are small."""
