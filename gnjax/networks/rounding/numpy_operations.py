"""Single operations of a jaxpr on arrays that are at hand, by NumPy, which compiles nothing.

XLA compiles every operation anew for every shape, some ten milliseconds each, and a network that is
differentiated has hundreds. What is not listed here (sorts, dtypes that NumPy does not have), and
what lies on an accelerator, goes to XLA, one operation after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.lax import GatherScatterMode

from gnjax.networks.jaxprs import ALL_CALLS, bind, evaluate
from gnjax.networks.rounding.convolutions import convolved, with_padding
from gnjax.numerics.host import by_numpy, on_cpu

Step = Callable[[list[Any]], list[Any]]
"""The arguments of the body of a scan to its results."""

_DTYPES = frozenset(np.dtype(kind) for kind in ("f8", "f4", "i8", "i4", "u4", "u1", "?"))


def values_by_numpy(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr for values of its constants and arguments; nothing is compiled for it.

    Calls are entered, and scans go step by step. What NumPy lacks goes to JAX, see
    :func:`result_by_numpy`.
    """
    return evaluate(jaxpr, consts, args, _value, ALL_CALLS)


def _value(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation, a scan step by step where NumPy can read its operands."""
    if eqn.primitive.name != "scan" or not eqn.params["length"] or not in_host(operands):
        return result_by_numpy(eqn, operands)
    body = eqn.params["jaxpr"]
    return scan_by_steps(lambda args: values_by_numpy(body.jaxpr, body.consts, args), eqn, operands)


def in_host(operands: Sequence[Any]) -> bool:
    """Whether NumPy can read all operands of an equation where they are."""
    return all(on_cpu(operand) for operand in operands if isinstance(operand, jax.Array))


def scan_by_steps(step: Step, eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of a ``scan`` of at least one step, whose body is the function ``step``.

    ``operands`` are constants, then what is carried, then arrays with a row for each step.
    """
    params, consts_end = eqn.params, eqn.params["num_consts"]
    carry_end, length = consts_end + params["num_carry"], params["length"]
    operands = [
        by_numpy(operand) if hasattr(operand, "devices") else operand for operand in operands
    ]
    consts, carry = operands[:consts_end], operands[consts_end:carry_end]
    rows_of_all, stacked = operands[carry_end:], []
    for index in reversed(range(length)) if params["reverse"] else range(length):
        results = step([*consts, *carry, *(array[index] for array in rows_of_all)])
        carry = results[: len(carry)]
        stacked.append(results[len(carry) :])
    if params["reverse"]:
        stacked.reverse()
    return [
        *carry,
        *(np.stack([np.asarray(row) for row in rows]) for rows in zip(*stacked, strict=True)),
    ]


def result_by_numpy(eqn: Any, operands: Sequence[Any]) -> Any:
    """The results of an equation of a jaxpr for given operands, by NumPy where that is possible.

    Operations and dtypes that NumPy lacks, and operands on an accelerator, go to JAX.
    """
    variables = (*eqn.invars, *eqn.outvars)
    has_dtypes = all(getattr(v.aval, "dtype", None) in _DTYPES for v in variables)
    if not has_dtypes or not in_host(operands):
        return bind(eqn, operands)
    arrays = []
    for operand, v in zip(operands, eqn.invars, strict=True):
        wider = np.promote_types(operand.dtype, v.aval.dtype)  # of Monte Carlo arithmetic, say
        arrays.append(np.asarray(operand, wider))
    with np.errstate(all="ignore"):  # what is not finite is reported by whoever asked
        results = numpy_operation(eqn.primitive.name, eqn.params, *arrays)
    if results is NotImplemented:
        return bind(eqn, operands)
    if eqn.primitive.multiple_results:
        return results
    return np.asarray(results, eqn.outvars[0].aval.dtype)


def numpy_operation(name: str, params: Any, *arrays: np.ndarray) -> Any:
    """What JAX's primitive of this ``name`` gives for its parameters and operands, by NumPy.

    NotImplemented stands for what is left to JAX: what is not listed here, products, quotients and
    powers of integers, which JAX rounds or wraps in its own way, and a maximum over no entries.
    """
    if name in _OF_FLOATS and not any(array.dtype.kind == "f" for array in arrays):
        return NotImplemented
    if name in ENTRYWISE:
        return ENTRYWISE[name](*arrays)
    if name in REDUCTIONS:
        function, (array,) = REDUCTIONS[name], arrays
        if function.identity is None and not array.size:
            return NotImplemented
        return function.reduce(array, axis=params["axes"], dtype=array.dtype)
    return ON_ARRAYS[name](params, *arrays) if name in ON_ARRAYS else NotImplemented


def _select(params: Any, mask: np.ndarray, *cases: np.ndarray) -> Any:
    """The entries of the second of two cases where a mask is true, and of the first elsewhere."""
    return np.where(mask, cases[1], cases[0]) if mask.dtype == bool else NotImplemented


def _broadcast(params: Any, array: np.ndarray) -> Any:
    """The array as a view of a larger shape, along some axes of which it is repeated."""
    shape, own_axes = params["shape"], params["broadcast_dimensions"]
    new_axes = [axis for axis in range(len(shape)) if axis not in own_axes]
    return np.broadcast_to(np.expand_dims(array, new_axes), shape)


def _reshape(params: Any, array: np.ndarray) -> Any:
    """The array in another shape, where its axes are put into another order before."""
    return array.transpose(params["dimensions"] or range(array.ndim)).reshape(params["new_sizes"])


def _slice(params: Any, array: np.ndarray) -> Any:
    """The entries from start to limit along each axis, as a view."""
    strides = params["strides"] or (1,) * array.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return array[tuple(slice(*start_stop_step) for start_stop_step in bounds)]


def _cumsum(params: Any, array: np.ndarray) -> Any:
    """Sums of all entries up to each one along an axis; from the end by JAX."""
    if params["reverse"]:
        return NotImplemented
    return np.cumsum(array, axis=params["axis"], dtype=array.dtype)


def _dot_general(params: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """A product of matrices for every index of the batch axes.

    The result has the batch axes first, then the other (free) ones of a and those of b.
    """
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    dtype = params["preferred_element_type"] or np.result_type(a, b)
    free_a = [axis for axis in range(a.ndim) if axis not in (*summed_a, *batch_a)]
    free_b = [axis for axis in range(b.ndim) if axis not in (*summed_b, *batch_b)]
    shape = [a.shape[axis] for axis in (*batch_a, *free_a)] + [b.shape[axis] for axis in free_b]
    left = _with_axes_joined(a.astype(dtype, copy=False), batch_a, free_a, summed_a)
    right = _with_axes_joined(b.astype(dtype, copy=False), batch_b, summed_b, free_b)
    return np.matmul(left, right).reshape(shape)


def _with_axes_joined(array: np.ndarray, *groups: Sequence[int]) -> np.ndarray:
    """The array with the axes of each group joined to one axis, in the order of the groups."""
    shape = [math.prod(array.shape[axis] for axis in axes) for axes in groups]
    return array.transpose([axis for axes in groups for axis in axes]).reshape(shape)


def _places(
    params: Any, shape: Sequence[int], indices: np.ndarray, window: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], np.ndarray, list[int]] | None:
    """Where in an array of this shape each entry of the windows lies that indices point to.

    A window of the sizes ``window`` begins at each index. The answer has an array of places for
    every axis of the array, whose own axes are those of the indices and then those of the windows;
    whether a window lies inside; and the axes of windows that are kept. None where that is not
    listed here.
    """
    numbers = params["dimension_numbers"]
    gathers = hasattr(numbers, "collapsed_slice_dims")
    start_axes = numbers.start_index_map if gathers else numbers.scatter_dims_to_operand_dims
    hidden = numbers.collapsed_slice_dims if gathers else numbers.inserted_window_dims
    if numbers.operand_batching_dims or indices.dtype.kind not in "iu":
        return None
    of_indices, kept = indices.ndim - 1, [a for a in range(len(shape)) if a not in hidden]
    inside, places = np.ones(indices.shape[:-1], bool), []
    for axis, size in enumerate(shape):
        start = np.zeros(indices.shape[:-1], np.int64)
        if axis in start_axes:
            start = indices[..., start_axes.index(axis)].astype(np.int64)
        last = size - window[axis]
        inside &= (start >= 0) & (start <= last)
        start = np.clip(start, 0, last).reshape(start.shape + (1,) * len(kept))
        if axis in kept:
            along = [1] * (of_indices + len(kept))
            along[of_indices + kept.index(axis)] = window[axis]
            start = start + np.arange(window[axis]).reshape(along)
        places.append(start)
    return tuple(places), inside.reshape(inside.shape + (1,) * len(kept)), kept


def _gather(params: Any, array: np.ndarray, indices: np.ndarray) -> Any:
    """Windows of an array that begin at given indices, as rows of a table."""
    mode, numbers = params["mode"], params["dimension_numbers"]
    found = _places(params, array.shape, indices, params["slice_sizes"])
    if found is None:
        return NotImplemented
    places, inside, kept = found
    windows = array[places]
    if mode == GatherScatterMode.FILL_OR_DROP and not inside.all():
        if array.dtype.kind != "f" or params["fill_value"] is not None:
            return NotImplemented
        windows = np.where(inside, windows, np.nan)
    of_indices = indices.ndim - 1
    # the axes of the windows go to where the result has them
    rest = iter(range(of_indices))
    of_windows = iter(range(of_indices, of_indices + len(kept)))
    order = [
        next(of_windows if axis in numbers.offset_dims else rest) for axis in range(windows.ndim)
    ]
    return windows.transpose(order)


def _scatter_add(params: Any, array: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> Any:
    """An array with windows added at given indices; what lies outside is dropped."""
    numbers = params["dimension_numbers"]
    if numbers.operand_batching_dims or params["mode"] == GatherScatterMode.CLIP:
        return NotImplemented
    hidden = numbers.inserted_window_dims
    sizes = iter(updates.shape[axis] for axis in numbers.update_window_dims)
    window = [1 if axis in hidden else next(sizes) for axis in range(array.ndim)]
    found = _places(params, array.shape, indices, window)
    if found is None:
        return NotImplemented
    places, inside, _ = found
    batch = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    values = updates.transpose([*batch, *numbers.update_window_dims])
    total = array.copy()
    np.add.at(total, places, np.where(inside, values, 0).astype(array.dtype))
    return total


def _erf(a: np.ndarray) -> Any:
    """The error function."""
    from scipy.special import erf  # 0.1 s of import, which not every user needs

    return erf(a)


_OF_FLOATS = frozenset(("conv_general_dilated", "div", "dot_general", "integer_pow"))
ENTRYWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "and": np.bitwise_and, "ceil": np.ceil,
    "copy": np.asarray, "cos": np.cos, "div": np.divide, "eq": np.equal, "erf": _erf, "exp": np.exp,
    "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
    "is_finite": np.isfinite, "le": np.less_equal, "log": np.log, "log1p": np.log1p,
    "logistic": lambda a: 1 / (1 + np.exp(-a)), "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert,
    "or": np.bitwise_or, "rsqrt": lambda a: 1 / np.sqrt(a), "sign": np.sign, "sin": np.sin,
    "sqrt": np.sqrt, "square": np.square, "sub": np.subtract,
    "tanh": np.tanh,
}  # fmt: skip
REDUCTIONS: dict[str, np.ufunc] = {
    "reduce_and": np.logical_and, "reduce_max": np.maximum, "reduce_min": np.minimum,
    "reduce_or": np.logical_or, "reduce_sum": np.add,
}  # fmt: skip
ON_ARRAYS: dict[str, Callable[..., Any]] = {
    "argmax": lambda params, array: np.argmax(array, axis=params["axes"][0]),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *arrays: np.concatenate(arrays, params["dimension"]),
    "conv_general_dilated": convolved,
    "convert_element_type": lambda params, array: array.astype(params["new_dtype"]),
    "cumsum": _cumsum,
    "dot_general": _dot_general,
    "gather": _gather,
    "integer_pow": lambda params, array: np.power(array, params["y"]),
    "iota": lambda params: np.broadcast_to(
        np.indices(params["shape"], sparse=True)[params["dimension"]], params["shape"]
    ),
    "pad": lambda params, array, value: with_padding(array, value, params["padding_config"]),
    "reshape": _reshape,
    "scatter-add": _scatter_add,
    "scatter_add": _scatter_add,
    "rev": lambda params, array: np.flip(array, params["dimensions"]),
    "select_n": _select,
    "slice": _slice,
    "split": lambda params, array: np.split(
        array, np.cumsum(params["sizes"])[:-1], axis=params["axis"]
    ),
    "squeeze": lambda params, array: np.squeeze(array, params["dimensions"]),
    "transpose": lambda params, array: np.transpose(array, params["permutation"]),
}
"""By name of a primitive a function of its parameters and operands."""
