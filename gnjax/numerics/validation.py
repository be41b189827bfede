"""Checks of arguments before any work; an error says what was given and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.host import all_finite, on_cpu, on_device
from gnjax.numerics.memory.free import check_room
from gnjax.numerics.precision import real_dtype

_ASYMMETRY = 1e-8
_NEGATIVE = 1e-8


def check_weights(weights: Sequence[ArrayLike]) -> list[jax.Array]:
    """W_1 .. W_L as arrays of the working precision, W_l of shape (a_l, a_{l-1})."""
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
    """Sigma as a symmetric positive semidefinite (d, d) array of the working precision."""
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


_on_accelerator = jax.jit(_largest_and_asymmetry)


def check_symmetric_matrix(name: str, matrix: jax.Array | np.ndarray, tolerance: float) -> float:
    """Refuse a matrix that is not symmetric to ``tolerance`` times its largest entry.

    Returns the largest entry in absolute value.
    """
    if on_cpu(matrix):
        with np.errstate(over="ignore", invalid="ignore"):
            largest_and_asymmetry = _largest_and_asymmetry(np.asarray(matrix))
    else:
        largest_and_asymmetry = _on_accelerator(matrix)
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
    if not isinstance(value, int | float | np.number | np.ndarray | jax.Array):
        msg = f"{name} must be a number, got {_describe(value)}"
        raise ValueError(msg)
    if np.ndim(value) != 0 or not math.isfinite(float(value)):
        msg = f"{name} must be one finite number, got {value}"
        raise ValueError(msg)
    return float(value)


def check_damping(value: float) -> float:
    """Check a damping, which is a finite number that is not negative, and return it."""
    number = check_finite_number("damping", value)
    if number < 0:
        msg = f"damping={value} is negative; a metric is positive definite"
        raise ValueError(msg)
    return number


def check_matrix(name: str, value: ArrayLike) -> jax.Array:
    """Check that ``value`` is a non-empty matrix of finite real numbers; convert its precision."""
    try:
        host = np.asarray(value)
    except ValueError as error:
        msg = f"{name} is not a matrix: {error}"
        raise ValueError(msg) from error
    if host.ndim != 2 or 0 in host.shape:
        msg = f"{name} must be a non-empty matrix, got shape {host.shape}"
        raise ValueError(msg)
    if host.dtype.kind == "V" and jnp.issubdtype(host.dtype, np.number):
        host = host.astype(np.float64)  # bfloat16 and narrower formats, which NumPy does not know
    if host.dtype.kind not in "fiu":
        msg = f"{name} must hold real numbers, got dtype {host.dtype}"
        raise ValueError(msg)
    memory = float(host.size) * np.dtype(real_dtype()).itemsize
    check_room(f"{name} of shape {host.shape}", memory, "give a smaller one")
    if not np.isfinite(host).all():
        msg = f"{name} contains NaN or Inf; a spectrum needs finite entries"
        raise ValueError(msg)
    array = on_device(value, real_dtype())
    if not all_finite(array):
        msg = f"{name} has entries beyond the largest {array.dtype}; divide it by a power of two"
        raise ValueError(msg)
    return array


def _describe(value: object) -> str:
    return (
        f"{type(value).__name__} of length {len(value)}"
        if hasattr(value, "__len__")
        else (type(value).__name__)
    )
