"""max d^T H d over the unit ball of the norm in which a method makes steps of a fixed length.

Sign descent makes them in the largest entry, Muon in the largest spectral norm of a matrix (arXiv
2603.05002). The maximum over either ball is hard to find. Repeating d <- argmax_e e^T H d finds a d
whose value is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gnjax.diagnosis.monitor_products import product
from gnjax.diagnosis.sharpness.readings import gradient_and_hessian, read
from gnjax.networks.outputs.targets import Target
from gnjax.numerics.host import on_device
from gnjax.operators.of_networks.hessian import NetworkHessian


@dataclass(frozen=True)
class LargestInNorm:
    """d^T H d for the vector d of the search, the bound on its rounding, and the products made."""

    value: float
    error: float
    vector: np.ndarray
    products: int


Towards = Callable[[NetworkHessian, np.ndarray], np.ndarray]
"""The vector d of the unit ball with the largest d^T v."""


def signs(op: NetworkHessian, v: np.ndarray) -> np.ndarray:
    """For the largest entry: the signs of v."""
    del op
    return np.where(v < 0, -1.0, 1.0)


def polar_factors(op: NetworkHessian, v: np.ndarray) -> np.ndarray:
    """For the largest spectral norm: U V^T of each matrix U S V^T in v.

    A parameter with more than two axes is a matrix with the rows of its last axis, as in Muon's
    reshaping of convolutions; a vector has its own length as norm.
    """
    net, parts, start = op.net, [], 0
    for leaf, count in zip(net.leaf_indices, net.counts, strict=True):
        shape = net.leaves[leaf].shape
        part = v[start : start + count]
        start += count
        matrix = part.reshape(-1, shape[-1]) if len(shape) > 1 else part.reshape(1, -1)
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
        parts.append((left @ right).ravel())
    return np.concatenate(parts)


def largest_in_norm(
    op: NetworkHessian, towards: Towards, starts: Iterable[np.ndarray], rtol: float, steps: int
) -> LargestInNorm:
    """A lower bound d^T H d on the maximum.

    From each start at most ``steps`` products are made, and no more where the value grows by less
    than ``rtol`` of itself.
    """
    best, vector, products = -np.inf, None, 0
    for start in starts:
        d, last = towards(op, np.asarray(start, np.float64)), -np.inf
        for _ in range(steps):
            image = np.asarray(product(op, on_device(d, op.dtype)), np.float64)
            value, products = float(d @ image), products + 1
            if value > best:
                best, vector = value, d
            if not value > last + rtol * abs(last):
                break
            last, d = value, towards(op, image)
    assert vector is not None
    (value,), (error,) = read(_quadratic_form, op, vector)
    total = float(op.net.total)
    return LargestInNorm(float(value) / total, float(error) / total, vector, products)


def _quadratic_form(op: NetworkHessian, d: jax.Array, x: Any, target: Target) -> jax.Array:
    """d^T H d (1,) of the summed loss."""
    _, multiply = gradient_and_hessian(op, x, target)
    return (d @ multiply(d))[None]


def check_whole(op: NetworkHessian) -> None:
    """Refuse matrices of which a mask leaves some entries."""
    if any(indices is not None for indices in op.net.entry_indices):
        msg = (
            "spectral_sharpness is of whole matrices, and a mask leaves some of their entries; "
            "leave the mask or this measure out"
        )
        raise ValueError(msg)
