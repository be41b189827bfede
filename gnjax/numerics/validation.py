"""Checks of arguments before any work; an error says what was given and what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.host import all_finite, on_cpu, on_device
from gnjax.numerics.memory.free import check_room
from gnjax.numerics.outward import conversion_error
from gnjax.numerics.precision import real_dtype, x64_enabled

_ASYMMETRY = 1e-8  # relative to the largest entry; a larger one is no rounding
_NEGATIVE = 1e-8  # an eigenvalue below minus this times inputs and largest entry is no rounding


def check_weights(weights: Sequence[ArrayLike]) -> list[jax.Array]:
    """Check that the matrices ``weights`` can be multiplied to W_L .. W_1, and return them.

    They are arrays of the working precision, W_l of shape (a_l, a_{l-1}).
    """
    if isinstance(weights, str) or not isinstance(weights, Sequence) or len(weights) == 0:
        msg = f"weights must be a non-empty list [W1, .., WL], got {_describe(weights)}"
        raise ValueError(msg)
    layers = [check_matrix(f"W{layer}", w) for layer, w in enumerate(weights, start=1)]
    for layer, (before, after) in enumerate(pairwise(layers), start=1):
        if after.shape[1] != before.shape[0]:
            msg = (
                f"W{layer + 1} has {after.shape[1]} columns but W{layer} has {before.shape[0]} "
                "rows; weights must chain as W_L .. W_1 (transpose them if inputs come first)"
            )
            raise ValueError(msg)
    return layers


def check_covariance(covariance: ArrayLike, inputs: int) -> jax.Array:
    """Check that a covariance S (d, d) is symmetric and positive semidefinite, and return it.

    d is ``inputs``. Asymmetry and negative eigenvalues as small as rounding are let pass, and
    (S + S^T) / 2 is returned in the working precision.
    """
    sigma = check_matrix("covariance", covariance)
    if sigma.shape != (inputs, inputs):
        msg = (
            f"covariance has shape {sigma.shape}, but W1 takes {inputs} inputs: "
            f"({inputs}, {inputs}) is needed (X^T X / n for data with samples as rows)"
        )
        raise ValueError(msg)
    largest = check_symmetric_matrix("covariance", sigma, _ASYMMETRY)
    host = np.asarray(sigma)
    symmetric = (host + host.T) / 2
    least = float(np.linalg.eigvalsh(symmetric)[0])
    if least < -_NEGATIVE * inputs * largest:
        msg = (
            f"covariance is not positive semidefinite: its smallest eigenvalue is {least:.3g}; "
            "a covariance X^T X / n has none below zero"
        )
        raise ValueError(msg)
    return on_device(symmetric)


def _largest_and_asymmetry(matrix: Any) -> tuple[Any, Any]:
    """The largest |M_ij| and the largest |M_ij - M_ji|; M - M^T is antisymmetric."""
    return abs(matrix).max(), (matrix - matrix.T).max()


_compiled_largest_and_asymmetry = jax.jit(_largest_and_asymmetry)


def check_symmetric_matrix(name: str, matrix: jax.Array | np.ndarray, tolerance: float) -> float:
    """Refuse a matrix M with |M_ij - M_ji| above ``tolerance`` times the largest |M_ij|.

    Returns the largest |M_ij|. ``name`` is what the error calls the matrix.
    """
    if on_cpu(matrix):
        with np.errstate(over="ignore", invalid="ignore"):
            largest_and_asymmetry = _largest_and_asymmetry(np.asarray(matrix))
    else:
        largest_and_asymmetry = _compiled_largest_and_asymmetry(matrix)
    largest, asymmetry = map(float, largest_and_asymmetry)
    if asymmetry > tolerance * largest:
        msg = (
            f"{name} must be symmetric, but entries differ from their mirror by {asymmetry:.3g} "
            f"where the largest entry is {largest:.3g}; pass (M + M.T) / 2 if that is rounding"
        )
        raise ValueError(msg)
    return largest


def check_finite_number(name: str, value: float) -> float:
    """Check that ``value`` is a finite real number, and return it."""
    check_known(name, value)
    if not isinstance(value, int | float | np.number | np.ndarray | jax.Array):
        msg = f"{name} must be a number, got {_describe(value)}"
        raise ValueError(msg)
    if np.ndim(value) != 0 or np.iscomplexobj(value) or not _fits_float64(value):
        msg = f"{name} must be one finite number that float64 holds, got {str(value)[:40]}"
        raise ValueError(msg)
    return float(value)


def _fits_float64(value: Any) -> bool:
    """Whether float64 holds a real number: an integer exactly, and any other number as finite."""
    try:
        number = float(value)
    except OverflowError:  # an integer of Python beyond the largest float
        return False
    dtype = int if isinstance(value, int) else getattr(value, "dtype", float)
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    return math.isfinite(number) and (not is_integer or int(number) == int(value))


def check_damping(value: float) -> float:
    """Check a damping, which is a finite number that is not negative, and return it."""
    number = check_finite_number("damping", value)
    if number < 0:
        msg = f"damping={value} is negative; a metric is positive definite"
        raise ValueError(msg)
    return number


def check_matrix(name: str, value: ArrayLike) -> jax.Array:
    """Check that ``value`` is a non-empty matrix of finite real numbers; convert its precision.

    The working precision is that of :func:`real_dtype`. An array of JAX that has it already stays
    where it is, such as on a GPU.
    """
    traced = isinstance(value, jax.core.Tracer)
    stays = isinstance(value, jax.Array) and not traced and value.dtype == real_dtype()
    try:
        host: Any = value if stays else np.asarray(value)
    except ValueError as error:
        msg = f"{name} is not a matrix: {error}"
        raise ValueError(msg) from error
    if host.ndim != 2 or 0 in host.shape:
        msg = f"{name} must be a non-empty matrix, got shape {host.shape}"
        raise ValueError(msg)
    if host.dtype.kind == "V" and jnp.issubdtype(host.dtype, np.number):
        host = host.astype(np.float64)  # bfloat16 and narrower formats, which NumPy does not know
    if host.dtype.kind not in "fiub":
        msg = f"{name} must hold real numbers, got dtype {host.dtype}"
        raise ValueError(msg)
    memory = 0.0 if stays else float(host.size) * np.dtype(real_dtype()).itemsize
    check_room(f"{name} of shape {host.shape}", memory, "give a smaller one")
    array = on_device(value, real_dtype())
    check_finite(name, host, array, "a spectrum needs finite entries")
    return array


def is_traced(tree: Any) -> bool:
    """Whether the tree has an array that jax.jit, jax.grad or jax.vmap traces, without numbers."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def check_known(what: str, tree: Any) -> None:
    """Refuse a tree with traced arrays, where ``what`` needs the numbers in them."""
    if is_traced(tree):
        msg = (
            f"{what} needs numbers, and some arrays are traced by jax.jit, jax.grad or jax.vmap, "
            "which know their shapes alone; call it outside of them (inside, gnjax.gauss_newton, "
            "ntk, hessian and hessian_of make operators that multiply vectors, and nothing else)"
        )
        raise ValueError(msg)


def check_finite(name: str, given: Any, array: jax.Array | np.ndarray, advice: str) -> None:
    """Refuse an array with NaN or Inf, which the error calls ``name``.

    If the conversion from ``given`` made a finite number infinite, the error says so, and otherwise
    it gives the ``advice``.
    """
    if is_traced(array) or all_finite(array):
        return
    check_held(name, given, array)
    msg = f"{name} contains NaN or Inf; {advice}"
    raise ValueError(msg)


def check_held(name: str, given: Any, array: jax.Array | np.ndarray) -> None:
    """Refuse an array of JAX, a copy of ``given``, that does not hold its numbers.

    In 32-bit mode JAX keeps the lower 32 bits of integers of 64 bits, and numbers beyond 3.4e38
    become infinite.
    """
    if given.dtype == array.dtype or given.dtype == bool or is_traced(array):
        return  # no number was changed, or none is known
    if jnp.issubdtype(given.dtype, jnp.integer):
        if not conversion_error(given, array):
            return
        exact = np.asarray(given)
        lost = f"integers from {exact.min()} to {exact.max()}, which {array.dtype} does not hold"
        remedy = "subtract a start from them"
    else:
        # For truth values "<=" says: every number that was finite still is.
        if (np.isfinite(np.asarray(given)) <= np.isfinite(np.asarray(array))).all():
            return
        largest = float(jnp.finfo(array.dtype).max)
        lost = f"numbers beyond the largest {array.dtype}, {largest:.3g}"
        remedy = "divide it by a power of two"
    if not x64_enabled():
        remedy = f"call gnjax.enable_x64() before making arrays, or {remedy}"
    msg = f"{name} holds {lost}; {remedy}"
    raise ValueError(msg)


def _describe(value: object) -> str:
    """The type of a value, with its length where it has one, for an error message."""
    return (
        f"{type(value).__name__} of length {len(value)}"
        if hasattr(value, "__len__")
        else (type(value).__name__)
    )


def is_count(value: Any) -> bool:
    """Whether a value is an integer, and not a truth value."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
