"""How kappa of a linear network on whitened inputs grows with depth: exactly, and in the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

Array = NDArray[np.float64]
ROUNDING = 1e-15  # relative, of a singular value beside the largest one


@dataclass(frozen=True)
class Ends:
    """The largest and the smallest eigenvalue of G, and how far kappa may be off, relatively.

    ``off`` is measured: the difference between two ways to multiply the layers, and the rounding of
    the singular values.
    """

    largest: float
    smallest: float
    off: float

    @property
    def kappa(self) -> float:
        return self.largest / self.smallest


def rate(width: int, inputs: int, outputs: int) -> float:
    """The limit of log(kappa) / L for deep networks of one width, psi(m/2) - psi((m - r + 1)/2).

    r is the smaller one of the numbers of inputs and outputs, psi the digamma function. With one
    input or one output it is 0, and kappa grows like a power.

    >>> round(rate(1000, 784, 10), 5)
    0.00904
    """
    rank = min(inputs, outputs)
    return float(digamma(width / 2) - digamma((width - rank + 1) / 2))


def ends(weights: Sequence[ArrayLike]) -> Ends:
    """The ends of the spectrum of G = sum_l (W_L .. W_{l+1}) (..)^T (x) (W_{l-1} .. W_1)^T (..).

    This is the Gauss-Newton matrix of a linear network with the layers W_1 (m, d) to W_L (k, m) on
    inputs with the covariance I. G is F^T F for the stack F of the Kronecker products of triangular
    factors, so that a kappa of 1e14 has digits left. Layers are wider than they have inputs and
    outputs.
    """
    layers = [np.asarray(weight, float) for weight in weights]
    largest, smallest, rounding = _of_stack(*_triangles(layers))
    other = _of_stack(*_products(layers))
    off = abs(np.expm1(np.log(other[0] / other[1]) - np.log(largest / smallest)))
    return Ends(largest, smallest, float(off + rounding))


def _triangles(layers: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The factors R of W_{l-1} .. W_1 = Q R for l = 1 .. L, and those of (W_L .. W_{l+1})^T.

    Each comes from the last one: W Q R = Q' (R' R).
    """
    before, after = _chain(layers[:-1]), _chain([weight.T for weight in layers[:0:-1]])
    return before, after[::-1]


def _chain(layers: Sequence[Array]) -> list[Array]:
    basis = triangle = np.eye(layers[0].shape[1])
    found = [triangle]
    for weight in layers:
        basis, step = np.linalg.qr(weight @ basis)
        triangle = step @ triangle
        found.append(triangle)
    return found


def _products(layers: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The same factors, each from a product of layers."""
    before, after = _multiplied(layers[:-1]), _multiplied([w.T for w in layers[:0:-1]])
    return before, after[::-1]


def _multiplied(layers: Sequence[Array]) -> list[Array]:
    product = np.eye(layers[0].shape[1])
    found = [product]
    for weight in layers:
        product = weight @ product
        found.append(np.asarray(np.linalg.qr(product, mode="r")))
    return found


def _of_stack(before: Sequence[Array], after: Sequence[Array]) -> tuple[float, float, float]:
    """The squares of the extreme singular values of the stack, and the rounding of the quotient."""
    stack = np.concatenate([np.kron(s, r) for s, r in zip(after, before, strict=True)])
    values = np.linalg.svd(np.linalg.qr(stack, mode="r"), compute_uv=False)
    first, last = values[0], values[-1]
    rounding = 2 * ROUNDING * len(values) * first / last
    return float(first**2), float(last**2), float(rounding)
