"""Single operations of a jaxpr on arrays that are at hand, by NumPy, which compiles nothing.

XLA compiles every operation anew for every shape, some ten milliseconds each, and a network that is
differentiated has hundreds. What is not listed here (gathers, dtypes that NumPy does not have), and
what lies on an accelerator, goes to XLA, one operation after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gnjax.networks.jaxprs import bind
from gnjax.networks.rounding.convolutions import convolved
from gnjax.numerics.host import on_cpu

_PLAIN_DTYPES = frozenset(np.dtype(kind) for kind in ("f8", "f4", "i8", "i4", "u4", "u1", "?"))


def result_by_numpy(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation, as NumPy's arrays where NumPy computes them."""
    operation = OPERATIONS.get(eqn.primitive.name)
    if operation is None or not _plain([*eqn.invars, *eqn.outvars], operands):
        return bind(eqn, operands)
    arrays = [_array(o, v) for o, v in zip(operands, eqn.invars, strict=True)]
    with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
        results = operation(eqn.params, *arrays)
    if results is NotImplemented:
        return bind(eqn, operands)
    if eqn.primitive.multiple_results:
        return results
    return np.asarray(results, eqn.outvars[0].aval.dtype)


def _array(operand: Any, v: Any) -> np.ndarray:
    """An operand in the dtype of its equation, or in a wider one that it has for its rounding."""
    dtype = v.aval.dtype
    if hasattr(operand, "dtype"):
        dtype = np.promote_types(operand.dtype, dtype)
    return np.asarray(operand, dtype)


def _plain(variables: Sequence[Any], operands: Sequence[Any]) -> bool:
    """Whether NumPy has the types of the variables, and the operands are in host memory."""
    on_host = (on_cpu(o) for o in operands if isinstance(o, jax.Array))
    return all(getattr(v.aval, "dtype", None) in _PLAIN_DTYPES for v in variables) and all(on_host)


Operation = Callable[..., Any]
"""(parameters of the equation, its operands) to the result, or NotImplemented."""


def _entrywise(function: Callable[..., Any]) -> Operation:
    return lambda params, *arrays: function(*arrays)


def _reduced(function: np.ufunc) -> Operation:
    def reduce(params: Any, array: np.ndarray) -> Any:
        if function.identity is None and not array.size:
            return NotImplemented
        return function.reduce(array, axis=params["axes"], dtype=array.dtype)

    return reduce


def _divide(params: Any, a: np.ndarray, b: np.ndarray) -> Any:
    return np.divide(a, b) if a.dtype.kind == "f" else NotImplemented


def _select(params: Any, which: np.ndarray, *cases: np.ndarray) -> Any:
    return np.where(which, cases[1], cases[0]) if which.dtype == bool else NotImplemented


def _power(params: Any, array: np.ndarray) -> Any:
    return np.power(array, params["y"]) if array.dtype.kind == "f" else NotImplemented


def _convert(params: Any, array: np.ndarray) -> Any:
    return array.astype(params["new_dtype"])


def _broadcast(params: Any, array: np.ndarray) -> Any:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], array.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(array.reshape(shape), params["shape"])


def _reshape(params: Any, array: np.ndarray) -> Any:
    return NotImplemented if params.get("dimensions") else array.reshape(params["new_sizes"])


def _slice(params: Any, array: np.ndarray) -> Any:
    strides = params["strides"] or (1,) * array.ndim
    ends = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return array[tuple(slice(*one) for one in ends)]


def _pad(params: Any, array: np.ndarray, value: np.ndarray) -> Any:
    config = params["padding_config"]
    if any(low < 0 or high < 0 for low, high, _ in config):
        return NotImplemented
    lengths = [max(n + (n - 1) * gap, 0) for n, (*_, gap) in zip(array.shape, config, strict=True)]
    shape = [low + n + high for n, (low, high, _) in zip(lengths, config, strict=True)]
    padded = np.full(shape, value)
    places = zip(config, lengths, strict=True)
    padded[tuple(slice(low, low + n, gap + 1) for (low, _, gap), n in places)] = array
    return padded


def _iota(params: Any) -> Any:
    shape, axis = params["shape"], params["dimension"]
    row = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(row, shape)


def _split(params: Any, array: np.ndarray) -> Any:
    return np.split(array, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


def _cumsum(params: Any, array: np.ndarray) -> Any:
    if params["reverse"]:
        return NotImplemented
    return np.cumsum(array, axis=params["axis"], dtype=array.dtype)


def _argmax(params: Any, array: np.ndarray) -> Any:
    return np.argmax(array, axis=params["axes"][0])


def _dot_general(params: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """A product of matrices for every index of the batch."""
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return NotImplemented
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    kind = params["preferred_element_type"] or np.result_type(a, b)
    free_a, free_b = _others(a, summed_a, batch_a), _others(b, summed_b, batch_b)
    shape = [a.shape[axis] for axis in (*batch_a, *free_a)] + [b.shape[axis] for axis in free_b]
    left = _stacked(a.astype(kind, copy=False), batch_a, free_a, summed_a)
    right = _stacked(b.astype(kind, copy=False), batch_b, summed_b, free_b)
    return np.matmul(left, right).reshape(shape)


def _others(array: np.ndarray, *excluded: Sequence[int]) -> list[int]:
    return [axis for axis in range(array.ndim) if not any(axis in axes for axes in excluded)]


def _stacked(array: np.ndarray, *groups: Sequence[int]) -> np.ndarray:
    """The array with one axis for every group of its axes, in this order."""
    shape = [math.prod(array.shape[axis] for axis in axes) for axes in groups]
    return array.transpose([axis for axes in groups for axis in axes]).reshape(shape)


def _erf(a: np.ndarray) -> Any:
    from scipy.special import erf  # 0.1 s of import, which not every user needs

    return erf(a)


_ENTRYWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "and": np.bitwise_and, "ceil": np.ceil,
    "copy": np.asarray, "cos": np.cos, "eq": np.equal, "erf": _erf, "exp": np.exp,
    "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
    "is_finite": np.isfinite, "le": np.less_equal, "log": np.log, "log1p": np.log1p,
    "logistic": lambda a: 1 / (1 + np.exp(-a)), "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert,
    "or": np.bitwise_or, "rsqrt": lambda a: 1 / np.sqrt(a), "sign": np.sign, "sin": np.sin,
    "sqrt": np.sqrt, "square": np.square, "sub": np.subtract,
    "tanh": np.tanh,
}  # fmt: skip
_REDUCTIONS = {
    "reduce_and": np.logical_and, "reduce_max": np.maximum, "reduce_min": np.minimum,
    "reduce_or": np.logical_or, "reduce_sum": np.add,
}  # fmt: skip
OPERATIONS: dict[str, Operation] = {
    **{name: _entrywise(function) for name, function in _ENTRYWISE.items()},
    **{name: _reduced(function) for name, function in _REDUCTIONS.items()},
    "argmax": _argmax,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *arrays: np.concatenate(arrays, params["dimension"]),
    "conv_general_dilated": convolved,
    "convert_element_type": _convert,
    "cumsum": _cumsum,
    "div": _divide,
    "dot_general": _dot_general,
    "integer_pow": _power,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "rev": lambda params, array: np.flip(array, params["dimensions"]),
    "select_n": _select,
    "slice": _slice,
    "split": _split,
    "squeeze": lambda params, array: np.squeeze(array, params["dimensions"]),
    "transpose": lambda params, array: np.transpose(array, params["permutation"]),
}
