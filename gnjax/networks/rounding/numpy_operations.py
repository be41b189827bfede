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
    """The results of an equation of a jaxpr for given operands, by NumPy where that is possible.

    Operations and dtypes that NumPy lacks, and operands on an accelerator, go to JAX.
    """
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
    """An operand in the dtype of the variable ``v`` of its equation, or in a wider one of its own.

    Monte Carlo arithmetic hands in some operands in the wider format of the result.
    """
    dtype = v.aval.dtype
    if hasattr(operand, "dtype"):
        dtype = np.promote_types(operand.dtype, dtype)
    return np.asarray(operand, dtype)


def _plain(variables: Sequence[Any], operands: Sequence[Any]) -> bool:
    """Whether NumPy has the dtypes of these variables, and the operands are in host memory."""
    on_host = (on_cpu(o) for o in operands if isinstance(o, jax.Array))
    return all(getattr(v.aval, "dtype", None) in _PLAIN_DTYPES for v in variables) and all(on_host)


Operation = Callable[..., Any]
"""(parameters of the equation, its operands) to the result, or NotImplemented."""


def _entrywise(function: Callable[..., Any]) -> Operation:
    """A function of entries as an operation, which has no parameters."""
    return lambda params, *arrays: function(*arrays)


def _reduced(function: np.ufunc) -> Operation:
    """The operation that reduces an array by a function of two numbers, as sums by ``np.add``.

    The parameters of the equation name the axes. A maximum over no entries has no value in NumPy,
    and is left to JAX.
    """

    def reduce(params: Any, array: np.ndarray) -> Any:
        if function.identity is None and not array.size:
            return NotImplemented
        return function.reduce(array, axis=params["axes"], dtype=array.dtype)

    return reduce


def _divide(params: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """a / b of floating numbers; integers round differently in JAX."""
    return np.divide(a, b) if a.dtype.kind == "f" else NotImplemented


def _select(params: Any, mask: np.ndarray, *cases: np.ndarray) -> Any:
    """The entries of the second of two cases where a mask is true, and of the first elsewhere."""
    return np.where(mask, cases[1], cases[0]) if mask.dtype == bool else NotImplemented


def _power(params: Any, array: np.ndarray) -> Any:
    """``integer_pow``: an integer power of floating numbers."""
    return np.power(array, params["y"]) if array.dtype.kind == "f" else NotImplemented


def _convert(params: Any, array: np.ndarray) -> Any:
    """The array in another dtype."""
    return array.astype(params["new_dtype"])


def _broadcast(params: Any, array: np.ndarray) -> Any:
    """``broadcast_in_dim``: the array as a view of the shape ``params["shape"]``.

    Its axes become the axes ``params["broadcast_dimensions"]``, and it is repeated along others.
    """
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], array.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(array.reshape(shape), params["shape"])


def _reshape(params: Any, array: np.ndarray) -> Any:
    """The array in another shape; one that reorders the axes as well is left to JAX."""
    return NotImplemented if params.get("dimensions") else array.reshape(params["new_sizes"])


def _slice(params: Any, array: np.ndarray) -> Any:
    """The entries from start to limit along each axis, as a view."""
    strides = params["strides"] or (1,) * array.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return array[tuple(slice(*start_stop_step) for start_stop_step in bounds)]


def _pad(params: Any, array: np.ndarray, value: np.ndarray) -> Any:
    """The array with ``value`` before, after and between its entries, along each axis.

    Negative padding, which cuts entries off, is left to JAX.
    """
    config = params["padding_config"]  # for each axis (before, after, between two entries)
    if any(low < 0 or high < 0 for low, high, _ in config):
        return NotImplemented
    # along each axis: the entries with the gaps between them, and then what is before and after
    lengths = [max(n + (n - 1) * gap, 0) for n, (*_, gap) in zip(array.shape, config, strict=True)]
    shape = [low + n + high for n, (low, high, _) in zip(lengths, config, strict=True)]
    padded = np.full(shape, value)
    axes = zip(config, lengths, strict=True)
    padded[tuple(slice(low, low + n, gap + 1) for (low, _, gap), n in axes)] = array
    return padded


def _iota(params: Any) -> Any:
    """0, 1, 2, .. along one axis of a shape."""
    shape, axis = params["shape"], params["dimension"]
    row = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(row, shape)


def _split(params: Any, array: np.ndarray) -> Any:
    """Consecutive parts of given sizes along an axis."""
    return np.split(array, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


def _cumsum(params: Any, array: np.ndarray) -> Any:
    """Sums of all entries up to each one along an axis; from the end by JAX."""
    if params["reverse"]:
        return NotImplemented
    return np.cumsum(array, axis=params["axis"], dtype=array.dtype)


def _argmax(params: Any, array: np.ndarray) -> Any:
    """The index of the first largest entry along an axis."""
    return np.argmax(array, axis=params["axes"][0])


def _dot_general(params: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """``dot_general``: a product of matrices for every index of the batch axes.

    The equation says which axes of a and b are summed over and which are batch axes. The result has
    the batch axes first, then the other (free) ones of a and those of b. Products of integers alone
    are left to JAX.
    """
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return NotImplemented
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    dtype = params["preferred_element_type"] or np.result_type(a, b)
    free_a, free_b = _other_axes(a, summed_a, batch_a), _other_axes(b, summed_b, batch_b)
    shape = [a.shape[axis] for axis in (*batch_a, *free_a)] + [b.shape[axis] for axis in free_b]
    left = _with_axes_joined(a.astype(dtype, copy=False), batch_a, free_a, summed_a)
    right = _with_axes_joined(b.astype(dtype, copy=False), batch_b, summed_b, free_b)
    return np.matmul(left, right).reshape(shape)


def _other_axes(array: np.ndarray, *excluded: Sequence[int]) -> list[int]:
    """The axes of an array that are in none of the groups."""
    return [axis for axis in range(array.ndim) if not any(axis in axes for axes in excluded)]


def _with_axes_joined(array: np.ndarray, *groups: Sequence[int]) -> np.ndarray:
    """The array with the axes of each group joined to one axis, in the order of the groups."""
    shape = [math.prod(array.shape[axis] for axis in axes) for axes in groups]
    return array.transpose([axis for axes in groups for axis in axes]).reshape(shape)


def _erf(a: np.ndarray) -> Any:
    """The error function."""
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
